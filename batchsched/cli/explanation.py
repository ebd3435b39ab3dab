"""What `explain` found of one PodGroup, as data and for people."""

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from batchsched.api.core.pod import POD_GROUP_LABEL
from batchsched.api.core.quantity import show
from batchsched.api.decision import REASONS, Assignment, Refusal, Waiting
from batchsched.cli.printing import add_row, console, table
from batchsched.cli.tables import missing_of, nodes_of
from batchsched.session.refusals.feasibility import (
    GangFeasibility,
    LevelFeasibility,
    PartFeasibility,
    report_feasibility,
)

if TYPE_CHECKING:
    from rich.console import Console

    from batchsched.cli.session import DecidedSession

_MOST_DOMAINS = 8


class State(StrEnum):
    """What became of a gang in the session."""

    PLACED = "Placed"
    WAITING = "Waiting"
    REFUSED = "Refused"
    BOUND = "Bound"
    EMPTY = "Empty"


class Explanation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One PodGroup: what became of it, and what its members find.

    Args:
      pod_group: namespace/name.
      state: what became of it.
      assignments: its pods that are to be bound.
      refusal, waiting: as in the decision, where they apply.
      outlook: what its members find once everything else is placed; None where it has no members.
    """

    pod_group: str
    state: State
    assignments: tuple[Assignment, ...] = ()
    refusal: Refusal | None = None
    waiting: Waiting | None = None
    outlook: GangFeasibility | None = None


def explained(session: "DecidedSession", key: str) -> Explanation:
    """Explain one PodGroup of a session, or a pod alone."""
    decision = session.decision
    view = report_feasibility(session.snapshot, decision, session.profile, key)
    refusal = next((one for one in decision.refusals if one.pod_group == key), None)
    waiting = next((one for one in decision.waiting if one.pod_group == key), None)
    mine = {
        pod.key
        for pod in session.snapshot.pods
        if f"{pod.namespace}/{pod.labels.get(POD_GROUP_LABEL, pod.name)}" == key
    }
    assigned = tuple(one for one in decision.assignments if f"{one.namespace}/{one.pod}" in mine)
    if assigned:
        state = State.PLACED
    elif waiting is not None:
        state = State.WAITING
    elif refusal is not None:
        state = State.REFUSED
    else:
        state = State.BOUND if view is not None and view.bound else State.EMPTY
    return Explanation(
        pod_group=key, state=state, assignments=assigned, refusal=refusal, waiting=waiting, outlook=view
    )


def print_explanation(found: Explanation) -> None:
    """Print an explanation for people."""
    out = console()
    out.print(f"PodGroup {found.pod_group}: {_headline(found)}", style="bold")
    if found.outlook is not None:
        view = found.outlook
        out.print(f"minMember {view.min_member}; {view.bound} members run, {view.pending} wait")
    if found.assignments:
        out.print(f"to be bound: {nodes_of(((one.pod, one.node) for one in found.assignments), most=40)}")
    if found.refusal is not None:
        _print_refusal(found.refusal, out)
    for part in found.outlook.parts if found.outlook else ():
        _print_part(part, out)


def _headline(found: Explanation) -> str:
    match found.state:
        case State.PLACED:
            return f"placed, {len(found.assignments)} pods"
        case State.WAITING if found.waiting is not None:
            return f"held at Permit by {found.waiting.plugin} until {found.waiting.until}"
        case State.REFUSED if found.refusal is not None:
            return f"refused, {found.refusal.reason}"
        case State.BOUND:
            return "nothing of it waits"
        case _:
            return "it has no pods"


def _print_refusal(refusal: Refusal, out: "Console") -> None:
    out.print(f"what binds:   {REASONS.get(refusal.reason, refusal.reason)}")
    out.print(f"in detail:    {refusal.message}")
    if refusal.missing:
        out.print(f"missing:      {missing_of(refusal)}")
    out.print(f"would help:   {refusal.relaxation or 'no small change was found'}")


def _print_part(part: PartFeasibility, out: "Console") -> None:
    each = ", ".join(f"{show(resource, amount)} {resource}" for resource, amount in part.requests.items())
    name = f"subGroup {part.sub_group}: " if part.sub_group else ""
    out.print(f"\n{name}{part.members} members of {each or 'no request'}", style="bold")
    out.print(f"{part.open_nodes} of {part.nodes} nodes are open to one, with room for {part.room}")
    for reason, count in sorted(part.reasons.items(), key=lambda one: -one[1]):
        out.print(f"  {count} nodes: {reason}")
    for level in part.levels:
        _print_level(level, out)


def _print_level(level: LevelFeasibility, out: "Console") -> None:
    made = table("", f"{level.level}", "Nodes", "Open", "Room for")
    for domain in level.domains[:_MOST_DOMAINS]:
        add_row(made, domain.value, str(domain.nodes), str(domain.open_nodes), str(domain.room))
    if len(level.domains) > _MOST_DOMAINS:
        add_row(made, f"and {len(level.domains) - _MOST_DOMAINS} more", "", "", "")
    out.print(made)

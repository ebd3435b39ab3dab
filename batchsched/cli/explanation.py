"""The explanation of one PodGroup, as data and as text."""

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
    """Result of the session for a gang."""

    PLACED = "Placed"
    WAITING = "Waiting"
    REFUSED = "Refused"
    BOUND = "Bound"
    EMPTY = "Empty"


class Explanation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The result of the session for one PodGroup, and the nodes that are open to its pods.

    Args:
      pod_group: namespace/name.
      state: the result for the gang.
      assignments: the pods of the gang that are to be bound.
      refusal, waiting: the entries of the decision; None if the decision has none.
      outlook: open nodes and room after all other placements; None if the gang has no pods.
    """

    pod_group: str
    state: State
    assignments: tuple[Assignment, ...] = ()
    refusal: Refusal | None = None
    waiting: Waiting | None = None
    outlook: GangFeasibility | None = None


def explain_gang(session: "DecidedSession", key: str) -> Explanation:
    """Return the explanation of one PodGroup, or of a pod without a PodGroup."""
    decision = session.decision
    view = report_feasibility(session.snapshot, decision, session.profile, key)
    refusal = next((entry for entry in decision.refusals if entry.pod_group == key), None)
    waiting = next((entry for entry in decision.waiting if entry.pod_group == key), None)
    pod_keys = {
        pod.key
        for pod in session.snapshot.pods
        if f"{pod.namespace}/{pod.labels.get(POD_GROUP_LABEL, pod.name)}" == key
    }
    assigned = tuple(entry for entry in decision.assignments if f"{entry.namespace}/{entry.pod}" in pod_keys)
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


def print_explanation(explanation: Explanation) -> None:
    """Print an explanation as text."""
    out = console()
    out.print(f"PodGroup {explanation.pod_group}: {_headline(explanation)}", style="bold")
    if explanation.outlook is not None:
        view = explanation.outlook
        out.print(f"minMember {view.min_member}; {view.bound} members run, {view.pending} wait")
    if explanation.assignments:
        pairs = ((assignment.pod, assignment.node) for assignment in explanation.assignments)
        out.print(f"to be bound: {nodes_of(pairs, most=40)}")
    if explanation.refusal is not None:
        _print_refusal(explanation.refusal, out)
    for part in explanation.outlook.parts if explanation.outlook else ():
        _print_part(part, out)


def _headline(explanation: Explanation) -> str:
    match explanation.state:
        case State.PLACED:
            return f"placed, {len(explanation.assignments)} pods"
        case State.WAITING if explanation.waiting is not None:
            return f"held at Permit by {explanation.waiting.plugin} until {explanation.waiting.until}"
        case State.REFUSED if explanation.refusal is not None:
            return f"refused, {explanation.refusal.reason}"
        case State.BOUND:
            return "no pod is pending"
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
    out.print(
        f"{part.open_nodes} of {part.nodes} nodes are open to a member, with room for {part.room} members"
    )
    for reason, count in sorted(part.reasons.items(), key=lambda item: -item[1]):
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

"""The gangs that go before a refused one: those that hold what it lacks, and by which right."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.api.decision import Decision, PrecedingGang, Refusal
from batchsched.api.gang import gang_key
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.status import BoolArray
from batchsched.session.explanation.gang_view import GangView
from batchsched.session.queue_report import report_queues

MAX_AHEAD: Final = 10
SHARE_RANKS: Final = {"all": 0, "guarantee": 1, "fair": 2, "borrowing": 3}
SHARE_RIGHTS: Final = {"guarantee": "Guarantee", "fair": "FairShare"}


@dataclass(frozen=True, slots=True)
class TurnPosition:
    """The turn of a pending gang in its session.

    Args:
      place: its position in the order of turns.
      share: its entitlement class, as a queue report names it.
    """

    place: int
    share: str


def list_turns(snapshot: Snapshot, profile: Profile, now: float) -> dict[str, TurnPosition]:
    """Return the turns of all pending gangs that may use their queues, by `namespace/name`."""
    report = report_queues(snapshot, profile, now)
    return {gang.pod_group: TurnPosition(place, gang.share) for place, gang in enumerate(report.waiting)}


def find_preceding_gangs(
    refusal: Refusal, decision: Decision, view: GangView, turns: Mapping[str, TurnPosition], selection: str
) -> tuple[PrecedingGang, ...]:
    """Return the gangs that hold what a refused gang lacks, the largest first.

    Args:
      refusal: of the gang.
      decision: that of the session.
      view: the gang after the decision.
      turns: of the pending gangs.
      selection: how the profile selects gangs.
    """
    tables = view.tables
    column = tables.node_table.column
    lacking = [column[name] for name in refusal.missing if name in column] or np.flatnonzero(
        view.gang.needs
    ).tolist()
    placed = {f"{entry.namespace}/{entry.pod}" for entry in decision.assignments}
    inside = _inside_limits(view) if refusal.reason == "QueueLimit" else None
    selectable_nodes: BoolArray = np.logical_or.reduce(view.selected_nodes & view.tolerated_nodes)
    capacity = np.maximum(1, tables.node_table.allocatable.sum(axis=0))
    held: dict[str, float] = {}
    started: set[str] = set()
    for identity, members in tables.gangs.items():
        if members is view.gang.members:
            continue
        for key, (pod, node) in members.bound.items():
            counts = (
                members.queue_of_pod(pod) in inside
                if inside is not None
                else node >= 0 and selectable_nodes[node]
            )
            if counts:
                requests = tables.request_vectors(pod)[0]
                held[identity] = held.get(identity, 0.0) + float(
                    (requests[lacking] / capacity[lacking]).sum()
                )
                if key in placed:
                    started.add(identity)
    ahead = []
    for identity, amount in sorted(held.items(), key=lambda item: (-item[1], item[0])):
        if amount <= 0:
            continue
        right = _right(view, identity, turns, selection) if identity in started else "Running"
        if right:
            ahead.append(PrecedingGang(pod_group=gang_key(identity), because=right))
    return tuple(ahead[:MAX_AHEAD])


def _inside_limits(view: GangView) -> set[str]:
    """Return the queues with usage that counts against the limits that the gang exceeds."""
    tables = view.tables
    exceeded = {
        view.limits.limits[row].name
        for row in view.limit_rows
        if (view.limits.balance[row] < view.gang.needs).any() or view.limits.gang_balance[row] < 1
    }
    return {
        name
        for name in (*tables.queues.queues, "default")
        if exceeded & set(tables.queues.queue_and_ancestors(name))
    }


def _right(view: GangView, identity: str, turns: Mapping[str, TurnPosition], selection: str) -> str:
    """Return the right by which a gang that was placed goes before the refused one; "" if it has none."""
    unknown = TurnPosition(len(turns), "all")
    own, other = turns.get(view.gang.key, unknown), turns.get(gang_key(identity), unknown)
    own_rank, other_rank = SHARE_RANKS[own.share], SHARE_RANKS[other.share]
    if other_rank != own_rank:
        return SHARE_RIGHTS.get(other.share, "") if other_rank < own_rank else ""
    priority = _priority(view, identity)
    if priority != view.gang.priority:
        return "Priority" if priority > view.gang.priority else ""
    if selection == "ordered":
        return "Order" if other.place < own.place else ""
    return "Weight"


def _priority(view: GangView, identity: str) -> int:
    members = view.tables.gangs[identity]
    return view.tables.running_gang(members).priority

"""Preceding gangs: gangs that hold resources that a refused gang lacks, and why they come before it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, PrecedingGang, Refusal
from batchsched.api.gang import gang_key_from_identity
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.status import BoolArray
from batchsched.session.explanation.gang_view import GangView
from batchsched.session.explanation.protected_gangs import find_protecting_rule
from batchsched.session.queue_report import report_pending_gangs
from batchsched.session.tables.gang import EntitlementClass
from batchsched.session.tables.session_tables import Pause, do_not_pause

MAX_AHEAD: Final = 10
SHARE_RANKS: Final = {entitled.name_in_decision: int(entitled) for entitled in EntitlementClass}
SHARE_RIGHTS: Final = {"guarantee": "Guarantee", "fair": "FairShare"}


@dataclass(frozen=True, slots=True)
class OrderPosition:
    """The position of a pending gang in the gang order of a session, with its entitlement class.

    Args:
      place: its position, from 0.
      share: its entitlement class, as a queue report names it.
    """

    place: int
    share: str


def order_positions_by_gang(
    snapshot: Snapshot, profile: Profile, now: float, pause: Pause = do_not_pause
) -> dict[str, OrderPosition]:
    """Return each pending gang's position in the gang order, by the `namespace/name` of the gang.

    Gangs that may not use their queue are left out.
    """
    gangs = report_pending_gangs(snapshot, profile, now, pause)
    return {gang.pod_group: OrderPosition(place, gang.share) for place, gang in enumerate(gangs)}


def find_preceding_gangs(
    refusal: Refusal,
    decision: Decision,
    view: GangView,
    turns: Mapping[str, OrderPosition],
    profile: Profile,
    now: float,
) -> tuple[PrecedingGang, ...]:
    """Return the gangs that come before a refused gang and hold the resources that it lacks.

    The gang that holds the most of these resources is the first.

    Args:
      refusal: the refusal of the gang.
      decision: the decision of the session.
      view: the gang in the tables after the decision.
      turns: the positions of the pending gangs in the gang order.
      profile: the profile of the session.
      now: seconds since 1970.
    """
    tables = view.tables
    column = tables.node_table.column
    lacking = [column[name] for name in refusal.missing if name in column] or np.flatnonzero(
        view.gang.needs
    ).tolist()
    capacity = np.maximum(1, tables.node_table.allocatable.sum(axis=0))
    pods_by_gang = _pods_in_the_way(view, above_limit=refusal.reason == "QueueLimit")
    held = {
        identity: math.fsum((tables.request_vector(pod)[lacking] / capacity[lacking]).sum() for pod in pods)
        for identity, pods in pods_by_gang.items()
    }
    placed = {entry.pod_key for entry in decision.assignments}
    share = _position_of(view.gang.key, turns).share
    ahead: list[PrecedingGang] = []
    for identity in sorted(held, key=lambda identity: (-held[identity], identity)):
        if len(ahead) == MAX_AHEAD:
            break
        was_started = any(pod.key in placed for pod in pods_by_gang[identity])
        right = _right(view, identity, turns, profile.selection) if was_started else "Running"
        if held[identity] > 0 and right:
            protection = "" if was_started else find_protecting_rule(view, identity, share, profile, now)
            ahead.append(
                PrecedingGang(
                    pod_group=gang_key_from_identity(identity), because=right, protection=protection
                )
            )
    return tuple(ahead)


def _pods_in_the_way(view: GangView, *, above_limit: bool) -> dict[str, list[Pod]]:
    """Return the bound pods that hold what a refused gang may use, by the identity of their gang.

    Args:
      view: the gang after the decision.
      above_limit: the pods are those that count against limits that the gang exceeds, instead of those on nodes that
        it selects and tolerates.
    """
    queues = _queues_inside_limits(view) if above_limit else set()
    selectable_nodes: BoolArray = np.logical_or.reduce(view.node_selector_mask & view.toleration_mask)
    pods_by_gang = {
        identity: [
            pod
            for pod, node in members.bound.values()
            if (members.queue_of_pod(pod) in queues if above_limit else node >= 0 and selectable_nodes[node])
        ]
        for identity, members in view.tables.gangs.items()
        if members is not view.gang.members
    }
    return {identity: pods for identity, pods in pods_by_gang.items() if pods}


def _queues_inside_limits(view: GangView) -> set[str]:
    """Return the queues with usage that counts against the limits that the gang exceeds."""
    tables = view.tables
    exceeded = {
        view.queue_limits.limits[row].name
        for row in view.restricting_limit_indexes
        if (view.queue_limits.remaining[row] < view.gang.needs).any()
        or view.queue_limits.remaining_gangs[row] < 1
    }
    return {
        name
        for name in (*tables.queues.queues, "default")
        if exceeded & set(tables.queues.queue_and_ancestors(name))
    }


def _right(view: GangView, identity: str, turns: Mapping[str, OrderPosition], selection: str) -> str:
    """Return the right by which a gang that was placed goes before the refused one; "" if it has none."""
    own, other = _position_of(view.gang.key, turns), _position_of(gang_key_from_identity(identity), turns)
    own_rank, other_rank = SHARE_RANKS[own.share], SHARE_RANKS[other.share]
    if other_rank != own_rank:
        return SHARE_RIGHTS.get(other.share, "") if other_rank < own_rank else ""
    priority = _priority(view, identity)
    if priority != view.gang.priority:
        return "Priority" if priority > view.gang.priority else ""
    if selection == "ordered":
        return "Order" if other.place < own.place else ""
    return "Weight"


def _position_of(key: str, turns: Mapping[str, OrderPosition]) -> OrderPosition:
    """Return the position of a gang, given its `namespace/name`; the last one if the gang has none."""
    return turns.get(key, OrderPosition(len(turns), "all"))


def _priority(view: GangView, identity: str) -> int:
    members = view.tables.gangs[identity]
    return view.tables.running_gang(members).priority

"""Fair-share order: equal to evaluating every sibling again at each turn, however it is computed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.snapshot import Snapshot
from batchsched.framework.runtime.registry import standard_registry
from batchsched.queues.entitlements import build_sibling_queues
from batchsched.session.gangs import fair_share_order as turns
from batchsched.session.gangs import order as entitled
from batchsched.session.gangs.fair_share_order import (
    FairShareOrder,
    GangPositions,
    QueueUsageAndEntitlements,
    pending_requests_of_gang,
    requests_of_smallest_placement,
)
from batchsched.session.tables.gang import PendingGang
from batchsched.session.tables.session_tables import SessionTables
from tests.session.scenario import cluster, gang, group, nodes, pod, profile, queue, schedule

POLICIES = ["drf", "fifo", "strict-fifo", "dominant-share", "priority", "time-based", "armada"]


def test_a_gang_of_several_classes_requests_all_its_pods_and_needs_its_smallest_ones():
    pods = (pod("small", group="g", gpu=1), pod("large", group="g", gpu=4), pod("other", group="g", gpu=4))
    snapshot = cluster(nodes(2, gpu=5), Snapshot(pods=pods, pod_groups=(group("g", 2),)))
    tables = SessionTables(snapshot, standard_registry().create_pipeline(profile()))
    tables.update_pending_gangs_and_indexes()
    (waiting,) = [tables.pending_gang(members) for members in tables.gangs.values()]
    gpus = tables.node_table.column["nvidia.com/gpu"]
    assert int(pending_requests_of_gang(waiting)[gpus]) == 9
    assert int(requests_of_smallest_placement(waiting)[gpus]) == 5


@st.composite
def crowds(draw: st.DrawFn) -> Any:
    """A tree of up to five queues, and up to a dozen gangs in them."""
    names = [f"q{number}" for number in range(draw(st.integers(2, 5)))]
    queues = []
    for number, name in enumerate(names):
        spec: dict[str, Any] = {"weight": float(draw(st.integers(0, 3))), "priority": draw(st.integers(0, 1))}
        if number and draw(st.booleans()):
            spec["parent"] = names[draw(st.integers(0, number - 1))]
        if draw(st.booleans()):
            spec["guarantee"] = {"nvidia.com/gpu": str(draw(st.integers(0, 5)))}
        if draw(st.booleans()):
            spec["policy"] = {"name": draw(st.sampled_from(POLICIES))}
        queues.append(queue(name, **spec))
    gangs = [
        gang(f"g{number}", draw(st.integers(1, 5)), queue=draw(st.sampled_from(names)))
        for number in range(draw(st.integers(2, 12)))
    ]
    return cluster(nodes(2, gpu=5), *gangs, queues=tuple(queues))


def evaluated_each_turn(
    standing: QueueUsageAndEntitlements, gangs: list[PendingGang], orders: GangPositions
) -> list[str]:
    """The definition: at every turn, from the root down, the first child by share, priority, key and gang."""
    shares, usage = standing.shares, standing.shares.usage.copy()
    lines: dict[int, list[tuple[float, PendingGang]]] = {}
    for at, one in enumerate(gangs):
        row = shares.own_gangs_row(one.queue)
        place = float(orders.positions_under_policy(standing.policies[row].gangs)[at])
        lines[row] = sorted([*lines.get(row, []), (place, one)], key=lambda pair: pair[0])
    spans = shares.child_row_ranges().tolist()

    def following(row: int) -> tuple[float, PendingGang, int] | None:
        begin, end = spans[row]
        if begin == end:
            return (*lines[row][0], row) if lines.get(row) else None
        below = [following(child) for child in range(begin, end)]
        waiting = [at for at, one in enumerate(below) if one is not None]
        if not waiting:
            return None
        nothing = np.zeros(usage.shape[1], np.int64)
        asked = np.array(
            [nothing if one is None else requests_of_smallest_placement(one[1]) for one in below]
        )
        head = np.array([np.inf if one is None else one[0] for one in below])
        policy = standing.policies[row]
        siblings = build_sibling_queues(shares.with_usage(usage), standing.entitled, row, head)
        keys = policy.key(siblings, asked).reshape(len(below), -1)

        def rank(at: int) -> Any:
            if policy.strict:
                return (head[at], at)
            guarantee, fair = siblings.guarantee[at], siblings.fair[at]
            after, some = siblings.usage[at] + asked[at], asked[at] > 0
            covered = some & (guarantee > 0)
            inside = covered.any() and (after <= guarantee)[covered].all()
            stage = 0 if inside else 1 if (after <= fair)[some].all() else 2
            return (stage, -siblings.priority[at], *keys[at], head[at], at)

        return below[min(waiting, key=rank)]

    found = []
    while (turn := following(0)) is not None:
        _, one, leaf = turn
        lines[leaf].pop(0)
        usage[[*shares.row_and_ancestors_without_root(leaf), 0]] += pending_requests_of_gang(one)
        found.append(one.key)
    return found


@pytest.mark.parametrize("at_once", [1, 64])
@given(crowds())
def test_order_equals_that_of_evaluating_all_siblings_at_every_turn(at_once, snapshot):
    seen: list[tuple[list[str], list[str]]] = []

    def both(
        standing: QueueUsageAndEntitlements,
        gangs: list[PendingGang],
        orders: GangPositions,
        resting: frozenset[str],
    ) -> FairShareOrder:
        assert not resting
        order = [one.key for one in FairShareOrder(standing, gangs, orders)]
        seen.append((order, evaluated_each_turn(standing, list(gangs), orders)))
        return FairShareOrder(standing, gangs, orders, resting)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "_MAX_TURNS_AHEAD", at_once)
        patch.setattr(entitled, "FairShareOrder", both)
        schedule(snapshot, profile(selection="ordered"))
    assert seen
    for order, expected in seen:
        assert order == expected

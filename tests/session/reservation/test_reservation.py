"""The head's reservation, and who may start before it."""

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.session.reservations import reserve
from tests.session.clusters import on
from tests.session.scenario import (
    GPU,
    NOW,
    cluster,
    gang,
    group,
    node,
    nodes,
    placed,
    pod,
    profile,
    reasons,
    schedule,
    topology,
)
from tests.session.scenes import inside

EASY = profile(selection="ordered", policy={"name": "fcfs"}, backfill="easy")
BEGUN = NOW - 60
"""When pods that `on` binds have begun."""


def running(name: str, seconds: int | None, *places: str) -> Snapshot:
    """One-GPU pods on nodes, expected to run for so long since they began."""
    pods: tuple[Pod, ...] = tuple(
        on(pod(f"{name}-{at}", group=name, gpu=1), one) for at, one in enumerate(places)
    )
    return Snapshot(pods=pods, pod_groups=(group(name, len(pods), expectedRuntimeSeconds=seconds),))


def shadow(snapshot: Snapshot, key: str):
    there = inside(snapshot, EASY)
    return there, reserve(there.context, there.gang(key), (), NOW)


def test_head_starts_at_the_first_end_that_lets_it_in():
    snapshot = cluster(
        nodes(3, gpu=1),
        running("a", 100, "n0"),
        running("b", 300, "n1"),
        running("c", 200, "n2"),
        gang("head", 2),
    )
    _, found = shadow(snapshot, "team/head")
    assert found is not None
    assert found.start == BEGUN + 200


def test_head_that_lacks_nothing_but_an_unending_gang_has_no_reservation():
    snapshot = cluster(nodes(2, gpu=1), running("a", None, "n0"), running("b", 100, "n1"), gang("head", 2))
    _, found = shadow(snapshot, "team/head")
    assert found is None


def test_ends_that_are_overdue_count_as_now():
    snapshot = cluster(nodes(1, gpu=1), running("late", 10, "n0"), gang("head", 1))
    _, found = shadow(snapshot, "team/head")
    assert found is not None
    assert found.start == NOW


def test_all_that_end_with_the_reserved_start_leave_their_room_to_others():
    snapshot = cluster(nodes(2, gpu=1), running("a", 100, "n0"), running("b", 100, "n1"), gang("head", 1))
    there, found = shadow(snapshot, "team/head")
    assert found is not None
    assert found.free[:, there.context.tables.node_table.column[GPU]].tolist() == [1, 1]


def test_longer_gang_may_take_what_the_head_does_not_need_and_no_more():
    snapshot = cluster(nodes(3, gpu=1), running("a", 100, "n0"), gang("head", 3), gang("x", 1))
    there, found = shadow(snapshot, "team/head")
    assert found is not None
    one = there.gang("team/x").parts[0].pod_class.requests[np.newaxis]
    assert not found.take(np.array([1], np.int32), one)
    snapshot = cluster(nodes(4, gpu=1), running("a", 100, "n0"), gang("head", 3), gang("x", 1))
    there, found = shadow(snapshot, "team/head")
    assert found is not None
    one = there.gang("team/x").parts[0].pod_class.requests[np.newaxis]
    assert found.take(np.array([1], np.int32), one)
    assert not found.take(np.array([2], np.int32), one)


def test_reservation_keeps_to_the_heads_required_level():
    racks = [node(f"n{at}", {"rack": f"r{at // 2}"}, gpu=1) for at in range(4)]
    snapshot = cluster(
        racks,
        running("a", 100, "n0"),
        running("b", 200, "n2"),
        running("c", 300, "n3"),
        gang("head", 2, topology={"required": "rack"}),
        topologies=(topology("rack"),),
    )
    _, found = shadow(snapshot, "team/head")
    assert found is not None
    assert found.start == BEGUN + 100


def test_gang_that_would_delay_the_head_is_refused_and_one_that_ends_in_time_starts():
    snapshot = cluster(
        nodes(3, gpu=1),
        running("a", 100, "n0"),
        gang("head", 3, age=50),
        gang("long", 1, age=40, expectedRuntimeSeconds=41),
        gang("unknown", 1, age=30),
        gang("short", 1, age=20, expectedRuntimeSeconds=40),
    )
    decision = schedule(snapshot, EASY)
    assert set(placed(decision)) == {"short-0"}
    assert reasons(decision)["team/long"] == reasons(decision)["team/unknown"] == "OutOfTurn"
    assert [one.pod_group for one in decision.reservations] == ["team/head"]


def test_surplus_that_finds_no_room_reserves_nothing_and_blocks_nobody():
    elastic = tuple(on(pod(f"e-{at}", group="e", age=90, gpu=1), f"n{at}") for at in range(2))
    more = Snapshot(
        pods=(*elastic, pod("e-2", group="e", age=90, gpu=2)),
        pod_groups=(group("e", 2, age=90, expectedRuntimeSeconds=100),),
    )
    decision = schedule(cluster(nodes(3, gpu=1), more, gang("next", 1)), EASY)
    assert set(placed(decision)) == {"next-0"}
    assert decision.reservations == ()
    assert reasons(decision) == {}


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    ends=st.lists(st.integers(61, 999), min_size=1, max_size=6),
)
def test_on_one_slot_nodes_the_start_is_that_of_easy(sizes: list[int], ends: list[int]):
    """Ends in order release slots until the head fits: the textbook's shadow time and extra nodes."""
    jobs = list(zip(sizes, ends, strict=False))
    slots = sum(size for size, _ in jobs) + 1
    head = slots - 1
    free = iter(range(1, slots))
    parts = [
        running(f"j{at}", end, *(f"n{next(free)}" for _ in range(size)))
        for at, (size, end) in enumerate(jobs)
    ]
    there, found = shadow(cluster(nodes(slots, gpu=1), *parts, gang("head", head)), "team/head")
    available, start = 1, 0
    for end in sorted({end for _, end in jobs}):
        if available >= head:
            break
        start, available = end, available + sum(size for size, other in jobs if other == end)
    if available >= head and start:
        assert found is not None
        assert found.start == BEGUN + start
        column = there.context.tables.node_table.column[GPU]
        assert int(np.maximum(0, found.free[:, column]).sum()) == available


def test_gang_whose_start_nobody_knows_never_ends():
    late = msgspec.structs.replace(on(pod("r", group="run", gpu=1), "n0"), status=pod("x").status)
    snapshot = cluster(
        nodes(1, gpu=1),
        Snapshot(pods=(late,), pod_groups=(group("run", 1, expectedRuntimeSeconds=100),)),
        gang("head", 1),
    )
    _, found = shadow(snapshot, "team/head")
    assert found is None


def test_gang_that_outlasts_the_reservation_takes_nodes_that_the_head_leaves():
    head = Snapshot(
        pods=tuple(
            pod(f"head-{at}", group="head", age=50, spec={"node_selector": {"type": "a"}}, gpu=4)
            for at in range(2)
        ),
        pod_groups=(group("head", 2, age=50, expectedRuntimeSeconds=100),),
    )
    snapshot = cluster(
        (node("n0", {"type": "a"}, gpu=4), node("n1", {"type": "a"}, gpu=4), node("n2", gpu=8)),
        running("run", 100, *["n0"] * 4),
        head,
        gang("long", 1, age=40, requests={"gpu": 3}, expectedRuntimeSeconds=10_000),
    )
    decision = schedule(snapshot, EASY)
    assert [one.pod_group for one in decision.reservations] == ["team/head"]
    assert placed(decision) == {"long-0": "n2"}

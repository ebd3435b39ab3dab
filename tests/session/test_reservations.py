"""Reservations: the earliest start of the head in both selections, and starts that later sessions keep."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.pod import Pod, PodStatus
from batchsched.api.decision import Reservation
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.reservations import ReservationRules, ReservedHead, compute_head_reservation
from batchsched.session.session import Session
from tests.session.clusters import on
from tests.session.preemption.running import evicted, wanting
from tests.session.preemption.running import running as running_gang
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
    queue,
    reasons,
    schedule,
    topology,
)
from tests.session.scenes import inside

EASY = profile(selection="ordered", policy={"name": "fcfs"}, backfill="easy")
BEGUN = NOW - 60
"""When pods that `on` binds have begun."""


def running(name: str, seconds: int | None, *places: str) -> Snapshot:
    """Bound one-GPU pods of a gang with an expected runtime."""
    pods: tuple[Pod, ...] = tuple(
        on(pod(f"{name}-{at}", group=name, gpu=1), one) for at, one in enumerate(places)
    )
    return Snapshot(pods=pods, pod_groups=(group(name, len(pods), expectedRuntimeSeconds=seconds),))


def shadow(snapshot: Snapshot, key: str):
    there = inside(snapshot, EASY)
    return there, compute_head_reservation(there.inputs, there.gang(key), (), NOW)


def test_reserved_start_is_the_first_end_after_which_the_head_fits():
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


def test_head_behind_a_gang_without_an_expected_runtime_has_no_reservation():
    snapshot = cluster(nodes(2, gpu=1), running("a", None, "n0"), running("b", 100, "n1"), gang("head", 2))
    _, found = shadow(snapshot, "team/head")
    assert found is None


def test_overdue_ends_count_as_now():
    snapshot = cluster(nodes(1, gpu=1), running("late", 10, "n0"), gang("head", 1))
    _, found = shadow(snapshot, "team/head")
    assert found is not None
    assert found.start == NOW


def not_started(snapshot: Snapshot) -> Snapshot:
    """The same pods on their nodes, before a kubelet has accepted any of them."""
    pods = (msgspec.structs.replace(one, status=PodStatus(phase="Pending")) for one in snapshot.pods)
    return replace(snapshot, pods=tuple(pods))


@pytest.mark.parametrize("selection", ["ordered", "weight"])
def test_gang_without_a_start_counts_as_started_at_the_time_of_each_session(selection: str):
    snapshot = cluster(
        nodes(2, gpu=1),
        not_started(running("a", 600, "n0")),
        gang("head", 2, age=50),
        gang("long", 1, expectedRuntimeSeconds=36_000),
    )
    session = Session(snapshot, profile(selection=selection, policy={"name": "fcfs"}, backfill="easy"))
    for now in (NOW, NOW + 30):
        decision = session.decide(now, 0)
        assert placed(decision) == {}
        assert decision.reservations == (
            Reservation(pod_group="team/head", start=format_timestamp(now + 600)),
        )


def test_gang_with_one_started_pod_ends_after_its_expected_runtime():
    begun, fresh = running("a", 600, "n0", "n1").pods
    late = not_started(Snapshot(pods=(fresh,))).pods
    one_gang = replace(running("a", 600, "n0", "n1"), pods=(begun, *late))
    _, found = shadow(cluster(nodes(2, gpu=1), one_gang, gang("head", 1)), "team/head")
    assert found is not None
    assert found.start == BEGUN + 600


def test_room_of_all_gangs_that_end_at_the_reserved_start_is_free():
    snapshot = cluster(nodes(2, gpu=1), running("a", 100, "n0"), running("b", 100, "n1"), gang("head", 1))
    there, found = shadow(snapshot, "team/head")
    assert found is not None
    assert found.free[:, there.inputs.tables.node_table.column[GPU]].tolist() == [1, 1]


def test_longer_gang_may_use_only_what_the_head_does_not_need():
    snapshot = cluster(nodes(3, gpu=1), running("a", 100, "n0"), gang("head", 3), gang("x", 1))
    there, found = shadow(snapshot, "team/head")
    assert found is not None
    one = there.gang("team/x").parts[0].pod_class.requests[np.newaxis]
    assert not found.deduct_if_head_still_fits(np.array([1], np.int32), one)
    snapshot = cluster(nodes(4, gpu=1), running("a", 100, "n0"), gang("head", 3), gang("x", 1))
    there, found = shadow(snapshot, "team/head")
    assert found is not None
    one = there.gang("team/x").parts[0].pod_class.requests[np.newaxis]
    assert found.deduct_if_head_still_fits(np.array([1], np.int32), one)
    assert not found.deduct_if_head_still_fits(np.array([2], np.int32), one)


def test_reservation_respects_the_required_level_of_the_head():
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


def test_surplus_without_room_reserves_nothing_and_blocks_no_gang():
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
def test_start_on_nodes_of_one_slot_equals_that_of_easy_backfilling(sizes: list[int], ends: list[int]):
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
        column = there.inputs.tables.node_table.column[GPU]
        assert int(np.maximum(0, found.free[:, column]).sum()) == available


def test_gang_that_outlasts_the_reservation_uses_nodes_that_the_head_does_not():
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


SELECTIONS = pytest.mark.parametrize("selection", ["ordered", "weight"])
START = "2023-11-14T22:13:00Z"


def kept(selection: str, **more):
    return profile(selection=selection, policy={"name": "sjf"}, backfill="kept", **more)


def promised(*names: str) -> tuple[Reservation, ...]:
    return tuple(Reservation(pod_group=f"team/{name}", start=START) for name in names)


def two_heads(**head) -> Snapshot:
    """An older gang, and a shorter one that arrived later; both fit from the same moment on."""
    stated = {"age": 50, "expectedRuntimeSeconds": 1000} | head
    return cluster(
        nodes(3, gpu=1),
        running("a", 500, "n0"),
        gang("head", 3, **stated),
        gang("later", 3, age=10, expectedRuntimeSeconds=100),
    )


@SELECTIONS
def test_promised_start_is_kept_against_shorter_gangs_that_arrive_later(selection: str):
    snapshot = replace(two_heads(), reservations=promised("head"))
    decision = schedule(snapshot, kept(selection))
    assert [one.pod_group for one in decision.reservations] == ["team/head"]
    easy = schedule(snapshot, profile(selection=selection, policy={"name": "sjf"}, backfill="easy"))
    assert [one.pod_group for one in easy.reservations] == ["team/later"]


@SELECTIONS
def test_head_is_promised_a_start_when_its_slowdown_reaches_promise_slowdown(selection: str):
    assert schedule(two_heads(), kept(selection)).reservations == ()
    for slowdown, told in ((1.1, ["team/later"]), (1.11, [])):
        decision = schedule(two_heads(), kept(selection, promise_slowdown=slowdown))
        assert [one.pod_group for one in decision.reservations] == told


def test_unstated_runtime_counts_as_one_hour_for_promise_slowdown():
    decision = schedule(
        cluster(nodes(2, gpu=1), running("a", 500, "n0"), gang("head", 2, age=3600)),
        kept("ordered", promise_slowdown=2),
    )
    assert [one.pod_group for one in decision.reservations] == ["team/head"]


@SELECTIONS
def test_promise_does_not_bind_gangs_of_higher_priority(selection: str):
    urgent = wanting("urgent", 3, priority=10, expectedRuntimeSeconds=100)
    snapshot = cluster(
        nodes(3, gpu=1),
        running_gang("a", ["n0"], started=60, priority=10, expectedRuntimeSeconds=500),
        gang("head", 3, age=50, expectedRuntimeSeconds=10),
        urgent,
        reservations=promised("head"),
    )
    settings = kept(selection, promise_slowdown=1)
    settings = settings.model_copy(update={"policy": profile(policy={"name": "priority"}).policy})
    decision = schedule(snapshot, settings)
    assert [one.pod_group for one in decision.reservations] == ["team/urgent"]


def test_promised_gang_starts_without_the_headroom_of_the_policy():
    snapshot = cluster(
        nodes(4, gpu=1), running("a", 9999, "n0", "n1"), gang("head", 2, age=50, expectedRuntimeSeconds=9000)
    )
    settings = profile(
        selection="ordered", policy={"name": "headroom", "args": {"share": 0.5}}, backfill="kept"
    )
    assert reasons(schedule(snapshot, settings)) == {"team/head": "OutOfTurn"}
    decision = schedule(replace(snapshot, reservations=promised("head")), settings)
    assert set(placed(decision)) == {"head-0", "head-1"}


def test_promise_does_not_take_the_turn_of_another_queue():
    """Queue b is below its guarantee: its gang is next, whatever start was promised to the gang of queue a."""
    snapshot = cluster(
        nodes(3, gpu=1),
        running("r", 500, "n0"),
        gang("head", 3, age=50, queue="a", expectedRuntimeSeconds=1000),
        gang("later", 3, age=10, queue="b", expectedRuntimeSeconds=100),
        queues=(queue("a"), queue("b", guarantee={"nvidia.com/gpu": "3"})),
        reservations=promised("head"),
    )
    no_evictions = {"postFilter": {"disabled": [{"name": "*"}]}}
    decision = schedule(snapshot, kept("ordered", promise_slowdown=1, plugins=no_evictions))
    assert [one.pod_group for one in decision.reservations] == ["team/later"]


@SELECTIONS
def test_promise_to_a_deleted_gang_delays_no_other_gang(selection: str):
    snapshot = cluster(nodes(1, gpu=1), gang("x", 1), reservations=promised("gone"))
    assert set(placed(schedule(snapshot, kept(selection)))) == {"x-0"}


WEIGHT_EASY = profile(backfill="easy")


def behind(count: int, *others: Snapshot) -> Snapshot:
    """A head of three on nodes of which all but two are taken for 40 seconds, and gangs behind it."""
    taken = [f"n{at}" for at in range(count - 2)]
    return cluster(nodes(count, gpu=1), running("a", 100, *taken), gang("head", 3, age=50), *others)


def test_gang_that_outlasts_the_start_waits_and_one_that_ends_in_time_does_not():
    snapshot = behind(
        3,
        gang("long", 1, age=40, expectedRuntimeSeconds=41),
        gang("unknown", 1, age=30),
        gang("short", 1, age=20, expectedRuntimeSeconds=40),
    )
    decision = schedule(snapshot, WEIGHT_EASY)
    assert set(placed(decision)) == {"short-0"}
    assert [one.pod_group for one in decision.reservations] == ["team/head"]
    assert reasons(decision)["team/long"] == reasons(decision)["team/unknown"] == "OutOfTurn"
    assert len(placed(schedule(snapshot, profile()))) == 2


def test_gangs_behind_the_head_share_the_room_that_it_leaves():
    decision = schedule(behind(4, gang("long", 1), gang("other", 1)), WEIGHT_EASY)
    assert len(decision.assignments) == 1


def test_gang_of_higher_priority_starts_although_it_delays_the_head():
    decision = schedule(behind(3, wanting("urgent", 2)), WEIGHT_EASY)
    assert set(placed(decision)) == {"urgent-0", "urgent-1"}
    assert decision.reservations == ()  # the urgent gang has no known end


def test_surplus_of_a_running_gang_does_not_delay_the_head():
    elastic = running_gang("elastic", ["n0"], started=60, minimum=1, expectedRuntimeSeconds=1000)
    more = gang("elastic", 2, 1)
    snapshot = cluster(
        nodes(4, gpu=1),
        elastic,
        Snapshot(pods=more.pods[1:]),
        running("a", 100, "n1"),
        gang("head", 3, age=50),
    )
    assert len(schedule(snapshot, profile()).assignments) == 1
    assert schedule(snapshot, WEIGHT_EASY).assignments == ()


def test_gang_that_fits_now_or_never_is_not_the_head():
    snapshot = cluster(
        nodes(3, gpu=1), running("a", 100, "n0"), gang("fits", 2, age=90), gang("never", 4, age=80)
    )
    there = inside(snapshot, WEIGHT_EASY)
    gangs = [there.gang("team/fits"), there.gang("team/never")]
    assert ReservedHead.find_head(there.inputs, gangs, (), ReservationRules(NOW)) is None


def test_head_starts_at_its_reserved_time_before_heavier_gangs():
    told = (Reservation(pod_group="team/head", start="2023-11-14T22:13:20Z"),)
    snapshot = cluster(nodes(4, gpu=1), gang("head", 3, age=50), gang("heavy", 4))
    assert len(placed(schedule(snapshot, profile()))) == 4
    assert len(placed(schedule(replace(snapshot, reservations=told), WEIGHT_EASY))) == 3


def test_head_behind_a_gang_without_a_known_end_reserves_nothing():
    snapshot = cluster(nodes(2, gpu=1), running("a", None, "n0"), gang("head", 2, age=50), gang("x", 1))
    decision = schedule(snapshot, WEIGHT_EASY)
    assert set(placed(decision)) == {"x-0"}
    assert decision.reservations == ()


def test_room_is_reserved_only_on_nodes_that_the_head_may_use():
    wide = (node("n0", gpu=8), node("n1", gpu=8), node("n2", gpu=4))
    snapshot = cluster(
        wide,
        running("a", 100, *["n0"] * 8),
        gang("head", 2, age=50, requests={"gpu": 8}),
        gang("long", 2, requests={"gpu": 4}),
        gang("small", 1, requests={"gpu": 4}),
    )
    decision = schedule(snapshot, WEIGHT_EASY)
    assert placed(decision) == {"small-0": "n2"}
    assert reasons(decision)["team/long"] == "OutOfTurn"


def test_head_that_preempts_has_no_reservation():
    snapshot = cluster(
        nodes(1, gpu=1), running_gang("low", ["n0"], expectedRuntimeSeconds=7200), wanting("head", 1)
    )
    decision = schedule(snapshot, WEIGHT_EASY)
    assert evicted(decision) == {"low-0": ("team/head", "Preempted")}
    assert decision.reservations == ()


def test_gang_behind_the_head_evicts_no_pod_from_nodes_that_the_head_needs():
    """The head needs both nodes of its type; a gang behind it may use only the third node."""
    wide = (node("n0", {"type": "a"}, gpu=1), node("n1", {"type": "a"}, gpu=1), node("n2", gpu=1))
    first = running_gang("first", ["n0"], started=60, priority=10, expectedRuntimeSeconds=100)
    behind = wanting("long", 1, age=50, expectedRuntimeSeconds=5000)
    for place, victims in (("n1", set()), ("n2", {"low-0"})):
        low = running_gang("low", [place], started=60, expectedRuntimeSeconds=100)
        place_of_other, runs = ("n2", 10**6) if place == "n1" else ("n1", 90)
        taken = running_gang("other", [place_of_other], started=60, priority=10, expectedRuntimeSeconds=runs)
        snapshot = cluster(wide, first, low, taken, typed(wanting("head", 2, age=90)), behind)
        assert evicted(schedule(snapshot, profile())).keys() == {"low-0"}
        decision = schedule(snapshot, WEIGHT_EASY)
        assert [one.pod_group for one in decision.reservations] == ["team/head"]
        assert evicted(decision).keys() == victims


def typed(snapshot: Snapshot) -> Snapshot:
    """The same pods, for nodes of type a only."""
    specs = [msgspec.structs.replace(one.spec, node_selector={"type": "a"}) for one in snapshot.pods]
    pods = (msgspec.structs.replace(one, spec=spec) for one, spec in zip(snapshot.pods, specs, strict=True))
    return replace(snapshot, pods=tuple(pods))


WEIGHT_KEPT = profile(backfill="kept", promiseSlowdown=1)


@pytest.mark.parametrize("settings", [WEIGHT_EASY, WEIGHT_KEPT, EASY], ids=["easy", "kept", "ordered"])
def test_gang_ahead_of_the_head_starts_on_nodes_that_are_free_now(settings: Profile):
    """The head behind it needs capacity that other gangs release before the gang ahead ends."""
    snapshot = cluster(
        nodes(3, gpu=4),
        running("a", 300, *["n1"] * 4, *["n2"] * 4),
        gang("first", 1, age=50, requests={"gpu": 4}, expectedRuntimeSeconds=500),
        gang("second", 3, age=40, requests={"gpu": 2}, expectedRuntimeSeconds=3000),
    )
    decision = schedule(snapshot, settings)
    assert placed(decision) == {"first-0": "n0"}
    assert [(one.pod_group, one.start) for one in decision.reservations] == [
        ("team/second", format_timestamp(BEGUN + 300))
    ]


@pytest.mark.parametrize("settings", [WEIGHT_EASY, EASY], ids=["weight", "ordered"])
def test_gang_behind_the_head_leaves_room_for_the_head_next_to_the_gang_ahead(settings: Profile):
    snapshot = cluster(
        nodes(5, gpu=1),
        running("a", 300, "n0", "n1"),
        gang("first", 1, age=50, expectedRuntimeSeconds=5000),
        gang("head", 4, age=40, expectedRuntimeSeconds=3000),
        gang("long", 1, age=30, expectedRuntimeSeconds=5000),
    )
    decision = schedule(snapshot, settings)
    assert set(placed(decision)) == {"first-0"}
    assert reasons(decision)["team/long"] == "OutOfTurn"


def test_gangs_ahead_that_a_queue_limit_holds_back_take_no_room_from_the_head():
    limited = tuple(
        gang(f"ahead-{at}", 1, age=90 - at, queue="q", expectedRuntimeSeconds=5000) for at in range(3)
    )
    snapshot = cluster(
        nodes(6, gpu=1),
        running("a", 300, "n0", "n1"),
        *limited,
        gang("head", 5, age=40, expectedRuntimeSeconds=3000),
        queues=(queue("q", limit={GPU: "1"}),),
    )
    decision = schedule(snapshot, WEIGHT_EASY)
    assert len(placed(decision)) == 1
    assert [(one.pod_group, one.start) for one in decision.reservations] == [
        ("team/head", format_timestamp(BEGUN + 300))
    ]


@pytest.mark.parametrize("settings", [WEIGHT_EASY, WEIGHT_KEPT], ids=["easy", "kept"])
@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([None, 20, 100, 400])), min_size=2, max_size=5
    ),
    ends=st.lists(st.integers(61, 500), min_size=1, max_size=4),
)
def test_no_gang_is_refused_for_a_reservation_of_a_gang_behind_it(
    settings: Profile, sizes: list[tuple[int, int | None]], ends: list[int]
):
    busy = [running(f"run{at}", end, f"n{at}") for at, end in enumerate(ends)]
    line = [
        gang(f"g{at}", size, age=50 - at, expectedRuntimeSeconds=seconds)
        for at, (size, seconds) in enumerate(sizes)
    ]
    decision = schedule(cluster(nodes(5, gpu=1), *busy, *line), settings)
    for refusal in decision.refusals:
        if refusal.reason == "OutOfTurn":
            (head,) = [one.pod_group for one in decision.reservations]
            assert int(refusal.pod_group[-1]) > int(head[-1])


def test_room_that_a_gang_ahead_of_the_head_clears_is_no_longer_spare():
    """The head needs three nodes; it may use n2 until `ahead`, which no known end lets in, clears that node."""
    there = (*nodes(2, gpu=1), node("n2", gpu=2), node("n3", gpu=1))
    snapshot = cluster(
        there,
        running_gang("first", ["n0", "n1"], started=60, priority=10, expectedRuntimeSeconds=100),
        running_gang("half", ["n2"], started=60, expectedRuntimeSeconds=100),
        running_gang("other-half", ["n2"], started=60),
        running_gang("low", ["n3"], started=60, expectedRuntimeSeconds=100),
        wanting("head", 3, age=90),
        wanting("ahead", 1, priority=20, age=40, requests={"gpu": 2}, expectedRuntimeSeconds=5000),
        wanting("long", 1, age=50, expectedRuntimeSeconds=5000),
    )
    decision = schedule(snapshot, WEIGHT_EASY)
    assert [one.pod_group for one in decision.reservations] == ["team/head"]
    assert {for_ for for_, _ in evicted(decision).values()} == {"team/ahead"}

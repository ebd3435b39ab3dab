"""The head's start under selection by weight: who may take room before it, and who may not."""

from dataclasses import replace

import msgspec

from batchsched.api.decision import Reservation
from batchsched.api.snapshot import Snapshot
from batchsched.session.reservations import ReservedHead, StickyReservations
from tests.session.preemption.running import evicted, running, wanting
from tests.session.reservation.test_reservation import running as one_by_one
from tests.session.scenario import NOW, cluster, gang, node, nodes, placed, profile, reasons, schedule
from tests.session.scenes import inside

EASY = profile(backfill="easy")


def behind(count: int, *others: Snapshot) -> Snapshot:
    """A head of three on nodes of which all but two are taken for 40 seconds, and gangs behind it."""
    taken = [f"n{at}" for at in range(count - 2)]
    return cluster(nodes(count, gpu=1), one_by_one("a", 100, *taken), gang("head", 3, age=50), *others)


def test_gang_that_outlasts_the_start_waits_and_one_that_ends_in_time_does_not():
    snapshot = behind(
        3,
        gang("long", 1, age=40, expectedRuntimeSeconds=41),
        gang("unknown", 1, age=30),
        gang("short", 1, age=20, expectedRuntimeSeconds=40),
    )
    decision = schedule(snapshot, EASY)
    assert set(placed(decision)) == {"short-0"}
    assert [one.pod_group for one in decision.reservations] == ["team/head"]
    assert reasons(decision)["team/long"] == reasons(decision)["team/unknown"] == "OutOfTurn"
    assert len(placed(schedule(snapshot, profile()))) == 2


def test_what_the_head_leaves_is_for_all():
    decision = schedule(behind(4, gang("long", 1), gang("other", 1)), EASY)
    assert len(decision.assignments) == 1


def test_higher_priority_owes_the_head_nothing():
    decision = schedule(behind(3, wanting("urgent", 2)), EASY)
    assert set(placed(decision)) == {"urgent-0", "urgent-1"}
    assert decision.reservations == ()  # nobody knows when the urgent one ends


def test_surplus_of_a_running_gang_takes_nothing_from_the_head():
    elastic = running("elastic", ["n0"], started=60, minimum=1, expectedRuntimeSeconds=1000)
    more = gang("elastic", 2, 1)
    snapshot = cluster(
        nodes(4, gpu=1),
        elastic,
        Snapshot(pods=more.pods[1:]),
        one_by_one("a", 100, "n1"),
        gang("head", 3, age=50),
    )
    assert len(schedule(snapshot, profile()).assignments) == 1
    assert schedule(snapshot, EASY).assignments == ()


def test_gang_that_fits_or_never_will_is_no_head():
    snapshot = cluster(
        nodes(3, gpu=1), one_by_one("a", 100, "n0"), gang("fits", 2, age=90), gang("never", 4, age=80)
    )
    there = inside(snapshot, EASY)
    gangs = [there.gang("team/fits"), there.gang("team/never")]
    assert ReservedHead.choose(there.context, gangs, (), StickyReservations(NOW)) is None


def test_head_whose_time_has_come_starts_whatever_the_others_weigh():
    told = (Reservation(pod_group="team/head", start="2023-11-14T22:13:20Z"),)
    snapshot = cluster(nodes(4, gpu=1), gang("head", 3, age=50), gang("heavy", 4))
    assert len(placed(schedule(snapshot, profile()))) == 4
    assert len(placed(schedule(replace(snapshot, reservations=told), EASY))) == 3


def test_no_known_end_keeps_nothing():
    snapshot = cluster(nodes(2, gpu=1), one_by_one("a", None, "n0"), gang("head", 2, age=50), gang("x", 1))
    decision = schedule(snapshot, EASY)
    assert set(placed(decision)) == {"x-0"}
    assert decision.reservations == ()


def test_room_is_kept_on_the_nodes_that_the_head_may_use_alone():
    wide = (node("n0", gpu=8), node("n1", gpu=8), node("n2", gpu=4))
    snapshot = cluster(
        wide,
        one_by_one("a", 100, *["n0"] * 8),
        gang("head", 2, age=50, requests={"gpu": 8}),
        gang("long", 2, requests={"gpu": 4}),
        gang("small", 1, requests={"gpu": 4}),
    )
    decision = schedule(snapshot, EASY)
    assert placed(decision) == {"small-0": "n2"}
    assert reasons(decision)["team/long"] == "OutOfTurn"


def test_head_for_which_others_leave_needs_no_reservation():
    snapshot = cluster(
        nodes(1, gpu=1), running("low", ["n0"], expectedRuntimeSeconds=7200), wanting("head", 1)
    )
    decision = schedule(snapshot, EASY)
    assert evicted(decision) == {"low-0": ("team/head", "Preempted")}
    assert decision.reservations == ()


def test_gang_makes_nobody_leave_from_room_that_the_head_gets_next():
    """The head needs both nodes of its type; whoever is behind it may have the third, and not one of these."""
    wide = (node("n0", {"type": "a"}, gpu=1), node("n1", {"type": "a"}, gpu=1), node("n2", gpu=1))
    first = running("first", ["n0"], started=60, priority=10, expectedRuntimeSeconds=100)
    behind = wanting("long", 1, age=50, expectedRuntimeSeconds=5000)
    for place, victims in (("n1", set()), ("n2", {"low-0"})):
        low = running("low", [place], started=60, expectedRuntimeSeconds=100)
        place_of_other, runs = ("n2", 10**6) if place == "n1" else ("n1", 90)
        taken = running("other", [place_of_other], started=60, priority=10, expectedRuntimeSeconds=runs)
        snapshot = cluster(wide, first, low, taken, typed(wanting("head", 2, age=90)), behind)
        assert evicted(schedule(snapshot, profile())).keys() == {"low-0"}
        decision = schedule(snapshot, EASY)
        assert [one.pod_group for one in decision.reservations] == ["team/head"]
        assert evicted(decision).keys() == victims


def typed(snapshot: Snapshot) -> Snapshot:
    """The same pods, for nodes of type a only."""
    specs = [msgspec.structs.replace(one.spec, node_selector={"type": "a"}) for one in snapshot.pods]
    pods = (msgspec.structs.replace(one, spec=spec) for one, spec in zip(snapshot.pods, specs, strict=True))
    return replace(snapshot, pods=tuple(pods))

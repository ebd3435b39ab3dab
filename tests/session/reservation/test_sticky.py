"""Promises: a start that was told stays, whoever comes later; who has not waited long is promised nothing."""

from dataclasses import replace

import pytest

from batchsched.api.decision import Reservation
from batchsched.api.snapshot import Snapshot
from tests.session.preemption.running import running as at_work
from tests.session.preemption.running import wanting
from tests.session.reservation.test_reservation import running
from tests.session.scenario import cluster, gang, nodes, placed, profile, queue, reasons, schedule

SELECTIONS = pytest.mark.parametrize("selection", ["ordered", "weight"])
START = "2023-11-14T22:13:00Z"


def kept(selection: str, **more):
    return profile(selection=selection, policy={"name": "sjf"}, backfill="kept", **more)


def promised(*names: str) -> tuple[Reservation, ...]:
    return tuple(Reservation(pod_group=f"team/{name}", start=START) for name in names)


def two_heads(**head) -> Snapshot:
    """A gang that came first, and a shorter one that came later; neither fits before the same moment."""
    stated = {"age": 50, "expectedRuntimeSeconds": 1000} | head
    return cluster(
        nodes(3, gpu=1),
        running("a", 500, "n0"),
        gang("head", 3, **stated),
        gang("later", 3, age=10, expectedRuntimeSeconds=100),
    )


@SELECTIONS
def test_start_that_was_promised_is_kept_against_shorter_gangs_that_come_later(selection: str):
    snapshot = replace(two_heads(), reservations=promised("head"))
    decision = schedule(snapshot, kept(selection))
    assert [one.pod_group for one in decision.reservations] == ["team/head"]
    easy = schedule(snapshot, profile(selection=selection, policy={"name": "sjf"}, backfill="easy"))
    assert [one.pod_group for one in easy.reservations] == ["team/later"]


@SELECTIONS
def test_start_is_promised_to_a_head_that_has_waited_long_for_its_run_time(selection: str):
    assert schedule(two_heads(), kept(selection)).reservations == ()
    for slowdown, told in ((1.1, ["team/later"]), (1.11, [])):
        decision = schedule(two_heads(), kept(selection, promise_slowdown=slowdown))
        assert [one.pod_group for one in decision.reservations] == told


def test_run_time_that_is_not_stated_counts_as_the_policies_take_it():
    decision = schedule(
        cluster(nodes(2, gpu=1), running("a", 500, "n0"), gang("head", 2, age=3600)),
        kept("ordered", promise_slowdown=2),
    )
    assert [one.pod_group for one in decision.reservations] == ["team/head"]


@SELECTIONS
def test_promise_binds_nobody_of_a_higher_priority(selection: str):
    urgent = wanting("urgent", 3, priority=10, expectedRuntimeSeconds=100)
    snapshot = cluster(
        nodes(3, gpu=1),
        at_work("a", ["n0"], started=60, priority=10, expectedRuntimeSeconds=500),
        gang("head", 3, age=50, expectedRuntimeSeconds=10),
        urgent,
        reservations=promised("head"),
    )
    settings = kept(selection, promise_slowdown=1)
    settings = settings.model_copy(update={"policy": profile(policy={"name": "priority"}).policy})
    decision = schedule(snapshot, settings)
    assert [one.pod_group for one in decision.reservations] == ["team/urgent"]


def test_promise_outlasts_the_room_that_the_policy_wants():
    snapshot = cluster(
        nodes(4, gpu=1), running("a", 9999, "n0", "n1"), gang("head", 2, age=50, expectedRuntimeSeconds=9000)
    )
    settings = profile(
        selection="ordered", policy={"name": "headroom", "args": {"share": 0.5}}, backfill="kept"
    )
    assert reasons(schedule(snapshot, settings)) == {"team/head": "OutOfTurn"}
    decision = schedule(replace(snapshot, reservations=promised("head")), settings)
    assert set(placed(decision)) == {"head-0", "head-1"}


def test_promise_takes_no_turn_of_another_queue():
    """The queue b is below its guarantee: its gang is next, whatever a was told."""
    snapshot = cluster(
        nodes(3, gpu=1),
        running("r", 500, "n0"),
        gang("head", 3, age=50, queue="a", expectedRuntimeSeconds=1000),
        gang("later", 3, age=10, queue="b", expectedRuntimeSeconds=100),
        queues=(queue("a"), queue("b", guarantee={"nvidia.com/gpu": "3"})),
        reservations=promised("head"),
    )
    decision = schedule(snapshot, kept("ordered", promise_slowdown=1))
    assert [one.pod_group for one in decision.reservations] == ["team/later"]


@SELECTIONS
def test_promise_to_a_gang_that_is_gone_holds_nobody(selection: str):
    snapshot = cluster(nodes(1, gpu=1), gang("x", 1), reservations=promised("gone"))
    assert set(placed(schedule(snapshot, kept(selection)))) == {"x-0"}

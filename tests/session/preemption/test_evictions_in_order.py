"""Evictions under `selection: ordered`: the same rules as with weights, in the policy's order."""

from dataclasses import replace

import pytest

from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from tests.session.preemption.running import asked_to_leave, evicted, gone, kept, running, wanting
from tests.session.preemption.test_eligibility import GPU, of_b, teams
from tests.session.preemption.test_victim_selection import WHOLE, full
from tests.session.scenario import cluster, nodes, placed, profile, reasons, schedule

BACKFILL = {"without-backfill": {}, "easy": {"backfill": "easy"}, "blocking": {"blocking": True}}


def in_order(**more: object) -> Profile:
    return profile(selection="ordered", policy={"name": "fcfs"}, **more)


@pytest.mark.parametrize("settings", BACKFILL.values(), ids=BACKFILL)
def test_gang_of_higher_priority_preempts_one_of_lower_priority(settings):
    snapshot = full(2, running("low", ["n0", "n1"], **WHOLE), wanting("high", 2, **WHOLE))
    decision = schedule(snapshot, in_order(**settings))
    assert evicted(decision) == {"low-0": ("team/high", "Preempted"), "low-1": ("team/high", "Preempted")}
    assert kept(decision) == {"high-0": "n0", "high-1": "n1"}
    assert "2 pods are evicted for it" in decision.refusals[0].message
    assert decision.reservations == ()


@pytest.mark.parametrize("settings", BACKFILL.values(), ids=BACKFILL)
def test_room_of_victims_is_kept_until_the_preemptor_starts(settings):
    """An older gang of the same size would take the room, first while the victim terminates, then once it has ended."""
    first = full(1, running("low", ["n0"], **WHOLE), wanting("high", 1, **WHOLE))
    leaving = asked_to_leave(first, schedule(first, in_order(**settings)))
    older = wanting("older", 1, priority=10, age=1000, **WHOLE)
    after = replace(leaving, pods=leaving.pods + older.pods, pod_groups=leaving.pod_groups + older.pod_groups)
    waiting = schedule(after, in_order(**settings))
    assert (placed(waiting), kept(waiting), waiting.evictions) == ({}, {"high-0": "n0"}, ())
    assert placed(schedule(gone(after), in_order(**settings))) == {"high-0": "n0"}


def test_queue_inside_its_guarantee_reclaims():
    wants = wanting("a0", 1, priority=-100, queue="a", **WHOLE)
    snapshot = teams(2, *of_b(2, priority=1000), wants, a={"guarantee": {GPU: "8"}})
    decision = schedule(snapshot, in_order())
    assert [reason for _, reason in evicted(decision).values()] == ["Reclaimed"]


def behind_a_head(*, ends: int) -> Snapshot:
    """The head waits for `long` and `low`, both of which it may not evict; `late` may evict `low`."""
    return cluster(
        nodes(2, gpu=8),
        running("long", ["n0"], priority=20, expectedRuntimeSeconds=7200, **WHOLE),
        running("low", ["n1"], expectedRuntimeSeconds=ends, **WHOLE),
        wanting("head", 2, priority=0, age=1000, expectedRuntimeSeconds=600, **WHOLE),
        wanting("late", 1, age=10, expectedRuntimeSeconds=36000, **WHOLE),
    )


def test_gang_behind_the_head_evicts_if_nothing_is_reserved_for_the_head():
    decision = schedule(behind_a_head(ends=7200), in_order())
    assert evicted(decision) == {"low-0": ("team/late", "Preempted")}


def test_gang_behind_the_head_does_not_evict_what_ends_before_the_head_starts():
    decision = schedule(behind_a_head(ends=7200), in_order(backfill="easy"))
    assert [reservation.pod_group for reservation in decision.reservations] == ["team/head"]
    assert decision.evictions == ()


def test_gang_behind_the_head_evicts_what_outlasts_the_start_of_the_head():
    there = cluster(
        nodes(3, gpu=8),
        running("long", ["n0", "n1"], priority=20, expectedRuntimeSeconds=7200, **WHOLE),
        running("low", ["n2"], expectedRuntimeSeconds=10**6, **WHOLE),
        wanting("head", 2, priority=0, age=1000, expectedRuntimeSeconds=600, **WHOLE),
        wanting("late", 1, age=10, expectedRuntimeSeconds=10**6, **WHOLE),
    )
    decision = schedule(there, in_order(backfill="easy"))
    assert [reservation.pod_group for reservation in decision.reservations] == ["team/head"]
    assert evicted(decision) == {"low-0": ("team/late", "Preempted")}


def test_gang_behind_a_blocking_head_evicts_nothing():
    decision = schedule(behind_a_head(ends=7200), in_order(blocking=True))
    assert (decision.evictions, reasons(decision)["team/late"]) == ((), "OutOfTurn")

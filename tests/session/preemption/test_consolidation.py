"""Free room in one place: who is moved for a gang, and that all of them find another place."""

from typing import Any

import pytest

from batchsched.api.snapshot import Snapshot
from tests.session.preemption.running import asked_to_leave, evicted, gone, queued_again, running, wanting
from tests.session.scenario import cluster, nodes, placed, profile, queue, schedule

MOVING = profile(consolidate=True)
HALF: dict[str, Any] = {"requests": {"gpu": 4}}


def scattered(priority: int = 0, wanted: int = 0, **more: Any) -> Snapshot:
    """Two nodes, half full each, and a gang that wants a whole one."""
    halves = [
        running(f"g{at}", [f"n{at}"], priority=priority, started=60 * at, **more, **HALF) for at in (0, 1)
    ]
    whole = wanting("whole", 1, priority=wanted, requests={"gpu": 8})
    return cluster(nodes(2, gpu=8), *halves, whole)


def test_gang_is_moved_so_that_free_room_is_in_one_place():
    decision = schedule(scattered(), MOVING)
    assert evicted(decision) == {"g0-0": ("team/whole", "Consolidated")}
    assert {one.pod: one.node for one in decision.nominations} == {"whole-0": "n0"}


def test_everybody_has_a_place_in_the_end():
    snapshot = scattered()
    first = schedule(snapshot, MOVING)
    after = queued_again(snapshot, gone(asked_to_leave(snapshot, first)), first)
    second = schedule(after, MOVING)
    assert placed(second) == {"whole-0": "n0", "g0-0": "n1"}
    assert second.evictions == ()


def test_nobody_is_moved_unless_the_profile_says_so():
    assert schedule(scattered()).evictions == ()


@pytest.mark.parametrize(
    "snapshot", [scattered(priority=5), scattered(preemptible=False), scattered(minRuntimeSeconds=9999)],
    ids=["higher priority", "not preemptible", "minimum run time"],
)  # fmt: skip
def test_who_may_not_leave_is_not_moved_either(snapshot):
    assert schedule(snapshot, MOVING).evictions == ()


def test_nobody_is_moved_who_would_find_no_other_place():
    full = running("full", ["n2", "n2"], **HALF)
    lone = running("lone", ["n0"], requests={"gpu": 5})
    other = running("other", ["n1"], requests={"gpu": 5})
    whole = wanting("whole", 1, priority=0, requests={"gpu": 6})
    assert schedule(cluster(nodes(3, gpu=8), full, lone, other, whole), MOVING).evictions == ()


def test_quota_of_whoever_is_moved_holds_where_it_goes():
    halves = [running(f"g{at}", [f"n{at}"], queue="q", **HALF) for at in (0, 1)]
    whole = wanting("whole", 1, priority=0, requests={"gpu": 8})
    queues = (queue("q", limit={"nvidia.com/gpu": "8"}),)
    decision = schedule(cluster(nodes(2, gpu=8), *halves, whole, queues=queues), MOVING)
    assert len(decision.evictions) == 1

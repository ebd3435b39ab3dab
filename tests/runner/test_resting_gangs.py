"""Gangs behind a gang that rests: they wait in strict queues and under `blocking`, until it starts or is deleted."""

import contextlib

import msgspec
import pytest

from batchsched.api.core.pod import Pod
from batchsched.api.decision import to_json, without_measured_durations
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.status import Code, PermitAnswer, Status
from batchsched.session.session import decide
from tests.service.town import Town, fail_sessions_with, with_plugin
from tests.session.scenario import alone, cluster, gang, node, nodes, pod, profile, queue
from tests.session.test_reservations import running

BLOCKING = profile(selection="ordered", policy={"name": "fcfs"}, blocking=True)
STRICT = (queue("default", weight=1.0, policy={"name": "strict-fifo"}), queue("b", weight=1.0))
IN_ORDER = pytest.mark.parametrize(
    "settings, queues",
    [
        pytest.param(BLOCKING, (), id="blocking"),
        pytest.param(profile(), STRICT, id="strict"),
        pytest.param(profile(selection="ordered", backfill="easy"), STRICT, id="strict-ordered"),
        pytest.param(profile(solver={"enabled": False}), STRICT, id="strict-pod-by-pod"),
    ],
)


def with_late_gang(settings: Profile, queues: tuple, *parts: Snapshot) -> Town:
    """A town in which one GPU of four is used; `first`, which needs four, rests, and `late` needs two."""
    first = parts or (gang("first", 4, age=60),)
    return Town(cluster(nodes(1, gpu=4), running("a", None, "n0"), *first, queues=queues), settings)


def reasons(town: Town) -> dict[str, tuple[str, str]]:
    return {one.pod_group: (one.reason, one.message) for one in town.decisions[-1].refusals}


@IN_ORDER
async def test_gang_behind_a_resting_gang_waits_for_it(settings: Profile, queues: tuple):
    town = with_late_gang(settings, queues)
    await town.turns(2)
    town.profile_scheduler.recording = True
    town.add(gang("late", 2))
    await town.turns(2)
    assert set(town.bound) == {"a-0"}
    assert len(town.decisions) == 2
    reason, message = reasons(town)["team/late"]
    assert reason == "OutOfTurn"
    assert message.startswith("team/first is ahead")
    asked = town.profile_scheduler.session_input
    assert asked is not None
    assert asked.snapshot.resting == ("team/first",)
    again = decide(asked.snapshot, settings, asked.now, asked.seed)
    assert to_json(without_measured_durations(again)) == to_json(
        without_measured_durations(town.decisions[-1])
    )


@IN_ORDER
async def test_gang_starts_when_the_gang_ahead_is_deleted(settings: Profile, queues: tuple):
    town = with_late_gang(settings, queues)
    await town.turns(2)
    town.add(gang("late", 2))
    await town.turns(2)
    for at in range(4):
        town.delete(f"first-{at}")
    await town.turns(3)
    assert set(town.bound) == {"a-0", "late-0", "late-1"}


@IN_ORDER
async def test_gang_starts_when_the_gang_ahead_has_started(settings: Profile, queues: tuple):
    town = with_late_gang(settings, queues)
    await town.turns(2)
    town.add(gang("late", 2))
    await town.turns(2)
    town.cache.put(node("n1", gpu=4))
    await town.turns(4)
    assert set(town.bound) == {"a-0", *(f"first-{at}" for at in range(4)), "late-0", "late-1"}


@IN_ORDER
async def test_resting_pod_without_a_pod_group_is_waited_for(settings: Profile, queues: tuple):
    town = with_late_gang(settings, queues, Snapshot(pods=(pod("first", age=60, gpu=4),)))
    await town.turns(2)
    town.make(alone(1, gpu=1).pods)
    await town.turns(2)
    assert set(town.bound) == {"a-0"}
    assert reasons(town)["team/solo-0"][1].startswith("team/first is ahead")
    town.delete("first")
    await town.turns(3)
    assert set(town.bound) == {"a-0", "solo-0"}


async def test_gang_of_another_queue_does_not_wait_for_a_gang_of_a_strict_queue():
    town = with_late_gang(profile(), STRICT)
    await town.turns(2)
    town.add(gang("late", 2, queue="b"))
    await town.turns(2)
    assert set(town.bound) == {"a-0", "late-0", "late-1"}


@IN_ORDER
async def test_older_gang_does_not_wait_for_a_younger_one_that_rests(settings: Profile, queues: tuple):
    town = with_late_gang(settings, queues)
    await town.turns(2)
    town.add(gang("old", 2, age=90))
    await town.turns(2)
    assert set(town.bound) == {"a-0", "old-0", "old-1"}


@IN_ORDER
async def test_gang_that_may_not_be_tried_holds_up_no_gang(settings: Profile, queues: tuple):
    town = with_late_gang(settings, queues, gang("first", 3, 4, age=60))
    await town.turns(2)
    assert {key: reason for key, (reason, _) in reasons(town).items()} == {"team/first": "NotEnoughPods"}
    town.add(gang("late", 2))
    await town.turns(2)
    assert set(town.bound) == {"a-0", "late-0", "late-1"}


async def test_gang_that_fits_nowhere_blocks_no_gang_while_it_rests():
    town = with_late_gang(BLOCKING, (), gang("first", 5, age=60))
    await town.turns(2)
    town.add(gang("late", 2))
    await town.turns(2)
    assert set(town.bound) == {"a-0", "late-0", "late-1"}


@IN_ORDER
async def test_resting_gang_of_another_profile_holds_up_no_gang(settings: Profile, queues: tuple):
    first = gang("first", 4, age=60)
    theirs = tuple(
        msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, scheduler_name="other"))
        for one in first.pods
    )
    there = cluster(
        nodes(1, gpu=4),
        running("a", None, "n0"),
        Snapshot(pods=theirs, pod_groups=first.pod_groups),
        queues=queues,
    )
    town = Town(there, settings, scheduler_names=("batchsched", "other"))
    await town.turns(2)
    town.add(gang("late", 2))
    await town.turns(2)
    assert set(town.bound) == {"a-0", "late-0", "late-1"}


class NoLicence:
    """A Permit that rejects the pods of the gang `first`."""

    name = "NoLicence"

    def permit(self, pod: Pod, node: int, nodes: object, state: object) -> PermitAnswer:
        if pod.name.startswith("first"):
            return PermitAnswer(Status(Code.UNSCHEDULABLE, ("no licence is free",)))
        return PermitAnswer()


@IN_ORDER
async def test_gang_that_a_plugin_rejected_holds_up_no_gang_while_it_rests(
    monkeypatch: pytest.MonkeyPatch, settings: Profile, queues: tuple
):
    with_plugin(monkeypatch, NoLicence())
    town = with_late_gang(settings, queues, gang("first", 3, age=60))
    await town.turns(1)
    assert {key: reason for key, (reason, _) in reasons(town).items()} == {"team/first": "PermitRejected"}
    town.profile_scheduler.recording = True
    town.add(gang("late", 2))
    await town.turn(0.5)
    assert set(town.bound) == {"a-0", "late-0", "late-1"}
    asked = town.profile_scheduler.session_input
    assert asked is not None
    assert asked.snapshot.rejected == asked.snapshot.resting == ("team/first",)


@IN_ORDER
async def test_gang_whose_sessions_fail_holds_up_no_gang_while_it_rests(
    monkeypatch: pytest.MonkeyPatch, settings: Profile, queues: tuple
):
    fail_sessions_with(monkeypatch, "team/first")
    town = with_late_gang(settings, queues, gang("first", 3, age=60))
    town.add(gang("late", 2))
    for _ in range(20):
        with contextlib.suppress(ExceptionGroup):
            await town.turn(0.5)
    assert set(town.bound) == {"a-0", "late-0", "late-1"}

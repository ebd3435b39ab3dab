"""A standby replica samples the usage of queues."""

import asyncio

import pytest

from batchsched.config.schema import Profile
from batchsched.queues.usage_history import UsageHistory
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.scheduler.standby_usage import SAMPLE_SECONDS, StandbyUsageRecorder
from batchsched.state.cluster_state import ClusterState
from tests.service.town import Clock
from tests.session.scenario import GPU, bound, cluster, gang, nodes, queue, schedule

HOUR = 3600.0
PROFILE = Profile(usage_half_life_seconds=HOUR)


def running(policy: str = "decayed-usage") -> ClusterState:
    """A cache in which a gang of two runs in the queue `team`."""
    made = queue("team", policy={"name": policy})
    waiting = cluster(nodes(2, gpu=1), gang("bert", 2, queue="team", requests={"gpu": 1}), queues=(made,))
    cache = ClusterState(["batchsched"])
    for one in vars_of(bound(waiting, schedule(waiting))):
        cache.put(one)
    return cache


def vars_of(snapshot):
    return (*snapshot.nodes, *snapshot.queues, *snapshot.pod_groups, *snapshot.pods)


def standby_usage(cache: ClusterState, clock: Clock) -> StandbyUsageRecorder:
    return StandbyUsageRecorder(cache, clock, lambda: (PROFILE,), lambda: False)


async def test_usage_of_one_half_life_counts_half():
    clock = Clock()
    one = standby_usage(running(), clock)
    for _ in range(61):
        one.record_usage()
        clock.turn(HOUR / 60)
    assert one.usage_history(PROFILE).usage["team"][GPU] == pytest.approx(1.0, rel=0.01)


async def test_usage_is_not_recorded_without_a_policy_that_reads_it():
    clock = Clock()
    one = standby_usage(running(policy="drf"), clock)
    for _ in range(2):
        one.record_usage()
        clock.turn(HOUR)
    assert one.usage_history(PROFILE).usage == {}


async def test_sampling_ends_when_the_replica_leads():
    clock = Clock()
    leads: list[bool] = []
    one = StandbyUsageRecorder(running(), clock, lambda: (PROFILE,), lambda: bool(leads))
    looking = asyncio.create_task(one.run())
    while one.usage_history(PROFILE).usage.get("team") is None:
        clock.turn(SAMPLE_SECONDS)
        await asyncio.sleep(0.001)
    leads.append(True)
    while not looking.done():
        clock.turn(SAMPLE_SECONDS)
        await asyncio.sleep(0.001)
    looking.result()


async def test_new_leader_continues_with_the_sampled_history():
    profile_scheduler = ProfileScheduler(PROFILE, running())
    profile_scheduler.set_usage_history(UsageHistory({"team": {GPU: 7.0}}, HOUR))
    profile_scheduler.recording = True
    profile_scheduler.sync_queue(1.0)
    assert profile_scheduler._past.usage == {"team": {GPU: 7.0}}
    assert (
        profile_scheduler._follower(profile_scheduler._cache.snapshot()).decayed_usage(1.0)["team"][GPU]
        == 7.0
    )

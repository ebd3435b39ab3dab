"""What queues used lately decides between them, from session to session and from a recorded snapshot alike."""

from dataclasses import replace

import pytest

from batchsched.api.snapshot import PastQueueUsage, Snapshot
from batchsched.ports.cluster import ClusterChanges
from batchsched.queues.usage_history import past_usage_entries
from batchsched.session.session import Session, decide
from tests.session.scenario import GPU, NOW, cluster, gang, nodes, profile, queue, schedule

POLICY = {"name": "decayed-usage"}
HOUR = 3600.0


def two_teams(*used: PastQueueUsage, count: int = 4) -> Snapshot:
    """Two queues that state nothing, each with gangs that want the whole node."""
    waiting = [
        gang(f"{of}{number}", 8, queue=of, age=count - number) for number in range(count) for of in "ab"
    ]
    return replace(cluster(nodes(1, gpu=8), *waiting, queues=(queue("a"), queue("b"))), usage=used)


def started(decision) -> set[str]:
    return {one.pod[0] for one in decision.assignments}


@pytest.mark.parametrize("selection", ["weight", "ordered"])
@pytest.mark.parametrize("policy", ["decayed-usage", "time-based"])
def test_queue_with_less_recent_usage_is_first(policy, selection):
    chosen = profile(queuePolicy={"name": policy}, selection=selection)
    assert started(schedule(two_teams(PastQueueUsage("a", GPU, 6.0)), chosen)) == {"b"}
    assert started(schedule(two_teams(PastQueueUsage("b", GPU, 6.0)), chosen)) == {"a"}


def test_equal_queues_take_turns_and_replay_repeats_every_decision():
    chosen = profile(queuePolicy=POLICY, selection="ordered", usageHalfLifeSeconds=10 * HOUR)
    snapshot = two_teams()
    follower = Session(snapshot, chosen)
    pods = {one.key: one for one in snapshot.pods}
    turns: list[str] = []
    for hour in range(6):
        now = NOW + hour * HOUR
        as_recorded = replace(
            snapshot, pods=tuple(pods.values()), usage=past_usage_entries(follower.decayed_usage(now))
        )
        decision = follower.decide(now, 0)
        assert decide(as_recorded, chosen, now, 0) == decision
        turns += started(decision)
        ended = [pods.pop(one.pod_key) for one in decision.assignments]
        follower.apply_changes(ClusterChanges(removed_pods=ended))
    assert len(turns) == 6
    assert abs(turns.count("a") - turns.count("b")) <= 1


def test_usage_is_not_recorded_without_a_policy_that_reads_it():
    follower = Session(two_teams(), profile())
    follower.decide(NOW, 0)
    assert follower.decayed_usage(NOW + HOUR) == {}


def test_invalid_queue_settings_are_set_aside_and_gangs_are_still_scheduled():
    queues = (
        queue("org", guarantee={GPU: "2"}),
        queue("a", parent="org", guarantee={GPU: "4"}, policy={"name": "lottery"}),
        queue("b", limit={"nvidia.com/gpus": "1"}),
    )
    decision = schedule(cluster(nodes(1, gpu=8), gang("some", 8, queue="a"), queues=queues))
    assert [(one.object, one.field) for one in decision.set_aside] == [
        ("Queue b", "spec.limit.nvidia.com/gpus"),
        ("Queue org", "spec.guarantee.nvidia.com/gpu"),
        ("Queue a", "spec.policy.name"),
    ]
    assert len(decision.assignments) == 8

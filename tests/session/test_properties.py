"""What holds of every decision, on random small clusters and in all four ways of selecting."""

import hashlib

import pytest
from hypothesis import given, settings

from batchsched.api.decision import REASONS, Decision, to_json
from batchsched.api.snapshot import Snapshot
from tests.hash_seeds import outputs_by_hash_seed
from tests.session import audit
from tests.session.clusters import clusters, random_cluster
from tests.session.scenario import profile, schedule

WAYS = {
    "joint": profile(),
    "ordered": profile(selection="ordered"),
    "easy": profile(selection="ordered", policy={"name": "fcfs"}, backfill="easy"),
    "pod-by-pod": profile(solver={"enabled": False}),
}

every_way = pytest.mark.parametrize("way", WAYS)
pytestmark = pytest.mark.properties


def places(decision: Decision) -> dict[str, str]:
    return {one.pod_key: one.node for one in decision.assignments}


@every_way
@given(cluster=clusters())
def test_decisions_respect_gangs_capacity_filters_levels_and_limits(way: str, cluster: Snapshot):
    decision = schedule(cluster, WAYS[way])
    assert audit.violations(cluster, places(decision)) == []
    assert len(places(decision)) == len(decision.assignments)
    assert set(places(decision)) <= {pod.key for pod in cluster.pods if not pod.node_name}


@every_way
@given(cluster=clusters())
def test_every_pending_gang_is_placed_completely_or_refused_once_with_a_reason(way: str, cluster: Snapshot):
    decision = schedule(cluster, WAYS[way])
    assert {one.reason for one in decision.refusals} <= set(REASONS)
    assert all(one.message for one in decision.refusals)
    refused = [one.pod_group for one in decision.refusals]
    assert len(set(refused)) == len(refused)
    there = places(decision)
    for key, (group, pods) in audit.gangs(cluster).items():
        placed = any(pod.key in there for pod in pods)
        stands = audit.complete(group, pods, there) and (group is not None or audit.alone(pods))
        assert not (placed and key in refused)
        assert stands or key in refused


@every_way
@given(cluster=clusters())
def test_the_same_cluster_gets_the_same_bytes(way: str, cluster: Snapshot):
    assert to_json(schedule(cluster, WAYS[way])) == to_json(schedule(cluster, WAYS[way]))


@given(cluster=clusters())
def test_objective_of_a_tier_never_exceeds_its_bound(cluster: Snapshot):
    account = schedule(cluster).solver
    assert all(tier.objective <= tier.bound * (1 + 1e-9) + 1e-12 for tier in account.tiers)
    assert 0 <= account.gap <= 1
    assert not account.guard


def digest(count: int) -> str:
    """One digest of what all ways decide over the first clusters."""
    found = hashlib.sha256()
    for seed in range(count):
        cluster = random_cluster(seed)
        for way in WAYS.values():
            found.update(to_json(schedule(cluster, way)))
    return found.hexdigest()


def test_every_process_and_hash_seed_decides_the_same_bytes():
    count = settings().max_examples
    program = f"from tests.session.test_properties import digest; print(digest({count}))"
    assert len(set(outputs_by_hash_seed(program))) == 1

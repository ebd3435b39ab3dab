"""The order of the objects in the input has no effect on a decision: shuffled input gives the same bytes."""

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsched.api.decision import SetAside, to_json
from batchsched.api.snapshot import OBJECT_KINDS, PastQueueUsage, Snapshot
from batchsched.config.schema import Profile
from batchsched.manifests.reader import read_manifests
from batchsched.ports.cluster import ClusterChanges
from batchsched.session.session import Session
from bench.solver.instances import Instance, generate, partitioned
from bench.solver.manifests import items
from tests.guards.cases import QUEUE_POLICIES, busy, drawn
from tests.hash_seeds import outputs_by_hash_seed
from tests.session.clusters import random_cluster
from tests.session.scenario import NOW, cluster, gang, node, placed, profile, schedule
from tests.session.test_follow import SETTINGS

FULL = settings().max_examples >= 500
SEEDS = st.integers(0, 2**32 - 1)
UNORDERED = (
    *(kind.field for kind in OBJECT_KINDS),
    "resting",
    "rejected",
    "usage",
    "refused_evictions",
    "set_aside",
)
"""All fields of a Snapshot but those whose order states something: `held` and `reservations`."""
MAIN_WAYS = {way: SETTINGS[way] for way in ("joint", "ordered", "pod-by-pod")}
OTHER_WAYS = {way: settings for way, settings in SETTINGS.items() if way not in MAIN_WAYS} | {
    "aggregated": profile(solver={"exactVariables": 0}),
    "windows": profile(sessionWindow=2),
    "sampled": profile(solver={"enabled": False}, percentageOfNodesToScore=30),
    "consolidate": profile(consolidate=True),
    **{policy: profile(queuePolicy={"name": policy}) for policy in QUEUE_POLICIES},
}

pytestmark = pytest.mark.properties


def shuffled(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same cluster with its objects in another order."""
    dice = random.Random(seed)
    orders = {field: list(getattr(snapshot, field)) for field in UNORDERED}
    for objects in orders.values():
        dice.shuffle(objects)
    changes: dict[str, Any] = {field: tuple(objects) for field, objects in orders.items()}
    return replace(snapshot, **changes)


def drawn_cluster(seed: int) -> Snapshot:
    """Every third cluster has no running gangs, every third has many of them, and every third has equal nodes."""
    if seed % 3 == 0:
        return random_cluster(seed)
    snapshot = busy(seed, rules=seed % 2 == 0, equal=seed % 3 == 2, limits=0.2)
    return replace(snapshot, usage=usage_of_queues(snapshot, seed))


def usage_of_queues(snapshot: Snapshot, seed: int) -> tuple[PastQueueUsage, ...]:
    dice = random.Random(seed)
    return tuple(
        PastQueueUsage(queue.name, resource, dice.random() * 10_000)
        for queue in snapshot.queues
        for resource in ("cpu", "nvidia.com/gpu")
    )


def assert_same_decision(seed: int, settings: Profile) -> None:
    drawn.cache_clear()
    snapshot = drawn_cluster(seed)
    expected = to_json(schedule(snapshot, settings))
    assert to_json(schedule(shuffled(snapshot, seed), settings)) == expected


@pytest.mark.parametrize("way", MAIN_WAYS)
@given(seed=SEEDS)
def test_order_of_objects_does_not_change_the_decision(way: str, seed: int):
    assert_same_decision(seed, MAIN_WAYS[way])


@given(seed=SEEDS, way=st.sampled_from(sorted(OTHER_WAYS)))
def test_order_of_objects_does_not_change_the_decision_with_other_settings(seed: int, way: str):
    assert_same_decision(seed, OTHER_WAYS[way])


@given(seed=SEEDS)
def test_order_of_objects_does_not_change_the_next_decision_with_its_reservations(seed: int):
    drawn.cache_clear()
    settings = profile(backfill="kept", promiseSlowdown=1)
    snapshot = drawn_cluster(seed)
    snapshot = replace(snapshot, reservations=schedule(snapshot, settings).reservations)
    expected = to_json(schedule(snapshot, settings, NOW + 60))
    assert to_json(schedule(shuffled(snapshot, seed), settings, NOW + 60)) == expected


def test_of_equally_good_nodes_the_first_by_name_is_chosen():
    snapshot = cluster((node("n2", gpu=2), node("n1", gpu=2)), gang("bert", 2))
    assert placed(schedule(snapshot)) == {"bert-0": "n1", "bert-1": "n1"}


def test_order_of_objects_that_were_set_aside_does_not_change_the_decision():
    entries = (SetAside("b.yaml", "Queue b", "spec", "x"), SetAside("a.yaml", "Queue a", "spec", "y"))
    decisions = [schedule(Snapshot(set_aside=listed)) for listed in (entries, entries[::-1])]
    assert to_json(decisions[0]) == to_json(decisions[1])


def test_node_that_joins_later_has_its_place_by_name():
    nodes = (node("n3", gpu=2), node("n2", gpu=2))
    session = Session(cluster(nodes, gang("bert", 2)), profile())
    session.apply_changes(ClusterChanges(nodes=(*nodes, node("n1", gpu=2))))
    assert placed(session.decide(NOW, 0)) == {"bert-0": "n1", "bert-1": "n1"}


# Hash seeds

DIGESTED = 200 if FULL else 15
"""Clusters of a digest."""


def as_drawn(snapshot: Snapshot, _seed: int) -> Snapshot:
    return snapshot


@cache
def digest(count: int, order: Callable[[Snapshot, int], Snapshot] = shuffled) -> str:
    """One digest of the decisions over the first clusters."""
    hashed = hashlib.sha256()
    for seed in range(count):
        snapshot = order(drawn_cluster(seed), seed)
        for way_settings in MAIN_WAYS.values():
            hashed.update(to_json(schedule(snapshot, way_settings)))
    return hashed.hexdigest()


def test_processes_with_other_hash_seeds_decide_the_same_over_shuffled_objects():
    program = f"from tests.session.test_input_order import digest; print(digest({DIGESTED}))"
    assert set(outputs_by_hash_seed(program)) == {digest(DIGESTED, as_drawn)}


# Instances of `python -m bench.solver`

MIXES: dict[str, Callable[[int, int, int], Instance]] = {
    "lean": generate,
    "noisy": lambda nodes, gangs, seed: generate(nodes, gangs, seed, noisy=True),
    "noisy-one-tier": lambda nodes, gangs, seed: generate(nodes, gangs, seed, tiers=1, noisy=True),
    "partitioned": partitioned,
}
SIZES = ((1000, 100), (5000, 200), (10_000, 500)) if FULL else ((48, 12),)
INSTANCES = [(mix, *size, seed) for mix in MIXES for size in SIZES for seed in range(4 if FULL else 2)]


def read_in_both_orders(path: Path, instance: Instance, seed: int) -> Iterator[Snapshot]:
    documents = items(instance)
    for _ in range(2):
        path.write_text("\n".join(map(json.dumps, documents)))
        yield read_manifests([path]).snapshot
        random.Random(seed).shuffle(documents)


@pytest.mark.parametrize("mix, nodes, gangs, seed", INSTANCES)
def test_order_of_documents_does_not_change_the_decision_on_an_instance_of_the_solver_bench(
    tmp_path: Path, mix: str, nodes: int, gangs: int, seed: int
):
    snapshots = read_in_both_orders(tmp_path / "cluster.jsonl", MIXES[mix](nodes, gangs, seed), seed)
    in_order, in_other_order = (to_json(schedule(snapshot)) for snapshot in snapshots)
    assert in_other_order == in_order

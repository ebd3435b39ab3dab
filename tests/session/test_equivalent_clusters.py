"""Clusters that mean the same get the same decision: other notations of quantities, other names, other seeds."""

import json
import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import POD_GROUP_LABEL
from batchsched.api.decision import Decision, without_measured_durations
from batchsched.api.snapshot import Snapshot
from batchsched.manifests.reader import read_manifests
from batchsched.manifests.writer import encode_snapshot_as_json as manifests_of
from tests.session.clusters import NO_RULES, clusters, random_cluster
from tests.session.scenario import profile, schedule

EXACT = profile(solver={"gap": 0.0})
AMOUNTS = ("requests", "limits", "limit", "guarantee", "allocatable", "capacity")
SEEDS = st.integers(0, 2**32 - 1)

pytestmark = pytest.mark.properties


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clusters") / "all.json"


def rewritten(file: Path, cluster: Snapshot, change: Callable[[Any], Any]) -> Snapshot:
    """The cluster, read from manifests that were changed."""
    file.write_text(json.dumps(change(json.loads(manifests_of(cluster)))))
    return read_manifests([file]).snapshot


def same(value: Any) -> Any:
    return value


def reached(decision: Decision) -> list[float]:
    return [tier.objective for tier in decision.solver.tiers]


# Other notations


def other_notation(quantity: str, dice: random.Random) -> str:
    """The same amount with another suffix, or with an exponent."""
    if quantity.endswith("Gi"):
        gib = int(quantity[:-2])
        return dice.choice(
            [f"{gib * 1024}Mi", f"{gib * 1024**2}Ki", str(gib * 1024**3), f"{gib * 1024**3}e0"]
        )
    if quantity.endswith("m"):
        return dice.choice([f"{int(quantity[:-1]) * 1000}u", f"{quantity[:-1]}e-3"])
    number = int(quantity)
    return dice.choice([f"{number * 1000}m", f"{number}e0", f"{number * 10**6}u", f"{number}.0"])


def in_other_notations(value: Any, notations: Callable[[str], str], is_amount: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            key: in_other_notations(one, notations, is_amount or key in AMOUNTS) for key, one in value.items()
        }
    if isinstance(value, list):
        return [in_other_notations(one, notations) for one in value]
    return notations(str(value)) if is_amount else value


@given(seed=SEEDS)
def test_notation_of_quantities_does_not_change_the_decision(file: Path, seed: int):
    """Equal quantities get an equal notation, as in pods of one template."""
    cluster, dice = random_cluster(seed), random.Random(seed)
    notations = cache(partial(other_notation, dice=dice))
    plain = rewritten(file, cluster, same)
    other = rewritten(file, cluster, lambda whole: in_other_notations(whole, notations))
    assert without_measured_durations(schedule(other)) == without_measured_durations(schedule(plain))


# Other names


def names_of(cluster: Snapshot) -> list[str]:
    """The names of nodes, pods, PodGroups (also of absent ones that pods name) and Queues."""
    named: tuple[Any, ...] = (*cluster.nodes, *cluster.pods, *cluster.pod_groups, *cluster.queues)
    stated = {pod.labels[POD_GROUP_LABEL] for pod in cluster.pods if POD_GROUP_LABEL in pod.labels}
    return sorted({one.metadata.name for one in named} | stated)


def with_names(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: with_names(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [with_names(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


@given(cluster=clusters())
def test_decision_follows_other_names_in_the_same_order(file: Path, cluster: Snapshot):
    names = {name: f"k-{name}" for name in names_of(cluster)}
    before = schedule(rewritten(file, cluster, same))
    after = schedule(rewritten(file, cluster, lambda whole: with_names(whole, names)))
    assert [(one.pod, one.node) for one in after.assignments] == [
        (names[one.pod], names[one.node]) for one in before.assignments
    ]
    assert [(one.pod_group, one.reason) for one in after.refusals] == [
        (f"team/{names.get(name, name)}", one.reason)
        for one in before.refusals
        for name in [one.pod_group.partition("/")[2]]
    ]
    assert reached(after) == reached(before)


@given(cluster=clusters(NO_RULES), seed=SEEDS)
def test_tiers_reach_the_same_value_whatever_the_order_of_names(file: Path, cluster: Snapshot, seed: int):
    names = names_of(cluster)
    others = [f"k-{number}" for number in random.Random(seed).sample(range(100, 1000), len(names))]
    mapping = dict(zip(names, others, strict=True))
    before = schedule(rewritten(file, cluster, same), EXACT)
    after = schedule(rewritten(file, cluster, lambda whole: with_names(whole, mapping)), EXACT)
    assert reached(after) == pytest.approx(reached(before), rel=1e-9, abs=1e-12)


# Other seeds


@given(cluster=clusters(NO_RULES))
def test_tiers_reach_the_same_value_whatever_the_seed(cluster: Snapshot):
    values = [reached(schedule(cluster, EXACT, seed=seed)) for seed in (0, 1, 7)]
    assert values[1] == pytest.approx(values[0], rel=1e-9, abs=1e-12)
    assert values[2] == pytest.approx(values[0], rel=1e-9, abs=1e-12)

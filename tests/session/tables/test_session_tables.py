"""Tables that followed a cluster event by event equal tables that are built from its snapshot."""

import math
import random
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchsched.api.core.pod import Affinity, Pod, PodStatus
from batchsched.api.decision import to_json
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.ports.cluster import ClusterChanges
from batchsched.session.session import Session, decide
from batchsched.session.tables.session_tables import SessionTables
from tests.framework.test_extender_chain import chain
from tests.session.clusters import on, random_cluster
from tests.session.scenario import NOW, alone, cluster, gang, group, node, nodes, pod, profile
from tests.session.test_properties import WAYS


class History:
    """A follower, and the snapshot that it should know by now."""

    def __init__(self, seed: int, settings: Profile) -> None:
        self.rng = random.Random(seed)
        self.full = random_cluster(self.rng.getrandbits(32))
        groups = self.rng.sample(self.full.pod_groups, self.rng.randint(0, len(self.full.pod_groups)))
        pods = self.rng.sample(self.full.pods, self.rng.randint(0, len(self.full.pods)))
        self.groups = {one.key: one for one in groups}
        self.pods = {one.key: one for one in pods}
        self.nodes = self.rng.sample(self.full.nodes, self.rng.randint(0, len(self.full.nodes)))
        self.sessions = Session(replace(self.now, nodes=self.full.nodes), settings)
        self.sessions.apply_changes(ClusterChanges(nodes=self.nodes))

    @property
    def now(self) -> Snapshot:
        return replace(
            self.full,
            nodes=tuple(self.nodes),
            pods=tuple(self.pods.values()),
            pod_groups=tuple(self.groups.values()),
        )

    @property
    def listed(self) -> Snapshot:
        """The cluster as a fresh list shows it: in another order than that of events."""
        now = self.now
        return replace(
            now,
            pods=tuple(self.rng.sample(now.pods, len(now.pods))),
            pod_groups=tuple(self.rng.sample(now.pod_groups, len(now.pod_groups))),
        )

    def step(self) -> None:
        tables = self.sessions.tables
        move = self.rng.choice(["group", "pod", "bind", "remove", "forget", "node", "node", "decide"])
        missing = [one for one in self.full.pods if one.key not in self.pods]
        waiting = [one for one in self.pods.values() if not one.node_name]
        if move == "group" and self.full.pod_groups:
            one = self.rng.choice(self.full.pod_groups)
            self.groups[one.key] = one
            tables.add_group(one)
        elif move == "pod" and missing:
            pod = self.rng.choice(missing)
            self.pods[pod.key] = pod
            tables.add_pod(pod)
        elif move == "bind" and waiting:
            self.bind(self.rng.choice(waiting))
        elif move == "remove" and self.pods:
            tables.remove_pod(self.pods.pop(self.rng.choice(sorted(self.pods))))
        elif move == "forget" and self.groups:
            key = self.rng.choice(sorted(self.groups))
            del self.groups[key]
            tables.remove_group(key)
        elif move == "node":
            self.change_nodes()
        elif move == "decide":
            self.sessions.decide(NOW, 0)

    def bind(self, waiting: Pod) -> None:
        bound = on(waiting, self.rng.choice(self.full.nodes).name)
        del self.pods[waiting.key]
        self.pods[waiting.key] = bound
        tables = self.sessions.tables
        if bound.node_name in tables.node_table.index:
            tables.replace_pending_by_bound_pod(bound)
        else:
            tables.remove_pod(waiting)
            tables.add_pod(bound)

    def change_nodes(self) -> None:
        """Let some nodes join, leave or change, all in one go."""
        others = {one.name: one for one in random_cluster(self.rng.getrandbits(32)).nodes}
        there, known = {one.name for one in self.nodes}, set(self.sessions.tables.node_table.resources)
        for one in self.full.nodes:
            chance = self.rng.random()
            if one.name not in there:
                if chance < 0.5:
                    self.nodes.insert(self.rng.randint(0, len(self.nodes)), one)
            elif chance < 0.2:
                self.nodes = [node for node in self.nodes if node.name != one.name]
            elif chance < 0.5:
                other = others.get(one.name, one)
                if known.issuperset(other.status.allocatable or ()):
                    self.nodes = [other if node.name == one.name else node for node in self.nodes]
        self.sessions.apply_changes(ClusterChanges(nodes=self.nodes))


@pytest.mark.properties
@pytest.mark.parametrize("way", WAYS)
@given(seed=st.integers(0, 2**32 - 1))
def test_tables_that_followed_events_decide_as_tables_of_a_snapshot(way: str, seed: int):
    history = History(seed, WAYS[way])
    for _ in range(12):
        history.step()
    followed = history.sessions.decide(NOW, 0)
    again = history.sessions.decide(NOW, 0)
    assert to_json(followed) == to_json(again)
    assert to_json(followed) == to_json(Session(history.listed, WAYS[way]).decide(NOW, 0))


STRICT = {"name": "strict-fifo"}
RESTING_WAYS = WAYS | {
    "blocking": profile(selection="ordered", policy={"name": "fcfs"}, blocking=True),
    "strict": profile(queuePolicy=STRICT),
    "strict-ordered": profile(selection="ordered", queuePolicy=STRICT),
}


@pytest.mark.properties
@pytest.mark.parametrize("way", RESTING_WAYS)
@given(seed=st.integers(0, 2**32 - 1))
def test_gangs_that_take_no_part_are_treated_as_resting_gangs_of_a_snapshot(way: str, seed: int):
    history = History(seed, RESTING_WAYS[way])
    for _ in range(12):
        history.step()
    gangs = sorted(history.sessions.tables.gangs)
    among = set(history.rng.sample(gangs, history.rng.randint(0, len(gangs))))
    followed = history.sessions.decide(NOW, 0, taking_part=among)
    recorded = replace(history.listed, resting=tuple(one for one in gangs if one not in among))
    assert to_json(followed) == to_json(decide(recorded, RESTING_WAYS[way], NOW, 0))


def frame_of(snapshot: Snapshot) -> SessionTables:
    tables = SessionTables(snapshot, standard_registry().create_pipeline(profile()))
    tables.update_pending_gangs_and_indexes()
    return tables


def test_plugins_sign_the_specs_of_pending_pods_only(monkeypatch: pytest.MonkeyPatch):
    signed: list[str] = []
    sign = Pipeline.signature

    def recorded(pipeline: Pipeline, one: Pod) -> Hashable:
        signed.append(one.key)
        return sign(pipeline, one)

    monkeypatch.setattr(Pipeline, "signature", recorded)
    running = pod("running", on="n0")
    waiting = pod("waiting")
    tables = SessionTables(
        cluster(nodes(1), pods=(running, waiting)), standard_registry().create_pipeline(profile())
    )
    assert signed == [waiting.key]
    assert tables.specs.spec_number_of(waiting) != tables.specs.spec_number_of(running)


def test_gangs_with_equal_pods_share_a_pod_class():
    tables = frame_of(cluster(nodes(1, gpu=8), gang("one", 2), gang("two", 3)))
    classes = {
        id(part.pod_class) for members in tables.gangs.values() for part in tables.pending_gang(members).parts
    }
    assert len(classes) == 1


def test_classes_that_differ_only_in_priority_share_cached_results():
    pods = Snapshot(pods=(pod("low", cpu=1), pod("high", cpu=1), pod("other", cpu=2)))
    tables = frame_of(cluster(nodes(1), pods))
    low, high = (
        tables.classes.pod_class_of(one, rank) for one, rank in zip(pods.pods[:2], (0, 5), strict=True)
    )
    assert (low.priority, high.priority) == (0, 5)
    assert high.pod_class_for_result_cache is low.pod_class_for_result_cache
    assert (
        tables.classes.pod_class_of(pods.pods[2], 0).pod_class_for_result_cache
        is not low.pod_class_for_result_cache
    )
    assert tables.result_cache.results_of_pod_class(high) is tables.result_cache.results_of_pod_class(low)


def test_classes_of_each_priority_are_separate_if_a_plugin_reads_the_priority():
    pipeline = standard_registry().create_pipeline(profile())
    pipeline.reads_priority = True
    one = pod("one", cpu=1)
    tables = SessionTables(cluster(nodes(1), Snapshot(pods=(one,))), pipeline)
    assert (
        tables.classes.pod_class_of(one, 0).pod_class_for_result_cache
        is not tables.classes.pod_class_of(one, 5).pod_class_for_result_cache
    )


@pytest.mark.properties
@pytest.mark.parametrize("way", WAYS)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=5116)  # gangs later in an ordered session were scored as if the earlier ones were not there
def test_sharing_results_between_priorities_does_not_change_decisions(way: str, seed: int):
    snapshot, settings = random_cluster(seed), WAYS[way]
    each = standard_registry().create_pipeline(settings)
    each.reads_priority = True
    asked = Session(snapshot, settings, each).decide(NOW, 0)
    assert to_json(Session(snapshot, settings).decide(NOW, 0)) == to_json(asked)


def test_pods_sent_to_an_extender_differ_by_labels_and_annotations():
    extenders, _ = chain({}, filterVerb="filter")
    pipeline = Pipeline(standard_registry().create_pipeline(profile()).plugins, extenders=extenders)
    plain, labelled, noted = pod("a", cpu=1), pod("b", labels={"team": "x"}, cpu=1), pod("c", cpu=1)
    metadata = msgspec.structs.replace(noted.metadata, annotations={"example.com/colour": "red"})
    pods = (plain, labelled, msgspec.structs.replace(noted, metadata=metadata))
    tables = SessionTables(cluster(nodes(1), Snapshot(pods=pods)), pipeline)
    assert len({id(tables.classes.pod_class_of(one, 0)) for one in pods}) == 3


def test_pods_are_distinguished_by_a_label_once_a_selector_reads_it():
    plain = [pod(f"p{at}", labels={"app": name}, cpu=1) for at, name in enumerate("ab")]
    tables = frame_of(cluster(nodes(1), Snapshot(pods=tuple(plain))))
    before = {id(tables.classes.pod_class_of(one, 0)) for one in plain}
    tables.add_pod(pod("late", labels={"app": "a"}, spec=apart("app"), cpu=1))
    tables.update_pending_gangs_and_indexes()
    after = {id(tables.classes.pod_class_of(one, 0)) for one in plain}
    assert (len(before), len(after)) == (1, 2)


def apart(label: str) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {label: "a"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"affinity": msgspec.convert(rule, Affinity)}


def test_pending_gangs_become_running_gangs_when_their_pods_are_bound():
    snapshot = cluster(nodes(2, gpu=1), gang("bert", 2), alone(1, gpu=1))
    tables = frame_of(snapshot)
    assert (len(tables.pending_gangs), set(tables.running)) == (2, set())
    for one in snapshot.pods[:2]:
        tables.replace_pending_by_bound_pod(on(one, "n0"))
    tables.update_pending_gangs_and_indexes()
    assert (len(tables.pending_gangs), set(tables.running)) == (1, {"team/bert"})
    for one in snapshot.pods:
        tables.remove_pod(one)
    tables.remove_group("team/bert")
    tables.update_pending_gangs_and_indexes()
    assert (len(tables.pending_gangs), tables.running, tables.gangs) == (0, {}, {})
    assert not tables.node_table.requested.any()


def test_running_gang_ends_when_its_first_pod_has_run_for_the_expected_time():
    members = tuple(on(pod(f"r-{at}", group="run", gpu=1), f"n{at}") for at in range(2))
    snapshot = cluster(
        nodes(2, gpu=1), Snapshot(pods=members, pod_groups=(group("run", 2, expectedRuntimeSeconds=100),))
    )
    tables = frame_of(snapshot)
    run = tables.running_gang(tables.running["team/run"])
    assert run.end == NOW - 60 + 100
    assert sorted(run.nodes.tolist()) == [0, 1]
    assert run.requests[:, tables.node_table.column["nvidia.com/gpu"]].tolist() == [1, 1]


def test_running_gang_without_an_estimate_never_ends():
    snapshot = cluster(nodes(1, gpu=1), Snapshot(pods=(on(pod("r", gpu=1), "n0"),)))
    tables = frame_of(snapshot)
    assert tables.running_gang(tables.running["pod/team/r"]).end == math.inf


def test_pod_bound_to_an_unknown_node_counts_for_its_gang_and_for_no_node():
    snapshot = cluster(nodes(1, gpu=1), Snapshot(pods=(on(pod("r", gpu=1), "elsewhere"),)))
    tables = frame_of(snapshot)
    assert not tables.node_table.requested.any()
    assert len(tables.gangs["pod/team/r"].bound) == 1


def test_share_is_the_largest_over_cpu_memory_and_gpus_of_all_nodes():
    snapshot = cluster([node("n0", cpu=10, gpu=4), node("n1", cpu=10)], alone(1, gpu=1, cpu=4))
    tables = frame_of(snapshot)
    (gang_of_one,) = tables.gangs.values()
    assert tables.pending_gang(gang_of_one).share == 0.25


def test_needs_are_the_requests_of_the_smallest_pods_up_to_the_minimum():
    members = tuple(pod(f"p{at}", group="mixed", cpu=cpu) for at, cpu in enumerate([4, 1, 2]))
    snapshot = cluster(nodes(1), Snapshot(pods=members, pod_groups=(group("mixed", 2),)))
    tables = frame_of(snapshot)
    needs = tables.pending_gang(tables.gangs["team/mixed"]).needs
    assert needs[tables.node_table.column["cpu"]] == 3000


def test_gang_needs_the_pods_that_its_subgroups_lack():
    members = (on(pod("a", group="g", sub="x", cpu=1), "n0"), pod("b", group="g", sub="y", cpu=1))
    subs = [{"name": "x", "minMember": 0}, {"name": "y", "minMember": 1}]
    snapshot = cluster(nodes(1), Snapshot(pods=members, pod_groups=(group("g", 1, subGroups=subs),)))
    tables = frame_of(snapshot)
    assert tables.pending_gang(tables.gangs["team/g"]).need == 1


@pytest.mark.parametrize("name", ["first", "zero"])
def test_a_pod_resized_in_place_uses_what_its_status_states(name: str):
    """The other pod of the template has its spec and is not resized."""
    plain = on(pod("plain", cpu="1"), "n0")
    grown = {"name": "main", "resources": {"requests": {"cpu": "3"}}}
    resized = msgspec.structs.replace(
        plain,
        metadata=msgspec.structs.replace(plain.metadata, name=name),
        status=msgspec.convert({"containerStatuses": [grown]}, PodStatus),
    )
    tables = frame_of(cluster(nodes(1), pods=(plain, resized)))
    column = tables.node_table.column["cpu"]
    assert tables.free_resources()[0, column] == tables.node_table.allocatable[0, column] - 4000

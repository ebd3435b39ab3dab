"""Cached results of a class equal new ones after any change, and only changed nodes are evaluated again."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from batchsched.api.core.node import Node
from batchsched.config.schema import Profile
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.runtime.result_cache import CachedVerdict, PodClassResults, ResultCache
from batchsched.framework.status import SUCCESS, PreFilterAnswer, Verdict
from batchsched.framework.traits import PluginTraits, ResultScope, traits_of
from batchsched.plugins.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs
from tests.devices import objects as devices
from tests.plugins.cluster import class_of, drawn_cases, land, named, node, pod, table, table_of, visitors_of

DEFAULT = standard_registry().create_pipeline(Profile())


def said(pipeline: Any, wish: Any, made: Any, standing: Any, chosen: Any) -> Any:
    """All results of a scan, and the scores of some of the nodes."""
    scan = pipeline.find_nodes_that_pass_filters(wish, made, standing)
    everywhere = range(len(made.nodes))
    found = [
        scan.status,
        scan.fits.tolist(),
        [(scan.code_at(at), scan.reasons_at(at)) for at in everywhere],
        scan.fit_error_message(),
        scan.plugins,
    ]
    feasible = (standing or PodClassResults()).feasible_node_indexes(scan.fits & chosen)
    if len(feasible):
        found.append(pipeline.score(wish, feasible, made, scan.state, standing).tolist())
    return found


class Moody:
    """Judges and scores a node by the number of its pods; scores are normalised."""

    name = "Moody"
    traits = PluginTraits(result_scope=ResultScope.NODE_AND_ITS_PODS)

    def signature(self, pod):
        return None

    def filter(self, pod, nodes, state):
        count = nodes.requested[:, 0]
        return Verdict(("two", "more"), np.stack((count == 2, count > 2)), count > 3)

    def score(self, pod, nodes, state):
        return nodes.requested[:, 0] % 3

    def normalize(self, scores, pod, nodes, state):
        return (scores - scores.min()) * 100 // max(1, int(scores.max()))


MOODY = Pipeline([Moody()])


@pytest.mark.properties
@given(case=drawn_cases(), data=st.data())
def test_cached_results_of_a_class_equal_new_ones_while_pods_come_and_go(case, data):
    made, visitors = table_of(case), [case.pod, *visitors_of(case)]
    classes = [class_of(made, one) for one in visitors[:2]]
    standings = [PodClassResults() for _ in classes]
    moods, there = PodClassResults(), list[Any]()
    for step in range(data.draw(st.integers(1, 8))):
        for wish, standing in zip(classes, standings, strict=True):
            chosen = np.asarray([data.draw(st.sampled_from([True, True, False])) for _ in made.nodes])
            assert said(DEFAULT, wish, made, standing, chosen) == said(DEFAULT, wish, made, None, chosen)
            everyone = np.ones(len(made.nodes), np.bool_)
            assert said(MOODY, wish, made, moods, everyone) == said(MOODY, wish, made, None, everyone)
        if there and data.draw(st.booleans()):
            gone = there.pop(data.draw(st.integers(0, len(there) - 1)))
            made.remove_pods([gone])
        else:
            come = named(data.draw(st.sampled_from(visitors)), f"landed-{step}")
            land(made, come, data.draw(st.sampled_from(made.names)))
            there.append(come)


def rebuilt(made: NodeTable) -> NodeTable:
    """The same nodes and pods in a table without cached results."""
    other = NodeTable(made.cluster_objects, made.resources)
    for one, at in made.pod_table.pods_with_node_indexes():
        land(other, one, made.names[at])
    return other


@pytest.mark.properties
@given(case=drawn_cases(), other_case=drawn_cases(), data=st.data())
def test_cached_results_equal_those_of_a_new_table_while_nodes_change(case, other_case, data):
    made, visitors = table_of(case), [case.pod, *visitors_of(case)]
    classes = [class_of(made, one) for one in visitors[:2]]
    standings = ResultCache(made)
    for step in range(data.draw(st.integers(1, 6))):
        other = rebuilt(made)
        everyone = np.ones(len(made.nodes), np.bool_)
        for wish in data.draw(st.permutations(classes)):
            found = said(DEFAULT, wish, made, standings.results_of_pod_class(wish), everyone)
            assert found == said(DEFAULT, wish, other, None, everyone)
        change_nodes(made, standings, [*case.nodes, *other_case.nodes], data)
        if made.nodes and data.draw(st.booleans()):
            come = named(data.draw(st.sampled_from(visitors)), f"landed-{step}")
            land(made, come, data.draw(st.sampled_from(made.names)))


def change_nodes(made: NodeTable, standings: ResultCache, versions: list[Node], data: Any) -> None:
    """Change, add or remove a node; its pods are removed with it."""
    there = {one.name: one for one in made.nodes}
    number = data.draw(st.integers(0, 4))
    if f"n{number}" in there and data.draw(st.sampled_from([True, False, False])):
        gone = there.pop(f"n{number}")
        for one in tuple(made.pod_table.pods_on(made.index[gone.name])):
            made.remove_pods([one])
    else:
        version = data.draw(st.sampled_from(versions))
        metadata = msgspec.structs.replace(version.metadata, name=f"n{number}")
        there[f"n{number}"] = msgspec.structs.replace(version, metadata=metadata)
    if made.replace_all_nodes([there[name] for name in sorted(there)]) is not None:
        standings.clear()


class Watched:
    """Refuses full nodes, scores by pods, and records the number of nodes of each call."""

    name = "Watched"
    traits = PluginTraits(result_scope=ResultScope.NODE_AND_ITS_PODS)

    def __init__(self) -> None:
        self.filtered: list[int] = []
        self.scored: list[int] = []

    def signature(self, pod):
        return None

    def prefilter(self, pod, nodes, state):
        return PreFilterAnswer(SUCCESS)

    def filter(self, pod, nodes, state):
        self.filtered.append(len(nodes))
        return Verdict.refuse(nodes.requested[:, 0] > 1, "two pods are there", unresolvable=False)

    def score(self, pod, nodes, state):
        self.scored.append(len(nodes))
        return nodes.requested[:, 0]


class Normalized(Watched):
    def normalize(self, scores, pod, nodes, state):
        return scores * 100 // max(1, int(scores.max()))


class Static(Watched):
    traits = PluginTraits(result_scope=ResultScope.ALL_NODE_OBJECTS)


class Own(Watched):
    traits = PluginTraits(result_scope=ResultScope.NODE_OBJECT)


class Undeclared(Watched):
    traits = PluginTraits()


def look(pipeline, made, wish, standing):
    scan = pipeline.find_nodes_that_pass_filters(wish, made, standing)
    feasible = standing.feasible_node_indexes(scan.fits)
    return pipeline.score(wish, feasible, made, scan.state, standing).tolist()


@pytest.mark.parametrize(
    "kind, asked",
    [
        (Watched, ([16, 1], [16, 1])),
        (Normalized, ([16, 1], [16, 1])),
        (Static, ([16], [16])),
        (Undeclared, ([16, 16, 16], [16, 16, 16])),
    ],
)
def test_a_plugin_is_called_again_after_a_placement_within_its_result_scope(kind, asked):
    made, plugin, standing = table([node(f"n{at}") for at in range(16)]), kind(), PodClassResults()
    pipeline, wish = Pipeline([plugin]), class_of(made, pod())
    look(pipeline, made, wish, standing)
    land(made, pod("a"), "n3")
    look(pipeline, made, wish, standing)
    look(pipeline, made, wish, standing)
    assert (plugin.filtered, plugin.scored) == asked


@pytest.mark.parametrize(
    "kind, asked",
    [
        (Watched, ([16, 1], [16, 1])),
        (Own, ([16, 1], [16, 1])),
        (Static, ([16, 16], [16, 16])),
        (Undeclared, ([16, 16, 16], [16, 16, 16])),
    ],
)
def test_a_plugin_is_called_again_after_a_node_update_within_its_result_scope(kind, asked):
    there = [node(f"n{at}") for at in range(16)]
    made, plugin, standing = table(there), kind(), PodClassResults()
    pipeline, wish = Pipeline([plugin]), class_of(made, pod())
    look(pipeline, made, wish, standing)
    there[3] = node("n3", labels={"disk": "ssd"})
    made.replace_all_nodes(there)
    look(pipeline, made, wish, standing)
    look(pipeline, made, wish, standing)
    assert (plugin.filtered, plugin.scored) == asked


def test_a_plugin_without_a_signature_is_called_each_time():
    plugin = Watched()
    unsigned = type(
        "Unsigned",
        (),
        {"traits": Watched.traits, "filter": lambda _, *asked: plugin.filter(*asked)},
    )()
    made, standing = table([node("n0"), node("n1")]), PodClassResults()
    for _ in range(2):
        Pipeline([unsigned]).find_nodes_that_pass_filters(class_of(made, pod()), made, standing)
    assert traits_of(unsigned).result_scope is ResultScope.NODE_AND_ITS_PODS
    assert plugin.filtered == [2, 2]


def test_a_new_reason_on_a_changed_node_is_in_the_next_scan_only():
    made, standing = table([node(f"n{at}", {"cpu": "1"}) for at in range(16)]), PodClassResults()
    wish = class_of(made, pod(requests={"cpu": "1"}))
    assert DEFAULT.find_nodes_that_pass_filters(wish, made, standing).fits.all()
    before = DEFAULT.find_nodes_that_pass_filters(wish, made, standing)
    land(made, pod("a", {"cpu": "1"}), "n3")
    after = DEFAULT.find_nodes_that_pass_filters(wish, made, standing)
    assert after.reasons_at(3) == ("Insufficient cpu",)
    assert before.fits.all()
    assert before.reasons_at(3) == ()


def test_a_scan_keeps_its_results_after_the_cache_is_updated():
    made, standing = (
        table([node(f"n{at}", {"cpu": "2"}) for at in range(16)], {"n0": [pod("b", {"cpu": "2"})]}),
        PodClassResults(),
    )
    wish = class_of(made, pod(requests={"cpu": "1"}))
    before = DEFAULT.find_nodes_that_pass_filters(wish, made, standing)
    land(made, pod("a", {"cpu": "2"}), "n3")
    assert DEFAULT.find_nodes_that_pass_filters(wish, made, standing).reasons_at(3) == ("Insufficient cpu",)
    assert before.reasons_at(3) == ()
    assert before.reasons_at(0) == ("Insufficient cpu",)


class Breaking(Moody):
    """Raises when it is configured to."""

    def __init__(self) -> None:
        self.breaks = ""

    @override
    def score(self, pod, nodes, state):
        if self.breaks == "score":
            raise ValueError("not now")
        return super().score(pod, nodes, state)

    @override
    def normalize(self, scores, pod, nodes, state):
        if self.breaks == "normalize":
            raise ValueError("not now")
        return super().normalize(scores, pod, nodes, state)


@pytest.mark.parametrize("point, count", [("score", 1), ("normalize", 1), ("normalize", 2)])
def test_scores_that_a_plugin_failed_to_compute_are_requested_again(point, count):
    made, plugin, standing = table([node(f"n{at}") for at in range(8)]), Breaking(), PodClassResults()
    pipeline, wish = Pipeline([plugin]), class_of(made, pod())
    look(pipeline, made, wish, standing)
    for at in range(count):
        land(made, pod(f"p{at}"), "n3")
    plugin.breaks = point
    with pytest.raises(PluginError):
        look(pipeline, made, wish, standing)
    plugin.breaks = ""
    assert look(pipeline, made, wish, standing) == look(pipeline, made, wish, PodClassResults())


class Large:
    """Scores a node by its CPU. It reads no pods, so it is called before a plugin that does."""

    name = "Large"
    traits = PluginTraits(result_scope=ResultScope.NODE_OBJECT)

    def signature(self, pod):
        return None

    def score(self, pod, nodes, state):
        return nodes.allocatable[:, 1] // 1000


def test_an_error_of_a_plugin_leaves_no_outdated_score_of_other_plugins():
    made = table([node(f"n{at}", {"cpu": "1"}) for at in range(4)])
    breaking, results = Breaking(), PodClassResults()
    pipeline, wish = Pipeline([Large(), breaking]), class_of(made, pod())
    every, some = np.arange(4, dtype=np.int32), np.arange(2, dtype=np.int32)

    def total(feasible, kept):
        return pipeline.score(wish, feasible, made, CycleState(), kept).tolist()

    total(every, results)
    made.replace_all_nodes(
        [node(f"n{at}", {"cpu": "7"}) if at in (0, 3) else made.nodes[at] for at in range(4)]
    )
    breaking.breaks = "score"
    with pytest.raises(PluginError):
        total(some, results)
    breaking.breaks = ""
    assert total(every, results) == total(every, PodClassResults())


GPU = "example.com/gpu"
BY_DEVICES = Pipeline(
    [
        NodeResourcesFit(
            NodeResourcesFitArgs.model_validate(
                {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": GPU, "weight": 1}]}}
            )
        )
    ]
)


def device_table(*slices):
    made = table(
        [node(f"n{at}", labels={"zone": "za"} if at else {}) for at in range(3)],
        extra=[GPU],
        device_classes=[devices.device_class(extendedResourceName=GPU)],
    )
    made.cluster_objects = replace(made.cluster_objects, resource_slices=slices)
    return made


def gpus(count):
    return [devices.gpu(f"g{at}") for at in range(count)]


def test_scores_follow_devices_that_are_allocated_or_freed_without_a_pod():
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["za"]}]}
    in_zone = devices.slice_of("zone", gpus(2), nodeSelector={"nodeSelectorTerms": [term]})
    made = device_table(devices.slice_of("n0", gpus(4)), devices.slice_of("n1", gpus(2)), in_zone)
    results, wish = PodClassResults(), class_of(made, pod(requests={GPU: "1"}))
    every = np.arange(3, dtype=np.int32)

    def total(kept):
        return BY_DEVICES.score(wish, every, made, CycleState(), kept).tolist()

    assert total(results) == [25, 25, 50]
    made.device_ledger.update_claims([devices.allocated("c", "g0", "g1", pool="n0")], ())
    assert total(results) == [75, 25, 50]
    made.device_ledger.update_claims([devices.allocated("d", "g0", pool="zone")], ())
    assert total(results) == [75, 50, 100]
    made.replace_all_nodes([made.nodes[0], made.nodes[1], node("n2")])
    made.device_ledger.update_claims((), ["default/c"])
    assert total(results) == total(PodClassResults()) == [25, 50, 0]
    made.replace_all_nodes([made.nodes[0], node("n1"), node("n2")])
    made.device_ledger.update_claims([devices.allocated("e", "g1", pool="n1")], ["default/d"])
    assert total(results) == total(PodClassResults()) == [25, 100, 0]


def test_verdicts_with_reasons_in_another_order_are_not_merged():
    one, two = np.asarray([[True, False], [True, False]]), np.asarray([False, True])
    judged = CachedVerdict.from_verdict(Verdict(("a", "b"), one, two), 1)
    part = Verdict(("b", "a"), np.ones((2, 1), np.bool_), np.ones(1, np.bool_))
    assert judged.with_updated_nodes(np.asarray([1], np.int32), part, 2) is None


def test_least_recently_used_classes_are_evicted():
    made = table([node("n0")])
    standings = ResultCache(made, max_bytes=200)
    first, second, third = (class_of(made, pod()) for _ in range(3))
    kept, lost = standings.results_of_pod_class(first), standings.results_of_pod_class(second)
    assert standings.results_of_pod_class(first) is kept
    standings.results_of_pod_class(third)
    assert standings.results_of_pod_class(first) is kept
    assert standings.results_of_pod_class(second) is not lost

"""Properties of every plugin over whole clusters: many nodes and one, a class and its pods, followed and new tables."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from batchsched.api.core.node import Node, Taint
from batchsched.api.core.pod import Pod
from batchsched.config.schema import Profile
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.per_node import PerNodeFilter, PerNodeScore
from batchsched.framework.plugin_support.volume_listers import nonephemeral_volume_claim_names
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import SKIP, SUCCESS, Code, Status, Verdict
from batchsched.framework.traits import PlacementEffect, PluginTraits
from batchsched.plugins.node_unschedulable import NodeUnschedulable
from batchsched.plugins.taint_toleration import TaintToleration
from batchsched.session.tables.session_tables import SessionTables
from tests.conformance.runner import Case, snapshot_of
from tests.plugins.cluster import class_of, drawn_cases, named, put, table_of, take, visitors_of

pytestmark = pytest.mark.properties
# Twice as many clusters as the profile draws elsewhere, if it draws them at random.
DRAWN = settings()
THOROUGH = settings(max_examples=DRAWN.max_examples * (1 if DRAWN.derandomize else 2))

LINE = {
    "shape": [
        {"utilization": 0, "score": 10},
        {"utilization": 70, "score": 3},
        {"utilization": 100, "score": 0},
    ]
}
RESOURCES = [
    {"name": "cpu", "weight": 3},
    {"name": "memory", "weight": 1},
    {"name": "example.com/gpu", "weight": 5},
]
DISK = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
DEFAULTS = [
    {"topologyKey": "topology.kubernetes.io/region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
    {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"},
]
ARGUMENTS: tuple[dict[str, dict[str, Any]], ...] = (
    {},
    {
        "NodeResourcesFit": {
            "ignoredResourceGroups": ["example.com"],
            "scoringStrategy": {"type": "MostAllocated", "resources": RESOURCES},
        },
        "NodeResourcesBalancedAllocation": {"resources": RESOURCES},
        "NodeAffinity": {
            "addedAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [DISK]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": DISK}],
            }
        },
        "PodTopologySpread": {"defaultingType": "List", "defaultConstraints": DEFAULTS},
        "InterPodAffinity": {"hardPodAffinityWeight": 50, "ignorePreferredTermsOfExistingPods": True},
    },
    {
        "NodeResourcesFit": {
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "resources": RESOURCES,
                "requestedToCapacityRatio": LINE,
            }
        },
    },
)


def pipeline(arguments: dict[str, dict[str, Any]]) -> Any:
    """All default plugins and the classic SelectorSpread, with some arguments."""
    return standard_registry().create_pipeline(
        Profile.model_validate(
            {
                "plugins": {"multiPoint": {"enabled": [{"name": "SelectorSpread", "weight": 1}]}},
                "pluginConfig": [{"name": name, "args": args} for name, args in arguments.items()],
            }
        )
    )


PIPELINES = tuple(pipeline(one) for one in ARGUMENTS)
ANY = st.sampled_from(PIPELINES)
JUDGING = tuple(
    one
    for one in PIPELINES[0].plugins
    if any(hasattr(one, point) for point in ("prefilter", "filter", "score"))
)


def views(made: NodeTable, data: Any) -> Iterator[Any]:
    """Each node by itself, and some nodes in some order, by their places."""
    places = range(len(made.nodes))
    for at in places:
        yield made.node_view(at), [at]
    chosen = data.draw(st.lists(st.sampled_from(places), unique=True))
    yield made.selected_nodes_view(np.asarray(chosen, np.int32)), chosen


def judged(verdict: Verdict, at: int) -> Any:
    """What a verdict says of a node; reasons may be listed in any order."""
    return sorted(verdict.reasons_at(at)), bool(verdict.unresolvable[at])


def everything(plugin: Any, wish: PodClass, made: NodeTable) -> dict[str, Any]:
    """All results of a plugin for a pod, with a new state."""
    state, nodes = CycleState(), made.all_nodes_view()
    said: dict[str, Any] = {}
    asked = SUCCESS
    if hasattr(plugin, "prefilter"):
        answer = plugin.prefilter(wish, nodes, state)
        asked, said["PreFilter"] = answer.status, (answer.status, answer.nodes)
    if hasattr(plugin, "filter"):
        said["Filter"] = [((), False)] * len(nodes)
        if asked.code is Code.SUCCESS:
            verdict = plugin.filter(wish, nodes, state)
            said["Filter"] = [judged(verdict, at) for at in range(len(nodes))]
    if hasattr(plugin, "score"):
        said["PreScore"] = plugin.prescore(wish, nodes, state) if hasattr(plugin, "prescore") else SUCCESS
        if said["PreScore"].code is Code.SUCCESS:
            raw = plugin.score(wish, nodes, state)
            said["Score"] = raw.tolist()
            if hasattr(plugin, "normalize"):
                said["NormalizeScore"] = plugin.normalize(raw, wish, nodes, state).tolist()
    return said


def test_every_default_filter_and_score_plugin_is_tested():
    assert {one.name for one in JUDGING} >= {
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
        "NodeResourcesBalancedAllocation",
        "ImageLocality",
        "SelectorSpread",
    }


@THOROUGH
@given(case=drawn_cases(), asked=ANY, data=st.data())
def test_results_over_many_nodes_equal_those_of_each_node_alone(case, asked, data):
    made = table_of(case)
    wish = class_of(made, case.pod)
    for plugin in asked.plugins:
        state = CycleState()
        status = (
            plugin.prefilter(wish, made.all_nodes_view(), state).status
            if hasattr(plugin, "prefilter")
            else SUCCESS
        )
        if hasattr(plugin, "filter") and status.code is Code.SUCCESS:
            together = plugin.filter(wish, made.all_nodes_view(), state)
            for view, places in views(made, data):
                alone = plugin.filter(wish, view, state)
                assert [judged(alone, at) for at in range(len(places))] == [
                    judged(together, at) for at in places
                ], plugin.name
        if hasattr(plugin, "score"):
            if hasattr(plugin, "prescore") and plugin.prescore(wish, made.all_nodes_view(), state) == SKIP:
                continue
            scores = plugin.score(wish, made.all_nodes_view(), state)
            for view, places in views(made, data):
                assert plugin.score(wish, view, state).tolist() == scores[places].tolist(), plugin.name


PARTS = ((), (), ("tolerations",), ("volumes",), ("affinity",), ("containers",), ("node_selector",))


def relatives(case: Case, data: Any) -> list[Pod]:
    """A few pods, some of them with parts of each other: so that there are classes of more than one pod."""
    founders = data.draw(st.lists(st.sampled_from([case.pod, *visitors_of(case)]), min_size=1, max_size=2))
    found = [named(one, f"p{at}") for at, one in enumerate(founders)]
    for at in range(data.draw(st.integers(1, 3))):
        first = data.draw(st.sampled_from(founders))
        second = data.draw(st.sampled_from([case.pod, *visitors_of(case)]))
        changed = {name: getattr(second.spec, name) for name in data.draw(st.sampled_from(PARTS))}
        # Without a change the pods share what was decoded, as pods of one template do.
        spec = msgspec.structs.replace(first.spec, **changed) if changed else first.spec
        labels = data.draw(st.sampled_from([first.metadata.labels, second.metadata.labels]))
        owners = data.draw(
            st.sampled_from([first.metadata.owner_references, second.metadata.owner_references])
        )
        metadata = msgspec.structs.replace(first.metadata, labels=labels, owner_references=owners)
        found.append(named(msgspec.structs.replace(first, metadata=metadata, spec=spec), f"q{at}"))
    return found


@THOROUGH
@given(case=drawn_cases(), asked=ANY, data=st.data())
def test_results_of_a_class_equal_those_of_each_of_its_pods(case, asked, data):
    members = relatives(case, data)
    tables = SessionTables(replace(snapshot_of(case), pods=(*case.pods, *members)), asked)
    for one in members:
        shared = tables.classes.pod_class_of(one, tables.classes.priorities.pod_priority(one))
        vector, nonzero = tables.requests_and_nonzero(one)
        own = (int(nonzero[0]), int(nonzero[1]))
        alone = PodClass.from_pod(one, vector, own, tables.classes.priorities.pod_priority(one))
        for plugin in asked.plugins:
            assert everything(plugin, shared, tables.node_table) == everything(
                plugin, alone, tables.node_table
            ), plugin.name


@THOROUGH
@given(case=drawn_cases(), asked=ANY, data=st.data())
def test_results_over_a_followed_table_equal_those_of_a_new_one(case, asked, data):
    made, visitors = table_of(case), [case.pod, *visitors_of(case)]
    there = {pod.key: (pod, made.index[pod.node_name]) for pod in case.pods}
    for step in range(data.draw(st.integers(1, 6))):
        if there and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(there)))
            take(made, there.pop(gone)[0])
        else:
            come = named(data.draw(st.sampled_from(visitors)), f"v{step}")
            at = data.draw(st.integers(0, len(made.nodes) - 1))
            put(made, come, at)
            there[come.key] = (come, at)
    fresh = NodeTable(made.cluster_objects, made.resources)
    for come, at in data.draw(st.permutations(sorted(there.values(), key=lambda pair: pair[0].key))):
        put(fresh, come, at)
    wish = class_of(made, case.pod)
    for plugin in asked.plugins:
        assert everything(plugin, wish, made) == everything(plugin, wish, fresh), plugin.name


@THOROUGH
@given(case=drawn_cases(), asked=ANY, data=st.data())
def test_state_updated_for_added_and_removed_pods_equals_a_new_state(case, asked, data):
    """Terminating pods stay; selectors that match every pod, and claims that several pods use, are omitted.

    In these cases the AddPod and PreFilter counts of kube-scheduler differ, and batchsched reproduces that.
    """
    made, visitors = table_of(case), [case.pod, *visitors_of(case)]
    wish = class_of(made, case.pod)
    kept = {plugin: CycleState() for plugin in asked.plugins if hasattr(plugin, "prefilter")}
    before = {
        plugin: plugin.prefilter(wish, made.all_nodes_view(), state).status for plugin, state in kept.items()
    }
    following = [plugin for plugin, status in before.items() if status.code is Code.SUCCESS]
    there = {pod.key: (pod, made.index[pod.node_name]) for pod in case.pods if not pod.terminating}
    for step in range(data.draw(st.integers(1, 5))):
        if there and data.draw(st.booleans()):
            moved, at = there.pop(data.draw(st.sampled_from(sorted(there))))
            take(made, moved)
            tell = "remove_pod"
        else:
            moved = named(data.draw(st.sampled_from(visitors)), f"v{step}")
            at = data.draw(st.integers(0, len(made.nodes) - 1))
            put(made, moved, at)
            there[moved.key] = (moved, at)
            tell = "add_pod"
        for plugin in following:
            if hasattr(plugin, tell):
                getattr(plugin, tell)(wish, moved, at, made, kept[plugin])
    for plugin in following:
        if plugin.name == "PodTopologySpread" and selects_every_pod(case.pod):
            continue
        if plugin.name == "VolumeRestrictions" and shares_claim_with_several_pods(case):
            continue
        state = CycleState()
        fresh = plugin.prefilter(wish, made.all_nodes_view(), state).status
        if not fresh.ok or not hasattr(plugin, "filter"):
            continue
        said = plugin.filter(wish, made.all_nodes_view(), kept[plugin])
        verdict = (
            Verdict.accept(len(made.nodes))
            if fresh == SKIP
            else plugin.filter(wish, made.all_nodes_view(), state)
        )
        places = range(len(made.nodes))
        assert [judged(said, at) for at in places] == [judged(verdict, at) for at in places], plugin.name


def selects_every_pod(one: Pod) -> bool:
    """Tell whether a spread constraint's selector is `{}`."""
    selectors = (stated.label_selector for stated in one.spec.topology_spread_constraints or ())
    return any(one is not None and not one.match_labels and not one.match_expressions for one in selectors)


def shares_claim_with_several_pods(case: Case) -> bool:
    """Tell whether several bound pods use a PersistentVolumeClaim with the name of one of the pod's.

    PreFilter counts a ReadWriteOncePod claim once, and RemovePod subtracts each of its users, also in other namespaces.

    Source: `calPreFilterState` and `updateWithPod` of kube-scheduler's plugins/volumerestrictions.
    """
    users = Counter(name for one in case.pods for name in nonephemeral_volume_claim_names(one))
    return any(users[name] > 1 for name in nonephemeral_volume_claim_names(case.pod)) or any(
        one.namespace != case.pod.namespace
        and not set(nonephemeral_volume_claim_names(one)).isdisjoint(
            nonephemeral_volume_claim_names(case.pod)
        )
        for one in case.pods
    )


class Open(PerNodeFilter):
    """NodeUnschedulable, written node by node."""

    name: ClassVar[str] = "Open"
    traits: ClassVar[PluginTraits] = PluginTraits(placement_effect=PlacementEffect.NONE)

    @override
    def filter_node(self, pod: Pod, node: Node) -> Status:
        cordon = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
        if not node.spec.unschedulable or any(one.tolerates(cordon) for one in pod.tolerations):
            return SUCCESS
        return Status(Code.UNRESOLVABLE, ("node(s) were unschedulable",))


class Clean(PerNodeFilter, PerNodeScore):
    """TaintToleration, written node by node."""

    name: ClassVar[str] = "Clean"
    traits: ClassVar[PluginTraits] = PluginTraits(placement_effect=PlacementEffect.NONE)

    @override
    def filter_node(self, pod: Pod, node: Node) -> Status:
        if not self._count(pod, node, ("NoSchedule", "NoExecute")):
            return SUCCESS
        return Status(Code.UNRESOLVABLE, ("node(s) had untolerated taint(s)",))

    @override
    def score_node(self, pod: Pod, node: Node) -> int:
        return self._count(pod, node, ("PreferNoSchedule",))

    def _count(self, pod: Pod, node: Node, effects: tuple[str, ...]) -> int:
        return sum(
            taint.effect in effects and not any(one.tolerates(taint) for one in pod.tolerations)
            for taint in node.taints
        )


@THOROUGH
@given(case=drawn_cases("taints", "nodename"), data=st.data())
def test_per_node_adapter_equals_the_same_plugin_written_with_arrays(case, data):
    made = table_of(case)
    wish = class_of(made, case.pod)
    everyone = (made.all_nodes_view(), list(range(len(made.nodes))))
    for toy, twin in ((Open(), NodeUnschedulable()), (Clean(), TaintToleration())):
        for view, places in (everyone, *views(made, data)):
            mine, theirs = (each.filter(wish, view, CycleState()) for each in (toy, twin))
            refused = theirs.refused[theirs.refused.any(axis=1)]
            assert mine.refused.tolist() == refused.tolist()
            assert mine.unresolvable.tolist() == theirs.unresolvable.tolist()
            assert [judged(mine, at) for at in range(len(places))] == [
                judged(theirs, at) for at in range(len(places))
            ]
    for view, _ in (everyone, *views(made, data)):
        scores = [each.score(wish, view, CycleState()) for each in (Clean(), TaintToleration())]
        assert scores[0].dtype == scores[1].dtype
        assert scores[0].tolist() == scores[1].tolist()

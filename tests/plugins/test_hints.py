"""What holds for the hints of every plugin: whatever changes, a pod that can be helped by it is brought back."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.pod import POD_GROUP_LABEL, Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.events import EventResource, events_of_change
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import plugin_name
from batchsched.framework.status import Code
from batchsched.plugins.default_preemption import DefaultPreemption
from batchsched.plugins.gang_scheduling import GangScheduling
from batchsched.plugins.inter_pod_affinity import InterPodAffinity
from batchsched.plugins.node_affinity import NodeAffinity
from batchsched.plugins.node_declared_features import NodeDeclaredFeatures
from batchsched.plugins.node_name import NodeName
from batchsched.plugins.node_ports import NodePorts
from batchsched.plugins.node_resources_fit import NodeResourcesFit
from batchsched.plugins.node_unschedulable import NodeUnschedulable
from batchsched.plugins.node_volume_limits import NodeVolumeLimits
from batchsched.plugins.pod_topology_spread import PodTopologySpread
from batchsched.plugins.pod_topology_spread.constraints import DefaultConstraint, PodTopologySpreadArgs
from batchsched.plugins.scheduling_gates import SchedulingGates
from batchsched.plugins.taint_toleration import TaintToleration
from batchsched.plugins.volume_binding import VolumeBinding
from batchsched.plugins.volume_restrictions import VolumeRestrictions
from batchsched.plugins.volume_zone import VolumeZone
from batchsched.scheduling_queue.in_flight import ObjectEvent
from batchsched.scheduling_queue.queueing_hints import QueueingHints
from tests.plugins import neighbours as nb
from tests.plugins.cluster import class_of, node, pod, with_ports
from tests.plugins.storage import claim, claiming, csi_node, driver, volume
from tests.plugins.upheaval import Upheaval
from tests.scheduling_queue.entities import standard_pipeline

DEFAULTS = PodTopologySpreadArgs(
    defaulting_type="List",
    default_constraints=(
        DefaultConstraint(max_skew=1, topology_key="rack", when_unsatisfiable="DoNotSchedule"),
    ),
)
PLUGINS: tuple[Any, ...] = (
    NodeName(),
    NodeUnschedulable(),
    TaintToleration(),
    NodeAffinity(),
    NodePorts(),
    NodeResourcesFit(),
    NodeDeclaredFeatures(),
    VolumeRestrictions(),
    NodeVolumeLimits(),
    VolumeBinding(),
    VolumeZone(),
    PodTopologySpread(),
    PodTopologySpread(DEFAULTS),
    InterPodAffinity(),
)
STEPS = 12


def passes(plugin: Any, one: Pod, made: NodeTable) -> set[str]:
    """The nodes that a plugin lets a pod have."""
    state, pod_class = CycleState(), class_of(made, one)
    names = set(made.names)
    if hasattr(plugin, "prefilter"):
        answer = plugin.prefilter(pod_class, made.all_nodes_view(), state)
        if answer.status.code is Code.SKIP:
            return names
        if not answer.status.ok:
            return set()
        names &= names if answer.nodes is None else answer.nodes
    fits = plugin.filter(pod_class, made.all_nodes_view(), state).feasible_mask
    return names & {name for name, good in zip(made.names, fits, strict=True) if good}


def helped(plugin: Any, one: Pod, changes: Any) -> bool:
    """Whether the plugin's hints say of one of the changes that it may help."""
    hints = QueueingHints(Pipeline([plugin]))
    for resource, old, new in changes:
        for event in events_of_change(resource, old, new):
            for hint in hints.hint_functions(plugin.name, event):
                if hints.event_helps_pod(plugin.name, hint, one, ObjectEvent(event, old, new)):
                    assert not hints.faults, hints.faults
                    return True
    return False


@pytest.mark.properties
@pytest.mark.parametrize("plugin", PLUGINS, ids=[f"{one.name}-{at}" for at, one in enumerate(PLUGINS)])
@given(seed=st.integers(0, 2**32))
def test_a_hint_never_misses_a_change_that_opens_a_node(plugin, seed):
    upheaval = Upheaval.begin(seed)
    before = upheaval.table()
    open_before = passes(plugin, upheaval.target, before)
    for _ in range(STEPS):
        changes = upheaval.change()
        after = upheaval.table()
        open_after = passes(plugin, upheaval.target, after)
        refused = set(before.names) - open_before
        if refused and open_after - open_before:
            assert helped(plugin, upheaval.target, changes), (changes, open_before, open_after)
        before, open_before = after, open_after


def taint(key: str) -> dict[str, str]:
    return {"key": key, "effect": "NoSchedule"}


def disk(name: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": name}}]}


LABELLED = nb.pod("p", {"app": "a"}, affinity=nb.required(together=[nb.near(nb.ZONE, app="a")]))
SPREADING = nb.pod("p", {"app": "a"}, topologySpreadConstraints=[nb.spread(nb.ZONE, "a")])
ZONED = nb.node("n", {nb.ZONE: "x"})
# name: plugin, the pod, what changed; none of it can help.
HOPELESS: dict[str, tuple[Any, Pod, Any]] = {
    "a node that is too small as a whole": (
        NodeResourcesFit(),
        pod("p", {"cpu": "9"}),
        (EventResource.NODE, node("n", {"cpu": "4"}), node("n", {"cpu": "8"})),
    ),
    "more of what the pod does not ask for": (
        NodeResourcesFit(),
        pod("p", {"cpu": "1"}),
        (EventResource.NODE, node("n", {"memory": "1Gi"}), node("n", {"memory": "2Gi"})),
    ),
    "a pod that gives back what this one does not ask for": (
        NodeResourcesFit(),
        pod("p", {"cpu": "1"}),
        (EventResource.ASSIGNED_POD, pod("b", {"memory": "2Gi"}), pod("b", {"memory": "1Gi"})),
    ),
    "a node with other labels that do not match either": (
        NodeAffinity(),
        pod("p", nodeSelector={"disk": "ssd"}),
        (EventResource.NODE, node("n", labels={"disk": "a"}), node("n", labels={"disk": "b"})),
    ),
    "a node that matched before": (
        NodeAffinity(),
        pod("p", nodeSelector={"disk": "ssd"}),
        (EventResource.NODE, node("n", labels={"disk": "ssd"}), node("n", labels={"disk": "ssd", "a": "b"})),
    ),
    "a node that keeps one of its taints": (
        TaintToleration(),
        pod("p"),
        (EventResource.NODE, node("n", taints=[taint("a"), taint("b")]), node("n", taints=[taint("a")])),
    ),
    "a node that comes cordoned": (
        NodeUnschedulable(),
        pod("p"),
        (EventResource.NODE, None, node("n", unschedulable=True)),
    ),
    "a node of another name": (NodeName(), pod("p", nodeName="n0"), (EventResource.NODE, None, node("n1"))),
    "a pod that leaves another port": (
        NodePorts(),
        with_ports("p", {"hostPort": 80}),
        (EventResource.ASSIGNED_POD, with_ports("b", {"hostPort": 81}), None),
    ),
    "a pod that leaves another disk": (
        VolumeRestrictions(),
        pod("p", **disk("d")),
        (EventResource.ASSIGNED_POD, pod("b", **disk("e")), None),
    ),
    "a pod that leaves without volumes": (
        NodeVolumeLimits(),
        claiming("p", "c"),
        (EventResource.ASSIGNED_POD, pod("b"), None),
    ),
    "a driver that did not have to be installed before": (
        NodeVolumeLimits(),
        claiming("p", "c"),
        (EventResource.CSI_DRIVER, driver(counts=False), driver()),
    ),
    "a lower limit of a driver": (
        NodeVolumeLimits(),
        claiming("p", "c"),
        (EventResource.CSI_NODE, csi_node("n", 2), csi_node("n", 1)),
    ),
    "another pod's claim": (VolumeBinding(), claiming("p", "c"), (EventResource.CLAIM, None, claim("d"))),
    "another pod's volume": (
        VolumeZone(),
        claiming("p", "c"),
        (EventResource.VOLUME, None, volume("v", claimRef={"namespace": "default", "name": "d"})),
    ),
    "a neighbour that it did not ask for": (
        InterPodAffinity(),
        LABELLED,
        (EventResource.ASSIGNED_POD, None, nb.pod("b", {"app": "b"})),
    ),
    "a neighbour that matched before its labels changed": (
        InterPodAffinity(),
        LABELLED,
        (
            EventResource.ASSIGNED_POD,
            nb.pod("b", {"app": "a"}),
            nb.pod("b", {"app": "a", "version": "2"}),
        ),
    ),
    "a pod that still repels after its labels changed": (
        InterPodAffinity(),
        nb.pod("p", {"app": "a"}, affinity=nb.required(apart=[nb.near(nb.ZONE, app="a")])),
        (
            EventResource.ASSIGNED_POD,
            nb.pod("b", {"app": "a"}),
            nb.pod("b", {"app": "a", "version": "2"}),
        ),
    ),
    "a neighbour in another namespace": (
        InterPodAffinity(),
        LABELLED,
        (EventResource.ASSIGNED_POD, None, nb.pod("b", {"app": "a"}, "other")),
    ),
    "a pod that the constraint does not count": (
        PodTopologySpread(),
        SPREADING,
        (EventResource.ASSIGNED_POD, nb.pod("b", {"app": "b"}), None),
    ),
    "a node without the topology key": (
        PodTopologySpread(),
        SPREADING,
        (EventResource.NODE, None, nb.node("n")),
    ),
    "a node with an unchanged domain": (
        PodTopologySpread(),
        SPREADING,
        (EventResource.NODE, ZONED, nb.node("n", {nb.ZONE: "x", "a": "b"})),
    ),
    "a member of another gang": (
        GangScheduling(),
        nb.pod("p", {POD_GROUP_LABEL: "g"}),
        (EventResource.UNSCHEDULED_POD, None, nb.pod("b", {POD_GROUP_LABEL: "h"})),
    ),
    "another label of a gated pod": (
        SchedulingGates(),
        pod("p", schedulingGates=[{"name": "g"}]),
        (EventResource.TARGET_POD, nb.pod("p"), nb.pod("p", {"a": "b"})),
    ),
    "a pod that leaves another node than the one that is kept": (
        DefaultPreemption(),
        pod("p"),
        (EventResource.ASSIGNED_POD, pod("b", nodeName="n0"), None),
    ),
}


@pytest.mark.parametrize("plugin, one, change", HOPELESS.values(), ids=HOPELESS)
def test_a_change_that_cannot_help_does_not_requeue_the_pod(plugin, one, change):
    assert not helped(plugin, one, [change])


AFAR = nb.required(together=[nb.near(nb.ZONE, app="a") | {"namespaceSelector": {"matchLabels": {"t": "1"}}}])


def namespace(name: str, **labels: str) -> Namespace:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)


# name: plugin, the pod, what changed; each may open a node.
HOPEFUL: dict[str, tuple[Any, Pod, Any]] = {
    "labels of its own namespace": (
        InterPodAffinity(),
        LABELLED,
        (EventResource.NAMESPACE, namespace("default"), namespace("default", t="1")),
    ),
    "labels of a namespace that its terms may select": (
        InterPodAffinity(),
        nb.pod("p", {"app": "a"}, affinity=AFAR),
        (EventResource.NAMESPACE, namespace("other"), namespace("other", t="1")),
    ),
    "a driver that takes over a kind of volume": (
        VolumeBinding(),
        claiming("p", "c"),
        (EventResource.CSI_NODE, csi_node("n"), csi_node("n", migrated="kubernetes.io/gce-pd")),
    ),
    "a node that gets a driver": (
        NodeVolumeLimits(),
        claiming("p", "c"),
        (EventResource.CSI_NODE, csi_node("n", driver="other"), csi_node("n")),
    ),
    "the drivers of a new node": (
        NodeVolumeLimits(),
        claiming("p", "c"),
        (EventResource.CSI_NODE, None, csi_node("n")),
    ),
    "a driver that need not be installed any more": (
        NodeVolumeLimits(),
        claiming("p", "c"),
        (EventResource.CSI_DRIVER, driver(must_be_installed=True), driver()),
    ),
    "a driver that had to be installed, and is gone": (
        NodeVolumeLimits(),
        claiming("p", "c"),
        (EventResource.CSI_DRIVER, driver(must_be_installed=True), None),
    ),
    "a kind of volume that is not migrated any more": (
        VolumeBinding(),
        claiming("p", "c"),
        (EventResource.CSI_NODE, csi_node("n", migrated="kubernetes.io/gce-pd"), csi_node("n")),
    ),
}


@pytest.mark.parametrize("plugin, one, change", HOPEFUL.values(), ids=HOPEFUL)
def test_a_change_that_may_help_requeues_the_pod(plugin, one, change):
    assert helped(plugin, one, [change])


def test_a_new_member_or_a_lower_minimum_requeues_a_pod_refused_by_gang_scheduling():
    member = nb.pod("p", {POD_GROUP_LABEL: "g"})
    gangs = [
        PodGroup.model_validate({"metadata": {"name": "g"}, "spec": {"minMember": size}}) for size in (2, 1)
    ]
    for change in (
        (EventResource.UNSCHEDULED_POD, None, nb.pod("q", {POD_GROUP_LABEL: "g"})),
        (EventResource.ASSIGNED_POD, None, nb.pod("q", {POD_GROUP_LABEL: "g"})),
        (EventResource.POD_GROUP, *gangs),
    ):
        assert helped(GangScheduling(), member, [change])


def test_every_plugin_that_may_refuse_registers_its_events():
    points = ("preenqueue", "prefilter", "filter", "reserve", "permit")
    silent = [
        plugin_name(one)
        for one in standard_pipeline().plugins
        if any(hasattr(one, point) for point in points) and not hasattr(one, "events_to_register")
    ]
    assert silent == []


def test_the_random_clusters_try_every_plugin():
    opened: Counter[int] = Counter()
    for seed in range(150):
        upheaval = Upheaval.begin(seed)
        for _ in range(STEPS):
            made = upheaval.table()
            was = [passes(plugin, upheaval.target, made) for plugin in PLUGINS]
            upheaval.change()
            after = upheaval.table()
            for at, plugin in enumerate(PLUGINS):
                refused = set(made.names) - was[at]
                opened[at] += bool(refused and passes(plugin, upheaval.target, after) - was[at])
    assert {PLUGINS[at].name for at in range(len(PLUGINS)) if opened[at] < 3} == set()

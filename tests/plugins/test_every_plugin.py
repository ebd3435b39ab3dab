"""What holds for every Filter and Score that looks at nodes one by one, drawn at random."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.framework.constrain import ALL_NODES, Batch, Candidate
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.balanced_allocation import BalancedAllocation
from batchsched.plugins.image_locality import ImageLocality
from batchsched.plugins.node_affinity import NodeAffinity
from batchsched.plugins.node_name import NodeName
from batchsched.plugins.node_ports import NodePorts
from batchsched.plugins.node_resources_fit import NodeResourcesFit
from batchsched.plugins.node_unschedulable import NodeUnschedulable
from batchsched.plugins.node_volume_limits import NodeVolumeLimits
from batchsched.plugins.taint_toleration import TaintToleration
from batchsched.plugins.volume_binding import VolumeBinding
from batchsched.plugins.volume_restrictions import VolumeRestrictions
from batchsched.plugins.volume_zone import VolumeZone
from tests.plugins.cluster import class_of, filtered, land, node, pod, table
from tests.plugins.storage import DRIVER, ZONE, claim, csi_node, volume, with_objects

FILTERS: tuple[Any, ...] = (
    NodeName,
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
)
# A node that is full takes a pod whose volumes are there, so a pod that lands though it does not fit may help others;
# that one which fits helps nobody stands with the plugin's own tests.
LASTING = tuple(kind for kind in FILTERS if kind is not NodeVolumeLimits)
SCORES: tuple[Any, ...] = (TaintToleration, NodeAffinity, NodeResourcesFit, BalancedAllocation, ImageLocality)
BULK: tuple[Any, ...] = (NodePorts, NodeResourcesFit, VolumeRestrictions, NodeVolumeLimits, VolumeBinding)
CONSTRAINING: tuple[Any, ...] = (NodePorts, VolumeRestrictions, NodeVolumeLimits)
GPU = "nvidia.com/gpu"
CLAIMS = (
    claim("once", "v-once", accessModes=["ReadWriteOncePod"]),
    claim("many", "v-many", accessModes=["ReadWriteMany"]),
)
PERSISTENT_VOLUMES = (
    volume("v-once", labels={ZONE: "z0"}, csi={"driver": DRIVER, "volumeHandle": "h0"}),
    volume("v-many", zones=["z1"], csi={"driver": DRIVER, "volumeHandle": "h1"}),
)

EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.fixed_dictionaries({"key": st.sampled_from("ab"), "value": st.just("v"), "effect": EFFECTS})
AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "500m", "1", "3"]),
        "memory": st.sampled_from(["1Gi", "3Gi"]),
        GPU: st.sampled_from(["1", "2"]),
    },
)
PORTS = st.fixed_dictionaries(
    {"containerPort": st.just(1), "hostPort": st.sampled_from([0, 80, 81])},
    optional={"hostIP": st.sampled_from(["10.0.0.1", "10.0.0.2"]), "protocol": st.sampled_from(["UDP"])},
)
VOLUME_SOURCES: list[dict[str, Any]] = [
    {"gcePersistentDisk": {"pdName": "d"}},
    {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
    {"awsElasticBlockStore": {"volumeID": "d"}},
    {"rbd": {"monitors": ["m", "n"], "image": "i"}},
    {"rbd": {"monitors": ["n"], "image": "i", "readOnly": True}},
    {"persistentVolumeClaim": {"claimName": "once"}},
    {"persistentVolumeClaim": {"claimName": "many"}},
    {"emptyDir": {}},
]
VOLUMES = st.sampled_from(VOLUME_SOURCES).map(lambda source: {"name": "v", **source})
TERMS = st.sampled_from(["z0", "z1"]).map(
    lambda zone: {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
)


@st.composite
def nodes(draw: Any, number: int) -> Any:
    return node(
        f"n{number}",
        {
            "cpu": draw(st.sampled_from(["1", "4"])),
            "memory": "8Gi",
            "pods": draw(st.sampled_from(["2", "9"])),
            GPU: draw(st.sampled_from(["0", "2"])),
        },
        draw(st.sampled_from([{}, {"zone": "z0", ZONE: "z0"}, {"zone": "z1", ZONE: "z1"}, {"zone": "z0"}])),
        draw(st.sampled_from([(), ({"names": ["app:1"], "sizeBytes": 2**30},)])),
        taints=draw(st.lists(TAINTS, max_size=2)),
        unschedulable=draw(st.booleans()),
    )


@st.composite
def pods(draw: Any, name: str = "x") -> Any:
    container = {
        "name": "c",
        "image": draw(st.sampled_from(["app:1", "app"])),
        "resources": {"requests": draw(AMOUNTS)},
        "ports": draw(st.lists(PORTS, max_size=2)),
    }
    required = {"nodeSelectorTerms": draw(st.lists(TERMS, min_size=1, max_size=2))}
    preferred = [{"weight": 5, "preference": draw(TERMS)}]
    affinity: dict[str, Any] = {}
    if draw(st.booleans()):
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = required
    if draw(st.booleans()):
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    spec: dict[str, Any] = {"affinity": {"nodeAffinity": affinity}} if affinity else {}
    return pod(
        name,
        containers=[container],
        nodeName=draw(st.sampled_from(["", "", "n0", "gone"])),
        tolerations=draw(st.lists(st.just({"key": "a", "operator": "Exists"}), max_size=1)),
        volumes=draw(st.lists(VOLUMES, max_size=2)),
        **spec,
    )


@st.composite
def clusters(draw: Any) -> Any:
    count = draw(st.integers(1, 4))
    bound: dict[str, list[Any]] = {}
    for at in range(draw(st.integers(0, 4))):
        bound.setdefault(f"n{draw(st.integers(0, count - 1))}", []).append(draw(pods(f"b{at}")))
    made = table([draw(nodes(at)) for at in range(count)], bound, [GPU], CLAIMS)
    limits = draw(st.lists(st.sampled_from([None, 0, 1, 2]), max_size=count))
    drivers = tuple(csi_node(f"n{at}", limit) for at, limit in enumerate(limits))
    stored = {"persistent_volumes": PERSISTENT_VOLUMES, "csi_nodes": drivers}
    made.snapshot = with_objects(made.snapshot, stored)
    return made


def verdicts(plugin: Any, one: Any, made: Any) -> list[tuple[Any, ...]]:
    found = filtered(plugin, one, made)
    return [(found.reasons_at(at), bool(found.unresolvable[at])) for at in range(len(made.nodes))]


@pytest.mark.properties
@given(made=clusters(), one=pods(), data=st.data())
def test_many_nodes_at_once_are_judged_like_each_alone(made, one, data):
    chosen = np.asarray(data.draw(st.lists(st.integers(0, len(made.nodes) - 1), unique=True)), np.int32)
    for kind in FILTERS:
        everyone = verdicts(kind(), one, made)
        for at in range(len(made.nodes)):
            alone = filtered(kind(), one, made, made.one(at))
            assert (alone.reasons_at(0), bool(alone.unresolvable[0])) == everyone[at], kind.name
        some = filtered(kind(), one, made, made.some(chosen))
        assert [some.reasons_at(at) for at in range(len(chosen))] == [everyone[at][0] for at in chosen]


@pytest.mark.properties
@given(made=clusters(), one=pods(), data=st.data())
def test_a_nodes_raw_score_does_not_hang_on_who_else_is_scored(made, one, data):
    chosen = np.asarray(data.draw(st.lists(st.integers(0, len(made.nodes) - 1), unique=True)), np.int32)
    for kind in SCORES:
        plugin, state, wish = kind(), CycleState(), class_of(made, one)
        if hasattr(plugin, "prescore") and plugin.prescore(wish, made.all(), state).code is Code.SKIP:
            continue
        everyone = plugin.score(wish, made.all(), state)
        assert plugin.score(wish, made.some(chosen), state).tolist() == everyone[chosen].tolist(), kind.name


@pytest.mark.properties
@given(made=clusters(), one=pods("x"), other=pods("y"))
def test_pods_with_one_signature_hear_the_same_of_every_node(made, one, other):
    for kind in FILTERS:
        if kind().signature(one) == kind().signature(other):
            assert verdicts(kind(), one, made) == verdicts(kind(), other, made), kind.name
    for kind in SCORES:
        if kind().signature(one) == kind().signature(other):
            answers = [
                kind().score(class_of(made, each), made.all(), CycleState()).tolist() for each in (one, other)
            ]
            assert answers[0] == answers[1], kind.name


@pytest.mark.properties
@given(made=clusters(), one=pods(), other=pods("y"), at=st.integers(0, 3))
def test_a_refusal_outlives_every_landing(made, one, other, at):
    before = {kind: filtered(kind(), one, made).fits for kind in LASTING}
    land(made, other, made.names[at % len(made.nodes)])
    for kind in LASTING:
        assert not (filtered(kind(), one, made).fits & ~before[kind]).any(), kind.name


@pytest.mark.properties
@given(made=clusters(), one=pods(), data=st.data())
def test_several_pods_are_admitted_exactly_when_each_would_be(made, one, data):
    counts = np.asarray([data.draw(st.integers(0, 2)) for _ in made.nodes], np.int32)
    places = np.arange(len(made.nodes), dtype=np.int32)
    wish = class_of(made, one)
    admitted = {kind: kind().admits(wish, made, places, counts) for kind in BULK}
    stepwise = dict.fromkeys(BULK, True)
    for at in np.repeat(places, counts).tolist():
        for kind in BULK:
            stepwise[kind] &= bool(filtered(kind(), one, made, made.one(at)).fits[0])
        land(made, pod_named(one, f"landed-{len(made.pods)}"), made.names[at])
    assert admitted == stepwise


@pytest.mark.properties
@given(made=clusters(), wishes=st.lists(pods(), min_size=1, max_size=3), data=st.data())
def test_rows_hold_for_whatever_the_filters_let_pass(made, wishes, data):
    batch = Batch([Candidate(at, class_of(made, one), at, 3, False) for at, one in enumerate(wishes)])
    rows = [row for kind in CONSTRAINING for row in kind().constrain(batch, made.all())]
    placed = np.zeros((len(wishes), len(made.nodes)), np.int64)
    for step in range(data.draw(st.integers(0, 6))):
        index = data.draw(st.integers(0, len(wishes) - 1))
        at = data.draw(st.integers(0, len(made.nodes) - 1))
        if all(filtered(kind(), wishes[index], made, made.one(at)).fits[0] for kind in CONSTRAINING):
            land(made, pod_named(wishes[index], f"placed-{step}"), made.names[at])
            placed[index, at] += 1
    for row in rows:
        left = row.coefficients @ placed[row.classes]
        assert ((left.sum() if row.partition == ALL_NODES else left) <= row.right).all()


def pod_named(one: Any, name: str) -> Any:
    """The same pod under another name."""
    return type(one)(metadata=type(one.metadata)(name=name, namespace="default"), spec=one.spec)

"""Whole clusters drawn at random: everything that a default plugin looks at, and pods of every kind."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from batchsched.api.core.cluster_objects import Namespace, ReplicaSet, Service
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.framework.nodes.node_table import NodeTable
from tests.conformance.runner import resource_names
from tests.plugins.cluster import put
from tests.plugins.neighbours import HOST, RACK, SPREADS, TERMS, ZONE
from tests.plugins.storage import DRIVER, attachment, claim, csi_node, storage_class, volume

GPU, PAGES = "example.com/gpu", "hugepages-2Mi"
REGION = "topology.kubernetes.io/region"
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")

STORAGE: dict[str, tuple[Any, ...]] = {
    "storage_classes": (storage_class("late"), storage_class("now", volumeBindingMode="Immediate")),
    "persistent_volume_claims": (
        claim("once", "pv-once", accessModes=["ReadWriteOncePod"]),
        claim("many", "pv-many", accessModes=["ReadWriteMany"]),
        claim("zonal", "pv-zonal"),
        claim("open"),
        claim("big", size="5Gi"),
        claim("unbound", storageClassName="now"),
    ),
    "persistent_volumes": (
        volume("pv-once", labels={ZONE: "x"}, csi={"driver": DRIVER, "volumeHandle": "h0"}),
        volume("pv-many", zones=["y", "z"], csi={"driver": DRIVER, "volumeHandle": "h1"}),
        volume("pv-zonal", labels={ZONE: "x__y", REGION: "r"}, csi={"driver": DRIVER, "volumeHandle": "h2"}),
        volume("pv-free", zones=["x"]),
        volume("pv-large", size="10Gi", zones=["y"]),
    ),
}
SOURCES: tuple[dict[str, Any], ...] = (
    *({"persistentVolumeClaim": {"claimName": one}} for one in ("once", "many", "zonal", "open", "big")),
    {"persistentVolumeClaim": {"claimName": "unbound"}},
    {"persistentVolumeClaim": {"claimName": "gone"}},
    {"ephemeral": {"volumeClaimTemplate": {}}},
    {"gcePersistentDisk": {"pdName": "d"}},
    {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
    {"awsElasticBlockStore": {"volumeID": "d"}},
    {"iscsi": {"iqn": "q", "readOnly": True}},
    {"rbd": {"monitors": ["m", "n"], "image": "i"}},
    {"image": {"reference": "data:1"}},
    {"emptyDir": {}},
)
SERVICES = tuple(
    msgspec.convert(
        {"metadata": {"name": app, "namespace": "default"}, "spec": {"selector": {"app": app}}}, Service
    )
    for app in "ab"
)
SETS = (
    msgspec.convert(
        {
            "metadata": {"name": "set", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"rev": "1"}}},
        },
        ReplicaSet,
    ),
)
AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "250m", "1", "3"]),
        "memory": st.sampled_from(["0", "1Gi", "3Gi", "1500M"]),
        "ephemeral-storage": st.sampled_from(["1Gi", "9Gi"]),
        GPU: st.sampled_from(["0", "1", "2"]),
        PAGES: st.just("4Mi"),
    },
)
PORTS = st.fixed_dictionaries(
    {"containerPort": st.just(1), "hostPort": st.sampled_from([0, 80, 80, 81])},
    optional={
        "hostIP": st.sampled_from(["", "0.0.0.0", "10.0.0.1"]),
        "protocol": st.sampled_from(["TCP", "UDP"]),
    },
)
REQUIREMENTS = st.sampled_from(
    [
        {"key": ZONE, "operator": "In", "values": ["x", "y"]},
        {"key": ZONE, "operator": "NotIn", "values": ["x"]},
        {"key": "disk", "operator": "Exists"},
        {"key": "disk", "operator": "DoesNotExist"},
        {"key": "cores", "operator": "Gt", "values": ["4"]},
        {"key": "cores", "operator": "Lt", "values": ["x"]},
    ]
)
FIELDS = st.sampled_from(["n0", "n1", "n9"]).map(
    lambda name: {"key": "metadata.name", "operator": "In", "values": [name]}
)
NODE_TERMS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.lists(REQUIREMENTS, min_size=1, max_size=2).map(lambda some: {"matchExpressions": some}),
    FIELDS.map(lambda one: {"matchFields": [one]}),
    st.tuples(REQUIREMENTS, FIELDS).map(lambda two: {"matchExpressions": [two[0]], "matchFields": [two[1]]}),
    st.just({}),
)
TOLERATIONS = st.fixed_dictionaries(
    {"operator": st.sampled_from(["Exists", "Equal"])},
    optional={
        "key": st.sampled_from(["own", "soft"]),
        "value": st.sampled_from(["v", "w"]),
        "effect": st.sampled_from(EFFECTS),
    },
)
WEIGHTED = st.tuples(st.integers(1, 100), TERMS).map(
    lambda pair: {"weight": pair[0], "podAffinityTerm": pair[1]}
)
NEIGHBOURLY = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.lists(TERMS, max_size=2),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(WEIGHTED, max_size=2),
    },
)
NODE_AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.lists(NODE_TERMS, min_size=1, max_size=2).map(
            lambda terms: {"nodeSelectorTerms": terms}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.tuples(st.integers(1, 100), NODE_TERMS).map(
                lambda pair: {"weight": pair[0], "preference": pair[1]}
            ),
            max_size=2,
        ),
    },
)
LABELS = st.fixed_dictionaries(
    {},
    optional={"app": st.sampled_from("abc"), "rev": st.sampled_from("12"), "unread": st.sampled_from("12")},
)
IMAGES = st.sampled_from(["app:1", "app", "registry.local/app:1", "tool"])


@st.composite
def containers(draw: st.DrawFn, name: str) -> dict[str, Any]:
    stated: dict[str, Any] = {"name": name, "image": draw(IMAGES), "resources": {"requests": draw(AMOUNTS)}}
    if draw(st.booleans()):
        stated["ports"] = draw(st.lists(PORTS, max_size=2))
    return stated


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A pod's spec: each part of it is there in about every third pod."""
    spec: dict[str, Any] = {"containers": [draw(containers("c"))]}

    def some(name: str, strategy: Any) -> None:
        if draw(st.integers(0, 2)) == 0:
            spec[name] = draw(strategy)

    if draw(st.integers(0, 3)) == 0:
        spec["containers"].append(draw(containers("d")))
        spec["initContainers"] = [
            {**draw(containers("i")), **draw(st.sampled_from([{}, {"restartPolicy": "Always"}]))}
        ]
    some("overhead", st.just({"cpu": "100m", "memory": "64Mi"}))
    some("resources", st.just({"requests": {"cpu": "2"}}))
    some("nodeSelector", st.sampled_from([{"disk": "ssd"}, {}]))
    some("tolerations", st.lists(TOLERATIONS, max_size=2))
    some("topologySpreadConstraints", st.lists(SPREADS, min_size=1, max_size=2))
    some(
        "affinity",
        st.fixed_dictionaries(
            {},
            optional={
                "nodeAffinity": NODE_AFFINITY,
                "podAffinity": NEIGHBOURLY,
                "podAntiAffinity": NEIGHBOURLY,
            },
        ),
    )
    some(
        "volumes",
        st.lists(st.sampled_from(SOURCES), max_size=2).map(
            lambda sources: [{"name": f"v{at}", **source} for at, source in enumerate(sources)]
        ),
    )
    some("priority", st.sampled_from([0, 10]))
    if draw(st.integers(0, 7)) == 0:
        spec["hostNetwork"], spec["hostUsers"] = True, False
    return spec


@st.composite
def metadata(draw: st.DrawFn, name: str) -> dict[str, Any]:
    stated: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "namespace": draw(st.sampled_from(["default", "default", "default", "other"])),
        "labels": draw(LABELS),
    }
    if draw(st.integers(0, 3)) == 0:
        stated["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": draw(st.sampled_from(["set", "gone"])),
                "controller": True,
            }
        ]
    return stated


@st.composite
def pods(draw: st.DrawFn, name: str = "x", on: str = "") -> Pod:
    """A pod that waits, or one on a node; now and then that one is being deleted."""
    spec, stated = draw(specs()), draw(metadata(name))
    if on:
        spec["nodeName"] = on
        if draw(st.integers(0, 4)) == 0:
            stated["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    elif draw(st.integers(0, 9)) == 0:
        spec["nodeName"] = draw(st.sampled_from(["n0", "gone"]))
    return msgspec.convert({"metadata": stated, "spec": spec}, Pod)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    labels = draw(
        st.fixed_dictionaries(
            {},
            optional={
                HOST: st.just(name),
                ZONE: st.sampled_from(["x", "y", "z", ""]),
                REGION: st.just("r"),
                RACK: st.sampled_from(["r1", "r2"]),
                "disk": st.just("ssd"),
                "cores": st.sampled_from(["8", "many"]),
            },
        )
    )
    taints = st.fixed_dictionaries(
        {"key": st.sampled_from(["own", "soft"]), "effect": st.sampled_from(EFFECTS)},
        optional={"value": st.just("v")},
    )
    room = {
        "cpu": draw(st.sampled_from(["0", "2", "7"])),
        "memory": draw(st.sampled_from(["4Gi", "16Gi"])),
        "pods": draw(st.sampled_from(["1", "3", "20"])),
        "ephemeral-storage": "10Gi",
    }
    more = draw(st.fixed_dictionaries({}, optional={GPU: st.just("2"), PAGES: st.just("8Mi")}))
    names = st.sampled_from([["app:1"], ["app:latest", "app@sha256:aa"], ["data:1"]])
    images = [
        {"names": one, "sizeBytes": draw(st.sampled_from([2**20, 2**28, 2**31]))}
        for one in draw(st.lists(names, max_size=2, unique_by=tuple))
    ]
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "taints": draw(st.one_of(st.just([]), st.lists(taints, max_size=2))),
                "unschedulable": draw(st.integers(0, 5)) == 0,
            },
            "status": {
                "allocatable": {**room, **more},
                "images": images,
                "declaredFeatures": draw(st.sampled_from([[], ["UserNamespacesHostNetworkSupport"]])),
            },
        },
        Node,
    )


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to five nodes, pods on some of them, and the objects that pods may refer to; what refers to what is random."""
    names = [f"n{at}" for at in range(draw(st.integers(1, 5)))]
    drivers = [
        csi_node(name, draw(st.sampled_from([None, 0, 1, 2]))) for name in names if draw(st.booleans())
    ]
    attached = [attachment(name, "pv-many") for name in names if draw(st.integers(0, 3)) == 0]
    return Snapshot(
        nodes=tuple(draw(nodes(name)) for name in names),
        pods=tuple(
            draw(pods(f"b{at}", draw(st.sampled_from(names)))) for at in range(draw(st.integers(0, 5)))
        ),
        namespaces=tuple(
            msgspec.convert({"metadata": {"name": "other", "labels": {"team": "x"}}}, Namespace)
            for _ in range(draw(st.integers(0, 1)))
        ),
        services=SERVICES[: draw(st.integers(0, 2))],
        replica_sets=SETS[: draw(st.integers(0, 1))],
        csi_nodes=tuple(drivers),
        volume_attachments=tuple(attached),
        **STORAGE,
    )


def table_of(snapshot: Snapshot, *others: Pod) -> NodeTable:
    """A table with the cluster's bound pods on it; `others` may come to it later."""
    made = NodeTable(snapshot, resource_names(snapshot.nodes, (*snapshot.pods, *others)))
    for one in snapshot.pods:
        if one.node in made.index:
            put(made, one, made.index[one.node])
    return made

"""Snapshots drawn at random, in every kind that is read."""

from hypothesis import strategies as st

from batchsched.api.core.cluster_objects import (
    Namespace,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PriorityClass,
    ReplicaSet,
    Service,
    SpecWithLabelSelector,
    StatefulSet,
)
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.node import Node, NodeSpec, NodeStatus, Taint
from batchsched.api.core.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements, Toleration
from batchsched.api.core.selector import LabelSelector
from batchsched.api.core.volume import (
    CSIDriver,
    CSIDriverSpec,
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeNodeResources,
)
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.crd.topology import Topology
from batchsched.api.snapshot import Snapshot

NAMES = st.sampled_from(["a", "b", "c-1", "d.e"])
DNS_LABELS = st.sampled_from(["a", "b", "c-1", "4"])
NAMESPACES = st.sampled_from(["", "default", "team-a"])
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]),
    st.sampled_from(["0", "500m", "1.5Gi", "8", 4, 0.5]),
    max_size=2,
)
# No pod requests a fraction of a device.
POD_AMOUNTS = AMOUNTS.map(
    lambda amounts: amounts | ({"nvidia.com/gpu": "8"} if "nvidia.com/gpu" in amounts else {})
)
# The API server takes no fractions as numbers in custom resources.
CUSTOM_AMOUNTS = AMOUNTS.map(
    lambda amounts: {name: str(one) if isinstance(one, float) else one for name, one in amounts.items()}
)
LABELS = st.none() | st.dictionaries(
    st.sampled_from(["app", "zone"]), st.sampled_from(["", "x", "Y_1.z"]), max_size=2
)
# Text that needs escapes in some formats.
ANNOTATIONS = st.none() | st.just({"example.com/note": "ü <&>"})
SELECTORS = st.none() | st.builds(LabelSelector, match_labels=LABELS)


def metas(namespaced, names=NAMES):
    return st.builds(
        ObjectMeta,
        name=names,
        annotations=ANNOTATIONS,
        namespace=NAMESPACES if namespaced else st.just(""),
        labels=LABELS,
        creation_timestamp=st.none() | st.just("2026-01-01T00:00:00Z"),
    )


NODES = st.builds(
    Node,
    metadata=metas(namespaced=False),
    spec=st.builds(
        NodeSpec,
        unschedulable=st.booleans(),
        taints=st.none() | st.just((Taint(key="k", value="v", effect="NoSchedule"),)),
    ),
    status=st.builds(NodeStatus, allocatable=st.none() | AMOUNTS),
)
CONTAINERS = st.builds(
    Container,
    name=DNS_LABELS,
    resources=st.none() | st.builds(ResourceRequirements, requests=st.none() | POD_AMOUNTS),
)
SPECS = st.builds(
    PodSpec,
    node_name=st.sampled_from(["", "a"]),
    scheduler_name=st.just("batchsched"),
    containers=st.lists(CONTAINERS, max_size=2, unique_by=lambda one: one.name).map(tuple),
    init_containers=st.none()
    | st.lists(st.builds(Container, name=st.just("init"), resources=st.none()), min_size=1, max_size=1).map(
        tuple
    ),
    node_selector=LABELS,
    tolerations=st.none() | st.just((Toleration(key="k", operator="Exists"),)),
    priority=st.none() | st.integers(-(2**31), 2**31 - 1),
)
PODS = st.builds(
    Pod,
    metadata=metas(namespaced=True),
    spec=SPECS,
    status=st.builds(PodStatus, phase=st.sampled_from(["", "Pending", "Running"])),
)


def custom(model, specs, namespaced=False):
    metadata = {
        "name": NAMES,
        "labels": LABELS.map(lambda labels: labels or {}),
        "annotations": ANNOTATIONS.map(lambda annotations: annotations or {}),
    }
    if namespaced:
        metadata["namespace"] = NAMESPACES
    return st.builds(
        lambda meta, spec: model.model_validate({"metadata": meta, "spec": spec}),
        st.fixed_dictionaries(metadata),
        specs,
    )


POD_GROUPS = custom(
    PodGroup,
    st.fixed_dictionaries(
        {},
        optional={
            "minMember": st.integers(3, 9),
            "queue": NAMES,
            "minResources": CUSTOM_AMOUNTS,
            "topology": st.just({"required": "rack"}),
            "subGroups": st.just(
                [{"name": "a", "minMember": 2}, {"name": "b", "topology": {"preferred": "rack"}}]
            ),
        },
    ),
    namespaced=True,
)
QUEUES = custom(
    Queue, st.fixed_dictionaries({}, optional={"weight": st.floats(0, 9), "limit": CUSTOM_AMOUNTS})
)
TOPOLOGIES = custom(Topology, st.just({"levels": [{"name": "rack", "nodeLabel": "zone"}]}))


def distinct(objects):
    """Draw up to three objects, no two of one namespace and name."""
    return st.lists(
        objects, max_size=3, unique_by=lambda one: (one.metadata.namespace or "default", one.metadata.name)
    ).map(tuple)


def plain(kind, namespaced=True, **fields):
    return distinct(st.builds(kind, metadata=metas(namespaced), **fields))


SNAPSHOTS = st.builds(
    Snapshot,
    nodes=distinct(NODES),
    pods=distinct(PODS),
    pod_groups=distinct(POD_GROUPS),
    queues=distinct(QUEUES),
    topologies=distinct(TOPOLOGIES),
    priority_classes=plain(PriorityClass, namespaced=False, value=st.integers(-9, 9)),
    pod_disruption_budgets=plain(
        PodDisruptionBudget, spec=st.builds(PodDisruptionBudgetSpec, selector=SELECTORS)
    ),
    namespaces=distinct(st.builds(Namespace, metadata=metas(False, DNS_LABELS))),
    services=plain(Service),
    replica_sets=plain(ReplicaSet, spec=st.builds(SpecWithLabelSelector, selector=SELECTORS)),
    stateful_sets=plain(StatefulSet),
    persistent_volumes=plain(PersistentVolume, namespaced=False),
    persistent_volume_claims=plain(PersistentVolumeClaim),
    storage_classes=plain(
        StorageClass,
        namespaced=False,
        provisioner=NAMES,
        volume_binding_mode=st.sampled_from(["Immediate", "WaitForFirstConsumer"]),
        allowed_topologies=st.none()
        | st.just(
            (
                TopologySelectorTerm(
                    match_label_expressions=(TopologySelectorLabelRequirement(key="zone", values=("x",)),)
                ),
            )
        ),
    ),
    csi_nodes=plain(
        CSINode,
        namespaced=False,
        spec=st.builds(
            CSINodeSpec,
            drivers=st.just(())
            | st.just((CSINodeDriver(name="d", node_id="n", allocatable=VolumeNodeResources(count=0)),)),
        ),
    ),
    csi_drivers=plain(
        CSIDriver,
        namespaced=False,
        spec=st.builds(
            CSIDriverSpec,
            storage_capacity=st.none() | st.booleans(),
            prevent_pod_scheduling_if_missing=st.none() | st.booleans(),
        ),
    ),
    csi_storage_capacities=plain(
        CSIStorageCapacity,
        node_topology=SELECTORS,
        storage_class_name=NAMES,
        capacity=st.none() | st.just("1Gi"),
    ),
    volume_attachments=plain(
        VolumeAttachment,
        namespaced=False,
        spec=st.builds(
            VolumeAttachmentSpec,
            attacher=NAMES,
            node_name=NAMES,
            source=st.builds(VolumeAttachmentSource, persistent_volume_name=st.none() | NAMES),
        ),
    ),
)

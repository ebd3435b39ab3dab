"""Storage objects for plugin tests, written as Kubernetes writes them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from batchsched.api.snapshot import Snapshot
from batchsched.framework.nodes.node_table import NodeTable
from tests.plugins.cluster import pod, table

ZONE = "topology.kubernetes.io/zone"
DRIVER = "csi.example.com"
FIELDS: dict[type, str] = {
    CSIDriver: "csi_drivers",
    CSINode: "csi_nodes",
    CSIStorageCapacity: "csi_storage_capacities",
    VolumeAttachment: "volume_attachments",
    PersistentVolume: "persistent_volumes",
    PersistentVolumeClaim: "persistent_volume_claims",
    StorageClass: "storage_classes",
}


def storage_class(name: str = "late", **fields: Any) -> StorageClass:
    """A storage class with the mode WaitForFirstConsumer, unless `fields` state another one."""
    stated = {"provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer", **fields}
    return msgspec.convert({"metadata": {"name": name}, **stated}, StorageClass)


def claim(
    name: str, volume: str = "", size: str = "1Gi", metadata: dict[str, Any] | None = None, **spec: Any
) -> PersistentVolumeClaim:
    """A claim of the class `late`, bound to a volume when one is named."""
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "annotations": annotations,
                **(metadata or {}),
            },
            "spec": {
                "volumeName": volume,
                "storageClassName": "late",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
                **spec,
            },
        },
        PersistentVolumeClaim,
    )


def volume(
    name: str,
    size: str = "1Gi",
    zones: Iterable[str] = (),
    labels: dict[str, str] | None = None,
    phase: str = "Available",
    **spec: Any,
) -> PersistentVolume:
    """A volume of the class `late`, reached from nodes of some zones only when they are named."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(zones)}]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if zones else {}
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {
                "capacity": {"storage": size},
                "storageClassName": "late",
                "accessModes": ["ReadWriteOnce"],
                **affinity,
                **spec,
            },
            "status": {"phase": phase},
        },
        PersistentVolume,
    )


def csi_volume(name: str, handle: str = "", driver: str = DRIVER) -> PersistentVolume:
    """A volume of a CSI driver."""
    return volume(name, csi={"driver": driver, "volumeHandle": handle or name})


def csi_node(name: str, limit: int | None = None, driver: str = DRIVER, migrated: str = "") -> CSINode:
    """A node's drivers: one of them, with a limit or none."""
    allocatable = {} if limit is None else {"allocatable": {"count": limit}}
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    return msgspec.convert(
        {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"drivers": [{"name": driver, "nodeID": name, **allocatable}]},
        },
        CSINode,
    )


def driver(name: str = DRIVER, *, counts: bool = True, must_be_installed: bool = False) -> CSIDriver:
    """A driver that says how much room it has, unless it does not count; pods may need it on their node."""
    spec = {"storageCapacity": counts, "preventPodSchedulingIfMissing": must_be_installed}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, CSIDriver)


def capacity(zone: str, size: str, storage_class: str = "late") -> CSIStorageCapacity:
    """The room that a driver reports for a class in a zone."""
    return msgspec.convert(
        {
            "metadata": {"name": f"{storage_class}-{zone}"},
            "nodeTopology": {"matchLabels": {ZONE: zone}},
            "storageClassName": storage_class,
            "capacity": size,
        },
        CSIStorageCapacity,
    )


def attachment(node: str, volume: str, attacher: str = DRIVER) -> VolumeAttachment:
    """A volume that is attached to a node."""
    return msgspec.convert(
        {
            "metadata": {"name": f"{node}-{volume}"},
            "spec": {
                "attacher": attacher,
                "nodeName": node,
                "source": {"persistentVolumeName": volume},
            },
        },
        VolumeAttachment,
    )


def claiming(name: str, *claims: str, uid: str = "") -> Pod:
    """A pod with a volume for each claim."""
    made = pod(name, volumes=[{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims])
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=uid))


def stored(nodes: Iterable[Node], *objects: Any, **bound: Iterable[Pod]) -> NodeTable:
    """A node table of a cluster with storage objects; `bound` pods by node name."""
    made = table(nodes, bound)
    fields: dict[str, tuple[Any, ...]] = {}
    for one in objects:
        fields[FIELDS[type(one)]] = (*fields.get(FIELDS[type(one)], ()), one)
    made.cluster_objects = with_objects(made.cluster_objects, fields)
    return made


def with_objects(snapshot: Snapshot, fields: dict[str, Any]) -> Snapshot:
    """The snapshot with other objects in some fields."""
    return replace(snapshot, **fields)

"""The kinds of objects that are read, and their fields in a Snapshot."""

from dataclasses import dataclass
from typing import Final

import msgspec
from pydantic import BaseModel

from batchsched.api.core.cluster_objects import (
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from batchsched.api.core.csi import CSIDriver, CSINode, CSIStorageCapacity, VolumeAttachment
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import PersistentVolume, PersistentVolumeClaim, StorageClass
from batchsched.api.crd.base import API_VERSION, GROUP, CustomMeta
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.crd.topology import Topology


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of object.

    Args:
      name: `kind` in manifests.
      api_version: `apiVersion` in written manifests.
      type: the type of the decoded value.
      field: the field of Snapshot that contains the objects.
      namespaced: whether the kind is namespaced.
    """

    name: str
    api_version: str
    type: type[msgspec.Struct] | type[BaseModel]
    field: str
    namespaced: bool = False

    @property
    def group(self) -> str:
        """The API group, "" for the core group."""
        return group_of(self.api_version)

    def key(self, metadata: ObjectMeta | CustomMeta) -> str:
        """Return the key of an object: `namespace/name`, or the name for cluster-scoped kinds."""
        return f"{metadata.namespace or 'default'}/{metadata.name}" if self.namespaced else metadata.name


def group_of(api_version: str) -> str:
    """Return the group of an apiVersion: `apps` for `apps/v1`, "" for `v1`."""
    return api_version.rpartition("/")[0]


ALL: Final = (
    ObjectKind("Node", "v1", Node, "nodes"),
    ObjectKind("Namespace", "v1", Namespace, "namespaces"),
    ObjectKind("PriorityClass", "scheduling.k8s.io/v1", PriorityClass, "priority_classes"),
    ObjectKind("Topology", API_VERSION, Topology, "topologies"),
    ObjectKind("Queue", API_VERSION, Queue, "queues"),
    ObjectKind("PodGroup", API_VERSION, PodGroup, "pod_groups", namespaced=True),
    ObjectKind("StorageClass", "storage.k8s.io/v1", StorageClass, "storage_classes"),
    ObjectKind("PersistentVolume", "v1", PersistentVolume, "persistent_volumes"),
    ObjectKind(
        "PersistentVolumeClaim", "v1", PersistentVolumeClaim, "persistent_volume_claims", namespaced=True
    ),
    ObjectKind("CSINode", "storage.k8s.io/v1", CSINode, "csi_nodes"),
    ObjectKind("CSIDriver", "storage.k8s.io/v1", CSIDriver, "csi_drivers"),
    ObjectKind(
        "CSIStorageCapacity",
        "storage.k8s.io/v1",
        CSIStorageCapacity,
        "csi_storage_capacities",
        namespaced=True,
    ),
    ObjectKind("VolumeAttachment", "storage.k8s.io/v1", VolumeAttachment, "volume_attachments"),
    ObjectKind("Service", "v1", Service, "services", namespaced=True),
    ObjectKind(
        "ReplicationController", "v1", ReplicationController, "replication_controllers", namespaced=True
    ),
    ObjectKind("ReplicaSet", "apps/v1", ReplicaSet, "replica_sets", namespaced=True),
    ObjectKind("StatefulSet", "apps/v1", StatefulSet, "stateful_sets", namespaced=True),
    ObjectKind(
        "PodDisruptionBudget", "policy/v1", PodDisruptionBudget, "pod_disruption_budgets", namespaced=True
    ),
    ObjectKind("Pod", "v1", Pod, "pods", namespaced=True),
)
BY_GROUP_AND_NAME: Final = {(kind.group, kind.name): kind for kind in ALL}
OURS: Final = GROUP

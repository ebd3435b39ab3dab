"""Snapshot, the frozen input of a decision, and the kinds of objects that it contains."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

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
from batchsched.api.core.device import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.node import Node
from batchsched.api.core.node_resource_topology import GROUP_VERSION, NodeResourceTopology
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
from batchsched.api.crd.base import API_VERSION, CustomMeta
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.crd.topology import Topology
from batchsched.api.decision import Reservation, SetAside
from batchsched.api.pod_devices import ReservedPodDevices


@dataclass(frozen=True, slots=True)
class HeldGangPod:
    """A pod that waits at Permit, and the node on which its resources are reserved."""

    pod: str  # namespace/name
    node: str


@dataclass(frozen=True, slots=True)
class HeldGang:
    """A gang that waits at Permit, with its deadline and the nodes that are reserved for its pods.

    Args:
      pod_group: namespace/name of the PodGroup or of the single pod.
      plugin: the plugin that answered Wait.
      until: deadline in seconds since 1970; after it the gang is rolled back.
      pods: the pods and their nodes.
    """

    pod_group: str
    plugin: str
    until: float
    pods: tuple[HeldGangPod, ...]


@dataclass(frozen=True, slots=True)
class PastQueueUsage:
    """The past usage of one resource by one queue, as a mean over time in which older usage counts less.

    Args:
      queue: name of the queue; usage of its descendants is not included.
      resource: name of the resource.
      amount: decayed mean in base units.
    """

    queue: str
    resource: str
    amount: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a cluster at one time: the input of a session. The order of objects does not affect a decision.

    `pods` are all pods that are not finished. `held` are gangs that wait at Permit since an earlier session. `resting`
    are the identities (`namespace/name`, with the prefix `pod/` for a single pod) of gangs that do not take part,
    because no event since their refusal may help them; in strict queues and under `blocking`, gangs behind them wait
    for them. `rejected` are gangs with a last session that failed, or in which a plugin rejected them although they had
    room; while they rest, no gang waits for them. `usage` is decayed usage of queues; it is empty unless a policy uses
    it. `reservations` are those of the previous session, in its order. `refused_evictions` are the keys of pods that
    are no victims for some minutes, because the API server refused to evict them. `chosen_policy` is the candidate that
    the gang order `auto` uses; "" for its first one. `pod_devices` are the devices that earlier sessions reserved for
    placed pods and that the claims do not show yet.
    """

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    queues: tuple[Queue, ...] = ()
    topologies: tuple[Topology, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    services: tuple[Service, ...] = ()
    replication_controllers: tuple[ReplicationController, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    stateful_sets: tuple[StatefulSet, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CSINode, ...] = ()
    csi_drivers: tuple[CSIDriver, ...] = ()
    csi_storage_capacities: tuple[CSIStorageCapacity, ...] = ()
    volume_attachments: tuple[VolumeAttachment, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    resource_slices: tuple[ResourceSlice, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    resource_claim_templates: tuple[ResourceClaimTemplate, ...] = ()
    device_taint_rules: tuple[DeviceTaintRule, ...] = ()
    node_resource_topologies: tuple[NodeResourceTopology, ...] = ()
    held: tuple[HeldGang, ...] = ()
    resting: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    usage: tuple[PastQueueUsage, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    refused_evictions: tuple[str, ...] = ()
    chosen_policy: str = ""
    pod_devices: tuple[ReservedPodDevices, ...] = ()
    set_aside: tuple[SetAside, ...] = ()

    def sorted_by_key(self) -> "Snapshot":
        """Return the Snapshot with the objects of each kind sorted by key, as in a list from the API server.

        Among equally good nodes, the first one is chosen, so a session sorts the objects before it reads them.
        """
        objects: dict[str, Any] = {
            kind.field: kind.sort_by_key(getattr(self, kind.field)) for kind in OBJECT_KINDS
        }
        return replace(
            self,
            **objects,
            set_aside=tuple(sorted(self.set_aside, key=msgspec.structs.astuple)),
        )


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of Kubernetes object that a Snapshot contains.

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
        """The API group of the kind, "" for the core group."""
        return api_group(self.api_version)

    def object_key(self, metadata: ObjectMeta | CustomMeta) -> str:
        """Return the key of an object of this kind: `namespace/name`, or the name if the kind is cluster-scoped."""
        return f"{metadata.namespace or 'default'}/{metadata.name}" if self.namespaced else metadata.name

    def sort_by_key(self, objects: Iterable[Any]) -> tuple[Any, ...]:
        """Return the given objects sorted by `namespace/name`, or by name if the kind is cluster-scoped."""
        return tuple(sorted(objects, key=lambda item: self.object_key(item.metadata)))


def api_group(api_version: str) -> str:
    """Return the API group of an `apiVersion`: `apps` for `apps/v1`, "" for `v1`."""
    return api_version.rpartition("/")[0]


OBJECT_KINDS: Final = (
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
    ObjectKind("DeviceClass", "resource.k8s.io/v1", DeviceClass, "device_classes"),
    ObjectKind("ResourceSlice", "resource.k8s.io/v1", ResourceSlice, "resource_slices"),
    ObjectKind("ResourceClaim", "resource.k8s.io/v1", ResourceClaim, "resource_claims", namespaced=True),
    ObjectKind(
        "ResourceClaimTemplate",
        "resource.k8s.io/v1",
        ResourceClaimTemplate,
        "resource_claim_templates",
        namespaced=True,
    ),
    ObjectKind("DeviceTaintRule", "resource.k8s.io/v1", DeviceTaintRule, "device_taint_rules"),
    ObjectKind("NodeResourceTopology", GROUP_VERSION, NodeResourceTopology, "node_resource_topologies"),
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
DEVICE_FIELDS: Final = frozenset(
    {"device_classes", "resource_slices", "resource_claims", "resource_claim_templates", "device_taint_rules"}
)
"""The fields of Snapshot with the objects of Dynamic Resource Allocation."""
TEMPLATE_FIELDS: Final = frozenset({"resource_claim_templates"})
"""The fields of Snapshot from which objects of other kinds are created, and which no session reads."""
FOLLOWED_FIELDS: Final = (DEVICE_FIELDS - TEMPLATE_FIELDS) | {"node_resource_topologies"}
"""The fields of Snapshot, besides nodes, pods and PodGroups, with objects that a session follows change by change."""
KIND_BY_GROUP_AND_NAME: Final = {(kind.group, kind.name): kind for kind in OBJECT_KINDS}

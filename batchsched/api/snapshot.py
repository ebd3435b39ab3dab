"""Snapshot: the frozen input of a decision."""

from dataclasses import dataclass

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
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import PersistentVolume, PersistentVolumeClaim, StorageClass
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.crd.topology import Topology
from batchsched.api.decision import Reservation, SetAside


@dataclass(frozen=True, slots=True)
class HeldPod:
    """A pod that has passed Reserve and waits at Permit; its resources on the node are reserved."""

    pod: str  # namespace/name
    node: str


@dataclass(frozen=True, slots=True)
class HeldGang:
    """A gang that waits at Permit: its pods count as assumed until the deadline.

    Args:
      pod_group: namespace/name of the PodGroup or of the single pod.
      plugin: the plugin that answered Wait.
      until: deadline in seconds since 1970; after it the gang is rolled back.
      pods: the pods and their nodes.
    """

    pod_group: str
    plugin: str
    until: float
    pods: tuple[HeldPod, ...]


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """The decayed usage of one resource by one queue.

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
    """The state of a cluster at one time. The order of objects affects ties only.

    `pods` are all pods that are not finished. `held` are gangs that wait at Permit since an earlier session.
    `resting` are the identities (`namespace/name`, with the prefix `pod/` for a single pod) of gangs that do not take
    part, because no event since their refusal may help them. `usage` is decayed usage of queues; it is empty unless a
    policy uses it. `reservations` are those of the previous session, in its order.
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
    held: tuple[HeldGang, ...] = ()
    resting: tuple[str, ...] = ()
    usage: tuple[QueueUsage, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    set_aside: tuple[SetAside, ...] = ()

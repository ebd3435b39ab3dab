"""Snapshot: everything a decision may depend on, frozen."""

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
    """A pod that passed Reserve and waits at Permit on a node: it holds its place there."""

    pod: str  # namespace/name
    node: str


@dataclass(frozen=True, slots=True)
class HeldGang:
    """A gang that a Permit plugin keeps waiting: its pods count as assumed until the deadline.

    Args:
      pod_group: namespace/name of the PodGroup, or of the pod that is a gang of one.
      plugin: who said Wait.
      until: seconds since 1970; past it the gang is rolled back.
      pods: the members and their nodes.
    """

    pod_group: str
    plugin: str
    until: float
    pods: tuple[HeldPod, ...]


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """What a queue used lately of one resource.

    Args:
      queue: its name; what queues below it used is left out.
      resource: of which.
      amount: decayed mean, in base units.
    """

    queue: str
    resource: str
    amount: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at one moment. Objects are in the order in which they were given; it may matter for ties only.

    `pods` are all pods that have not finished, bound and pending. `held` are gangs that wait at Permit since an
    earlier session. `resting` are the identities of gangs (`namespace/name`, and `pod/` before it for a pod alone) that
    do not take part, since nothing can have helped them after they were refused. `usage` is what queues used lately,
    decayed up to now; no policy that looks at it, no usage. `reservations` are the starts that the session before told,
    in its order.
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

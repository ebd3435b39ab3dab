"""Cluster events: what may happen to an object, and what a plugin says of it for a pod that it refused.

A pod that was refused is asked about again only when something happened that can help it. Each plugin registers the
events that may make it change its mind, and a hint that looks closer: at the pod, and at the object before and after.
A hint that says Queue too often costs a cycle; one that says Skip wrongly costs a pod five minutes.

Source: `ClusterEvent`, `ClusterEventWithHint` and `QueueingHint` of k8s.io/kube-scheduler/framework, 1.36. Namespaces,
the objects that select pods, Queues and Topologies are ours: there, a change of them is never noticed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import Any, Final, Protocol, runtime_checkable

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod


class Resource(StrEnum):
    """What kind of object an event is about.

    AssignedPod: a pod that has a node, assumed or bound. UnscheduledPod: a pod that waits, another one. TargetPod: the
    very pod that was refused.
    """

    NODE = "Node"
    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULED_POD = "UnscheduledPod"
    TARGET_POD = "TargetPod"
    POD_GROUP = "PodGroup"
    QUEUE = "Queue"
    TOPOLOGY = "Topology"
    NAMESPACE = "Namespace"
    SERVICE = "Service"
    REPLICATION_CONTROLLER = "ReplicationController"
    REPLICA_SET = "ReplicaSet"
    STATEFUL_SET = "StatefulSet"
    CLAIM = "PersistentVolumeClaim"
    VOLUME = "PersistentVolume"
    STORAGE_CLASS = "StorageClass"
    CSI_NODE = "CSINode"
    CSI_DRIVER = "CSIDriver"
    CSI_STORAGE_CAPACITY = "CSIStorageCapacity"
    VOLUME_ATTACHMENT = "VolumeAttachment"
    ANY = "*"


class Action(Flag):
    """What happened to it. An update that is none of the special ones is UPDATE_OTHER; UPDATE is all of them."""

    ADD = auto()
    DELETE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    UPDATE_NODE_CONDITION = auto()
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_NODE_DECLARED_FEATURE = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    UPDATE_POD_TOLERATION = auto()
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = auto()
    UPDATE_POD_TERMINATING = auto()
    UPDATE_OTHER = auto()
    UPDATE = (
        UPDATE_NODE_ALLOCATABLE
        | UPDATE_NODE_LABEL
        | UPDATE_NODE_TAINT
        | UPDATE_NODE_CONDITION
        | UPDATE_NODE_ANNOTATION
        | UPDATE_NODE_DECLARED_FEATURE
        | UPDATE_POD_LABEL
        | UPDATE_POD_SCALE_DOWN
        | UPDATE_POD_TOLERATION
        | UPDATE_POD_SCHEDULING_GATES_ELIMINATED
        | UPDATE_POD_TERMINATING
        | UPDATE_OTHER
    )
    ALL = ADD | DELETE | UPDATE


def written(action: Action) -> str:
    """Return the name of one action, as kube-scheduler writes it."""
    if action is Action.UPDATE_OTHER or action is Action.UPDATE:
        return "Update"
    return (action.name or "All").title().replace("_", "")


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """An event, or the events that a plugin wants to hear of.

    Args:
      resource: the kind of object.
      action: what happened; several where a plugin registers.
      named: the label where it does not follow from the two.
    """

    resource: Resource
    action: Action
    named: str = ""

    @property
    def label(self) -> str:
        """The event's name in `queue_incoming_pods_total`, such as NodeAdd or AssignedPodUpdatePodLabel."""
        target = self.resource is Resource.TARGET_POD
        return self.named or f"{Resource.UNSCHEDULED_POD if target else self.resource}{written(self.action)}"

    @property
    def wildcard(self) -> bool:
        """True for an event that concerns every pod, whoever refused it."""
        return self.resource is Resource.ANY

    def includes(self, event: "ClusterEvent") -> bool:
        """Tell whether a registered event is what happened."""
        return self.wildcard or (self.resource is event.resource and bool(self.action & event.action))


UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(Resource.ANY, Action.ALL, "UnschedulableTimeout")
FORCE_ACTIVATE: Final = ClusterEvent(Resource.ANY, Action.ALL, "ForceActivate")
ANY_EVENT: Final = ClusterEvent(Resource.ANY, Action.ALL)


class Hint(StrEnum):
    """Whether an event may help a pod."""

    QUEUE = "Queue"
    SKIP = "Skip"

    @classmethod
    def queue_if(cls, helps: bool) -> "Hint":
        """Queue when something helps, else Skip."""
        return cls.QUEUE if helps else cls.SKIP


HintFunction = Callable[[Pod, Any, Any], Hint]
"""(the pod that was refused, the object before, the object after) → Queue or Skip.

The object before is None when it was added, the object after when it was deleted. Of pods that are equal in all but
name, uid and times only one is handed in, save where the event is about the pod itself: then it is that pod.
"""


@dataclass(frozen=True, slots=True)
class ClusterEventWithHint:
    """Events that may help a pod that the plugin refused, and the function that looks closer; without one they do."""

    event: ClusterEvent
    hint: HintFunction | None = None

    @classmethod
    def on(
        cls, resource: Resource, action: Action, hint: HintFunction | None = None
    ) -> "ClusterEventWithHint":
        """Register a hint for events of one kind of object."""
        return cls(ClusterEvent(resource, action), hint)


@runtime_checkable
class EnqueueExtensionsPlugin(Protocol):
    """Says what may help a pod that the plugin refused. Without it every event may, which costs cycles."""

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the events; none where nothing that happens can help."""
        ...


def when_node_begins_to_pass(passes: Callable[[Pod, Node], bool]) -> HintFunction:
    """Return a hint for nodes that are judged by their objects alone: the node passes now, and did not before."""

    def hint(pod: Pod, old: Node | None, new: Node) -> Hint:
        return Hint.queue_if(passes(pod, new) and (old is None or not passes(pod, old)))

    return hint


def when_own(_pod: Pod, _old: Any, _new: Any) -> Hint:
    """Say Queue: the hint for events of the pod itself that always may help it."""
    return Hint.QUEUE

"""Cluster events: changes of objects, and how a plugin reacts to them for a pod that it refused.

The scheduling queue tries a refused pod again only after an event that may help. Each plugin registers such events,
and optionally a hint function that compares the object before and after the event. A hint that returns Queue too
often costs a scheduling cycle. A hint that wrongly returns Skip delays the pod by up to five minutes.

Source: `ClusterEvent`, `ClusterEventWithHint` and `QueueingHint` of k8s.io/kube-scheduler/framework, 1.36. Events of
Namespaces, of objects that select pods, of Queues and of Topologies exist only in batchsched.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import Any, Final, Protocol, runtime_checkable

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod


class Resource(StrEnum):
    """The kind of object of an event.

    AssignedPod: a pod that is assumed or bound. UnscheduledPod: another pending pod. TargetPod: the refused pod
    itself.
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
    """What happened to an object. UPDATE combines all updates; UPDATE_OTHER is one without an action of its own."""

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
    """Return the name of a single action in kube-scheduler's spelling."""
    if action is Action.UPDATE_OTHER or action is Action.UPDATE:
        return "Update"
    return (action.name or "All").title().replace("_", "")


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """An event that happened, or a set of events that a plugin registers.

    Args:
      resource: the kind of object.
      action: the action; a plugin may register several.
      named: the label, if it differs from resource and action.
    """

    resource: Resource
    action: Action
    named: str = ""

    @property
    def label(self) -> str:
        """The name in the metric `queue_incoming_pods_total`, such as NodeAdd or AssignedPodUpdatePodLabel."""
        target = self.resource is Resource.TARGET_POD
        return self.named or f"{Resource.UNSCHEDULED_POD if target else self.resource}{written(self.action)}"

    @property
    def wildcard(self) -> bool:
        """True if the event concerns all pods, whatever plugin refused them."""
        return self.resource is Resource.ANY

    def includes(self, event: "ClusterEvent") -> bool:
        """Return True if this registered event covers an event that happened."""
        return self.wildcard or (self.resource is event.resource and bool(self.action & event.action))


UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(Resource.ANY, Action.ALL, "UnschedulableTimeout")
FORCE_ACTIVATE: Final = ClusterEvent(Resource.ANY, Action.ALL, "ForceActivate")
ANY_EVENT: Final = ClusterEvent(Resource.ANY, Action.ALL)


class Hint(StrEnum):
    """Whether an event may help a refused pod."""

    QUEUE = "Queue"
    SKIP = "Skip"

    @classmethod
    def queue_if(cls, helps: bool) -> "Hint":
        """Return QUEUE if a condition is true, else SKIP."""
        return cls.QUEUE if helps else cls.SKIP


HintFunction = Callable[[Pod, Any, Any], Hint]
"""Function of (refused pod, object before, object after) that returns QUEUE or SKIP.

The object before is None after an addition, the object after is None after a deletion. For pods that differ only in
name, uid and times it is called once, unless the event is about the pod itself.
"""


@dataclass(frozen=True, slots=True)
class ClusterEventWithHint:
    """Events that may help a refused pod, with a hint function. Without a function the answer is QUEUE."""

    event: ClusterEvent
    hint: HintFunction | None = None

    @classmethod
    def on(
        cls, resource: Resource, action: Action, hint: HintFunction | None = None
    ) -> "ClusterEventWithHint":
        """Register a hint function for events of one kind of object."""
        return cls(ClusterEvent(resource, action), hint)


@runtime_checkable
class EnqueueExtensionsPlugin(Protocol):
    """A plugin that registers the events that may help a pod it refused. Without it, every event counts."""

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the events with their hints; an empty sequence if no event can help."""
        ...


def when_node_begins_to_pass(passes: Callable[[Pod, Node], bool]) -> HintFunction:
    """Return a hint for a plugin that reads only Node objects: QUEUE if the node passes now and did not before."""

    def hint(pod: Pod, old: Node | None, new: Node) -> Hint:
        return Hint.queue_if(passes(pod, new) and (old is None or not passes(pod, old)))

    return hint


def when_own(_pod: Pod, _old: Any, _new: Any) -> Hint:
    """Return QUEUE: the hint for events of the refused pod itself."""
    return Hint.QUEUE

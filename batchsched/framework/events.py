"""Cluster events: changes of objects, and how a plugin reacts to them for a pod that it refused.

The scheduling queue tries a refused pod again only after an event that may help. Each plugin registers such events,
and optionally a hint function that compares the object before and after the event. A hint that returns Queue too
often costs a scheduling cycle. A hint that wrongly returns Skip delays the pod by up to five minutes.

`events_of_change` translates a change of an object, given before and after, into events. In addition to those of
kube-scheduler, a pod that begins to terminate is an event: it stops counting for topology spread before it is deleted.
A pending pod that is deleted is an event, too: gangs may wait until its gang has started.

Source: `NodeSchedulingPropertiesChange` and `PodSchedulingPropertiesChange` of kube-scheduler's framework;
`ClusterEvent`, `ClusterEventWithHint` and `QueueingHint` of k8s.io/kube-scheduler/framework, 1.36. Events of
Namespaces, of objects that select pods, of Queues, of Topologies and of NodeResourceTopologies exist only in
batchsched.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import Any, Final

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import pod_requests, status_may_override_requests


class EventResource(StrEnum):
    """The kind of object that changed in a cluster event, such as Node or AssignedPod.

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
    DEVICE_CLASS = "DeviceClass"
    RESOURCE_SLICE = "ResourceSlice"
    RESOURCE_CLAIM = "ResourceClaim"
    DEVICE_TAINT_RULE = "DeviceTaintRule"
    NODE_RESOURCE_TOPOLOGY = "NodeResourceTopology"
    ANY = "*"


class Action(Flag):
    """The kind of change in a cluster event, such as ADD, DELETE or an update of a node's labels.

    UPDATE combines all updates; UPDATE_OTHER is any update that no other name covers.
    """

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
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = auto()
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
        | UPDATE_POD_GENERATED_RESOURCE_CLAIM
        | UPDATE_OTHER
    )
    ALL = ADD | DELETE | UPDATE


def action_name(action: Action) -> str:
    """Return the name of a single action in kube-scheduler's spelling, such as UpdateNodeLabel."""
    if action is Action.UPDATE_OTHER or action is Action.UPDATE:
        return "Update"
    return (action.name or "All").title().replace("_", "")


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A change of a cluster object, such as the addition of a Node.

    It describes a change that happened, or the changes for which a plugin registers.

    Args:
      resource: the kind of object.
      action: the action; a plugin may register several.
      named: the label, if it differs from resource and action.
    """

    resource: EventResource
    action: Action
    named: str = ""

    @property
    def metric_label(self) -> str:
        """The event's name in the metric `queue_incoming_pods_total`, such as NodeAdd or AssignedPodUpdatePodLabel."""
        target = self.resource is EventResource.TARGET_POD
        return (
            self.named
            or f"{EventResource.UNSCHEDULED_POD if target else self.resource}{action_name(self.action)}"
        )

    @property
    def is_wildcard(self) -> bool:
        """True if the event may help all refused pods, whichever plugin refused them."""
        return self.resource is EventResource.ANY

    def includes(self, event: "ClusterEvent") -> bool:
        """Return True if this event, as registered by a plugin, covers the change `event` of an object."""
        return self.is_wildcard or (self.resource is event.resource and bool(self.action & event.action))


UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(EventResource.ANY, Action.ALL, "UnschedulableTimeout")
FORCE_ACTIVATE: Final = ClusterEvent(EventResource.ANY, Action.ALL, "ForceActivate")
ANY_EVENT: Final = ClusterEvent(EventResource.ANY, Action.ALL)


class Hint(StrEnum):
    """The answer of a queueing hint function: Queue if a cluster event may help a refused pod, else Skip."""

    QUEUE = "Queue"
    SKIP = "Skip"

    @classmethod
    def queue_if(cls, helps: bool) -> "Hint":
        """Return the queueing hint QUEUE if a condition is true, else SKIP."""
        return cls.QUEUE if helps else cls.SKIP


HintFunction = Callable[[Pod, Any, Any], Hint]
"""Function of (refused pod, object before, object after) that returns QUEUE or SKIP.

The object before is None after an addition, the object after is None after a deletion. For pods that differ only in
name, uid and times it is called once, unless the event is about the pod itself.
"""


@dataclass(frozen=True, slots=True)
class ClusterEventWithHint:
    """Cluster events that may help a refused pod, and the hint function that decides about each of them.

    Without a function the answer is QUEUE.
    """

    event: ClusterEvent
    hint: HintFunction | None = None

    @classmethod
    def for_events(
        cls, resource: EventResource, action: Action, hint: HintFunction | None = None
    ) -> "ClusterEventWithHint":
        """Return a hint function together with the cluster events for which it is called."""
        return cls(ClusterEvent(resource, action), hint)


def queue_if_node_begins_to_pass(passes: Callable[[Pod, Node], bool]) -> HintFunction:
    """Return a hint function that answers Queue if a node passes the given test now and did not pass it before.

    It is for plugins that read only nodes.
    """

    def hint_of_node_change(pod: Pod, old: Node | None, new: Node) -> Hint:
        return Hint.queue_if(passes(pod, new) and (old is None or not passes(pod, old)))

    return hint_of_node_change


def queue_if_changed(read: Callable[[Any], object]) -> HintFunction:
    """Return a hint function that answers Queue if a change alters the value that `read` returns.

    `read` is called with the object as it was before the change and as it is after it. The hint function also answers
    Queue if the object was added or deleted.
    """

    def hint_of_change(_pod: Pod, old: Any, new: Any) -> Hint:
        return Hint.queue_if(old is None or new is None or read(old) != read(new))

    return hint_of_change


def always_queue(_pod: Pod, _old: Any, _new: Any) -> Hint:
    """Return the queueing hint QUEUE, whatever the event is.

    Plugins register this hint function for the updates of the refused pod itself.
    """
    return Hint.QUEUE


PODS = frozenset({EventResource.ASSIGNED_POD, EventResource.UNSCHEDULED_POD, EventResource.TARGET_POD})


def events_of_change(resource: EventResource, old: Any, new: Any) -> tuple[ClusterEvent, ...]:
    """Return the cluster events for the change of one object from `old` to `new`.

    `old` is None for an added object, `new` is None for a deleted one.

    A Node update without a field that scheduling reads gives no event.

    Raises:
      ValueError: both objects are None.
    """
    if old is None and new is None:
        raise ValueError(f"a change of a {resource} needs the object before, after, or both")
    if old is None:
        return (ClusterEvent(resource, Action.ADD),)
    if new is None:
        return (ClusterEvent(resource, Action.DELETE),)
    if resource is EventResource.NODE:
        return tuple(ClusterEvent(resource, action) for action in _node_actions(old, new))
    actions = _pod_actions(old, new) if resource in PODS else []
    return tuple(ClusterEvent(resource, action) for action in actions or [Action.UPDATE_OTHER])


def _node_actions(old: Node, new: Node) -> list[Action]:
    actions = []
    opened = old.spec.unschedulable and not new.spec.unschedulable
    if (old.status.allocatable or old.status.capacity) != (new.status.allocatable or new.status.capacity):
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if old.labels != new.labels:
        actions.append(Action.UPDATE_NODE_LABEL)
    if opened or old.taints != new.taints:
        actions.append(Action.UPDATE_NODE_TAINT)
    if _conditions(old) != _conditions(new):
        actions.append(Action.UPDATE_NODE_CONDITION)
    if (old.metadata.annotations or {}) != (new.metadata.annotations or {}):
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if set(old.status.declared_features or ()) != set(new.status.declared_features or ()):
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return actions


def _conditions(node: Node) -> dict[str, str]:
    return {one.type: one.status for one in node.status.conditions or ()}


def _pod_actions(old: Pod, new: Pod) -> list[Action]:
    actions = []
    if old.labels != new.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if _scaled_down(old, new):
        actions.append(Action.UPDATE_POD_SCALE_DOWN)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if old.tolerations != new.tolerations:
        actions.append(Action.UPDATE_POD_TOLERATION)
    if new.terminating and not old.terminating:
        actions.append(Action.UPDATE_POD_TERMINATING)
    if old.status.resource_claim_statuses != new.status.resource_claim_statuses:
        actions.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    return actions


def _scaled_down(old: Pod, new: Pod) -> bool:
    if (
        old.spec == new.spec
        and not status_may_override_requests(old)
        and not status_may_override_requests(new)
    ):
        return False
    now = pod_requests(new)
    return any(now.get(resource, 0) < amount for resource, amount in pod_requests(old).items())

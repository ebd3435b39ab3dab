"""Translates a change of an object, given before and after, into cluster events.

Source: `NodeSchedulingPropertiesChange` and `PodSchedulingPropertiesChange` of kube-scheduler's framework. In
addition, a pod that begins to terminate is an event: it stops counting for topology spread before it is deleted.
"""

from typing import Any

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import requests, resized
from batchsched.framework.events import Action, ClusterEvent, Resource

PODS = frozenset({Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD, Resource.TARGET_POD})


def events_of(resource: Resource, old: Any, new: Any) -> tuple[ClusterEvent, ...]:
    """Return the events of a change. None before is an addition, None after is a deletion.

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
    if resource is Resource.NODE:
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
    return actions


def _scaled_down(old: Pod, new: Pod) -> bool:
    if old.spec == new.spec and not resized(old) and not resized(new):
        return False
    now = requests(new)
    return any(now.get(resource, 0) < amount for resource, amount in requests(old).items())

"""Debugging aids for operators: a comparison of the cluster state with the API server, and the state as text.

A difference that lasts is a defect of the state or of the watch. A difference that disappears was an event on its
way, so compare twice before you act on one.

Source: kube-scheduler's backend/cache/debugger. Its `CacheComparer` compares names;
`compare_snapshots` compares fields too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pydantic import BaseModel

from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import pod_requests
from batchsched.api.snapshot import OBJECT_KINDS, ObjectKind, Snapshot
from batchsched.state.cluster_state import AssumedPod
from batchsched.state.store import STATUS, are_equal_for_scheduling

OVERDUE_SECONDS: Final = 60.0
"""Seconds after which an assumed pod is reported."""
_SHOWN: Final = 60
"""Characters of a value that a report shows."""


@dataclass(frozen=True, slots=True)
class StateDifference:
    """A difference between the cluster state and the API server: one field of an object, with both values.

    A value is JSON text, empty if the field is missing.
    """

    object: str
    field: str
    cached: str
    listed: str


@dataclass(frozen=True, slots=True)
class StateComparison:
    """All differences between the cluster state and the API server. Objects are named `Kind namespace/name`.

    Args:
      missing: Objects of the API server that the state lacks.
      redundant: Objects of the state that the API server lacks.
      differing: Fields with different values.
      overdue: Pods that have been assumed for too long.
    """

    missing: tuple[str, ...] = ()
    redundant: tuple[str, ...] = ()
    differing: tuple[StateDifference, ...] = ()
    overdue: tuple[AssumedPod, ...] = ()

    @property
    def has_no_differences(self) -> bool:
        """Whether the cluster state and the API server agree."""
        return not (self.missing or self.redundant or self.differing or self.overdue)

    def text(self) -> str:
        """Return the comparison as text, with one line for each difference."""
        if self.has_no_differences:
            return "the cache agrees with the API"
        lines = [f"missing in the cache: {name}" for name in self.missing]
        lines += [f"redundant in the cache: {name}" for name in self.redundant]
        lines += [
            f"different: {difference.object}: {difference.field}: "
            f"cached {difference.cached or 'nothing'}, listed {difference.listed or 'nothing'}"
            for difference in self.differing
        ]
        lines += [
            f"assumed for too long: Pod {assumed.pod} on {assumed.assumption.node}, "
            f"since {assumed.assumption.since:.0f}"
            + ("" if assumed.assumption.deadline is None else ", its binding has finished")
            for assumed in self.overdue
        ]
        return "\n".join(lines)


def compare_snapshots(
    cached: Snapshot,
    listed: Snapshot,
    scheduler_names: frozenset[str],
    assumed: Sequence[AssumedPod] = (),
    overdue_since: float = float("-inf"),
) -> StateComparison:
    """Return the differences between the cluster state and a fresh list from the API server.

    Args:
      cached: The objects of the state, from `ClusterState.snapshot_without_assumptions()`.
      listed: The objects of the API server, with all pods: pods that the state ignores are left out here.
      scheduler_names: The scheduler names of the profiles; pending pods of other schedulers are left out.
      assumed: The assumed pods, from `ClusterState.assumed_pods()`.
      overdue_since: A time by `Clock.steady_now`; a pod assumed before that time is overdue. Usually
        now - OVERDUE_SECONDS.
    """
    missing: list[str] = []
    redundant: list[str] = []
    differing: list[StateDifference] = []
    for kind in OBJECT_KINDS:
        cached_objects, listed_objects = (
            _by_key(kind, cached, scheduler_names),
            _by_key(kind, listed, scheduler_names),
        )
        missing += [_named(kind, key) for key in sorted(listed_objects.keys() - cached_objects.keys())]
        redundant += [_named(kind, key) for key in sorted(cached_objects.keys() - listed_objects.keys())]
        for key in sorted(cached_objects.keys() & listed_objects.keys()):
            if not are_equal_for_scheduling(cached_objects[key], listed_objects[key]):
                differing += _differences(_named(kind, key), cached_objects[key], listed_objects[key])
    overdue = tuple(pod for pod in assumed if pod.assumption.since < overdue_since)
    return StateComparison(tuple(missing), tuple(redundant), tuple(differing), overdue)


def _by_key(kind: ObjectKind, snapshot: Snapshot, scheduler_names: frozenset[str]) -> dict[str, Any]:
    objects = getattr(snapshot, kind.field)
    return {
        kind.object_key(object_of_kind.metadata): object_of_kind
        for object_of_kind in objects
        if not isinstance(object_of_kind, Pod) or object_of_kind.is_relevant_to_schedulers(scheduler_names)
    }


def _named(kind: ObjectKind, key: str) -> str:
    return f"{kind.name} {key}"


def _differences(name: str, cached: Any, listed: Any) -> Iterator[StateDifference]:
    old, new = _fields(cached), _fields(listed)
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            yield StateDifference(name, path, old.get(path, "")[:_SHOWN], new.get(path, "")[:_SHOWN])


def _fields(api_object: Any) -> dict[str, str]:
    """Return the leaves of an object by path, without those that scheduling ignores."""
    if isinstance(api_object, BaseModel):
        plain = api_object.model_dump(mode="json", by_alias=True, exclude={STATUS})
    else:
        plain = msgspec.to_builtins(api_object)
    return {path: text for path, text in _leaves(plain, "") if path != "metadata.resourceVersion"}


def _leaves(plain: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(plain, Mapping):
        for key, value in plain.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(plain, list | tuple):
        for index, value in enumerate(plain):
            yield from _leaves(value, f"{path}[{index}]")
    else:
        yield path, msgspec.json.encode(plain).decode()


@dataclass(frozen=True, slots=True)
class DumpedNode:
    """A node in a dump of the cluster state: its resources in base units, and its pods.

    Args:
      name: The name of the node.
      exists: False if pods name a node that the API server does not show.
      allocatable: The resources that pods may use.
      requested: The requests of its pods, assumed pods included.
      pods: `namespace/name` of its pods, sorted.
      assumed: Those of its pods that the API server does not show on it.
    """

    name: str
    exists: bool
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    pods: tuple[str, ...]
    assumed: tuple[str, ...]

    def text(self) -> str:
        """Return the node as text: one line with its resources, then one line for each pod."""
        amounts = ", ".join(
            f"{resource} {self.requested.get(resource, 0)}/{self.allocatable.get(resource, 0)}"
            for resource in sorted({*self.allocatable, *self.requested})
        )
        unknown = "" if self.exists else " (not known to the API)"
        lines = [f"Node {self.name}{unknown}: {len(self.pods)} pods; {amounts or 'nothing'}"]
        lines += [f"  {pod}{' (assumed)' if pod in self.assumed else ''}" for pod in self.pods]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class StateDump:
    """A dump of the cluster state: the nodes with their pods, and the pending pods."""

    nodes: tuple[DumpedNode, ...]
    waiting: tuple[str, ...]

    def text(self) -> str:
        """Return the dump as text: all nodes with their pods, then the pending pods."""
        lines = [node.text() for node in self.nodes]
        lines.append(f"waiting: {len(self.waiting)} pods")
        lines += [f"  {pod}" for pod in self.waiting]
        return "\n".join(lines)


def dump_state(snapshot: Snapshot, assumed: Sequence[AssumedPod] = ()) -> StateDump:
    """Return the nodes of a Snapshot with their pods and requested resources, and the pending pods.

    Args:
      snapshot: The cluster, from `ClusterState.snapshot()`.
      assumed: The assumed pods, from `ClusterState.assumed_pods()`.

    Raises:
      InvalidQuantity: An amount is not a quantity.
    """
    node_by_name = {node.name: node for node in snapshot.nodes}
    pods_by_node: dict[str, list[Pod]] = {name: [] for name in node_by_name}
    for pod in snapshot.pods:
        if pod.node_name:
            pods_by_node.setdefault(pod.node_name, []).append(pod)
    assumed_keys = {one.pod for one in assumed}
    nodes = []
    for name in sorted(pods_by_node):
        keys = tuple(sorted(pod.key for pod in pods_by_node[name]))
        node = node_by_name.get(name)
        nodes.append(
            DumpedNode(
                name=name,
                exists=node is not None,
                allocatable=node.parse_allocatable_in_base_units() if node is not None else {},
                requested=_sum(pods_by_node[name]),
                pods=keys,
                assumed=tuple(key for key in keys if key in assumed_keys),
            )
        )
    return StateDump(tuple(nodes), tuple(sorted(pod.key for pod in snapshot.pods if not pod.node_name)))


def _sum(pods: Sequence[Pod]) -> dict[str, int]:
    total: dict[str, int] = {"pods": len(pods)}
    for pod in pods:
        for resource, amount in pod_requests(pod).items():
            total[resource] = total.get(resource, 0) + amount
    return total

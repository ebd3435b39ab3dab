"""The dumper: the content of the state as text for operators.

Source: `CacheDumper` of kube-scheduler's backend/cache/debugger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import requests
from batchsched.api.snapshot import Snapshot
from batchsched.state.assumed_pods import AssumedPod


@dataclass(frozen=True, slots=True)
class DumpedNode:
    """A node and its pods, in base units.

    Args:
      name: The name of the node.
      known: False if pods name a node that the API server does not show.
      allocatable: The resources that pods may use.
      requested: The requests of its pods, assumed pods included.
      pods: `namespace/name` of its pods, sorted.
      assumed: Those of its pods that the API server does not show on it.
    """

    name: str
    known: bool
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    pods: tuple[str, ...]
    assumed: tuple[str, ...]

    def text(self) -> str:
        """Return the node as a line of amounts and a line for each pod."""
        amounts = ", ".join(
            f"{resource} {self.requested.get(resource, 0)}/{self.allocatable.get(resource, 0)}"
            for resource in sorted({*self.allocatable, *self.requested})
        )
        unknown = "" if self.known else " (not known to the API)"
        lines = [f"Node {self.name}{unknown}: {len(self.pods)} pods; {amounts or 'nothing'}"]
        lines += [f"  {pod}{' (assumed)' if pod in self.assumed else ''}" for pod in self.pods]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class StateDump:
    """The nodes with their pods, and the pending pods."""

    nodes: tuple[DumpedNode, ...]
    waiting: tuple[str, ...]

    def text(self) -> str:
        """Return all nodes, then the pending pods."""
        lines = [node.text() for node in self.nodes]
        lines.append(f"waiting: {len(self.waiting)} pods")
        lines += [f"  {pod}" for pod in self.waiting]
        return "\n".join(lines)


def dump(snapshot: Snapshot, assumed: Sequence[AssumedPod] = ()) -> StateDump:
    """Return the content of the state by node.

    Args:
      snapshot: The cluster, from `ClusterState.snapshot()`.
      assumed: The assumed pods, from `ClusterState.assumed()`.

    Raises:
      InvalidQuantity: An amount is not a quantity.
    """
    node_by_name = {node.name: node for node in snapshot.nodes}
    pods_by_node: dict[str, list[Pod]] = {name: [] for name in node_by_name}
    for pod in snapshot.pods:
        if pod.node:
            pods_by_node.setdefault(pod.node, []).append(pod)
    assumed_keys = {one.pod for one in assumed}
    nodes = []
    for name in sorted(pods_by_node):
        keys = tuple(sorted(pod.key for pod in pods_by_node[name]))
        node = node_by_name.get(name)
        nodes.append(
            DumpedNode(
                name=name,
                known=node is not None,
                allocatable=node.allocatable() if node is not None else {},
                requested=_sum(pods_by_node[name]),
                pods=keys,
                assumed=tuple(key for key in keys if key in assumed_keys),
            )
        )
    return StateDump(tuple(nodes), tuple(sorted(pod.key for pod in snapshot.pods if not pod.node)))


def _sum(pods: Sequence[Pod]) -> dict[str, int]:
    total: dict[str, int] = {"pods": len(pods)}
    for pod in pods:
        for resource, amount in requests(pod).items():
            total[resource] = total.get(resource, 0) + amount
    return total

"""The dump: what a cache holds, for people.

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
    """A node and what is on it, in base units.

    Args:
      name: the node.
      known: False where pods name a node that the API has not shown, or shows no more.
      allocatable: what pods may use.
      requested: what its pods ask for, assumed ones included.
      pods: `namespace/name`, sorted.
      assumed: those of them that the API does not show there yet.
    """

    name: str
    known: bool
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    pods: tuple[str, ...]
    assumed: tuple[str, ...]

    def text(self) -> str:
        """Write the node: a line of amounts, and a line a pod."""
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
    """Everything in a cache that a scheduler places or places on."""

    nodes: tuple[DumpedNode, ...]
    waiting: tuple[str, ...]

    def text(self) -> str:
        """Write all nodes, then who waits."""
        lines = [node.text() for node in self.nodes]
        lines.append(f"waiting: {len(self.waiting)} pods")
        lines += [f"  {pod}" for pod in self.waiting]
        return "\n".join(lines)


def dump(snapshot: Snapshot, assumed: Sequence[AssumedPod] = ()) -> StateDump:
    """Lay out what a cache holds.

    Args:
      snapshot: `Cache.snapshot()`.
      assumed: `Cache.assumed()`.

    Raises:
      InvalidQuantity: an amount that is no quantity.
    """
    known = {node.name: node for node in snapshot.nodes}
    on: dict[str, list[Pod]] = {name: [] for name in known}
    for pod in snapshot.pods:
        if pod.node:
            on.setdefault(pod.node, []).append(pod)
    guessed = {one.pod for one in assumed}
    nodes = []
    for name in sorted(on):
        keys = tuple(sorted(pod.key for pod in on[name]))
        node = known.get(name)
        nodes.append(
            DumpedNode(
                name=name,
                known=node is not None,
                allocatable=node.allocatable() if node is not None else {},
                requested=_sum(on[name]),
                pods=keys,
                assumed=tuple(key for key in keys if key in guessed),
            )
        )
    return StateDump(tuple(nodes), tuple(sorted(pod.key for pod in snapshot.pods if not pod.node)))


def _sum(pods: Sequence[Pod]) -> dict[str, int]:
    total: dict[str, int] = {"pods": len(pods)}
    for pod in pods:
        for resource, amount in requests(pod).items():
            total[resource] = total.get(resource, 0) + amount
    return total

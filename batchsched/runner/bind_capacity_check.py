"""Checks that the gangs of a decision still fit on nodes that changed while the session decided.

Other schedulers may bind pods during a session, and the decision does not count these pods.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable

from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import requests_with_pod_count
from batchsched.state.cluster_state import NODES, PODS, ClusterState
from batchsched.state.store import ObjectChange

Places = tuple[tuple[Pod, str], ...]
"""Pods with the names of their nodes."""


class BindCapacityCheck:
    """A check that placed gangs still fit on the nodes that changed while the session decided.

    The check runs before the pods are bound. All other nodes have the free capacity that the session saw.

    Args:
      cache: The cluster state.
      changes: The changes since the session began, or None if there were too many.
      placements: The placements of all gangs that the session placed.
      ignores: Returns whether no plugin compares the requests of a resource with the capacity of nodes.
    """

    def __init__(
        self,
        cache: ClusterState,
        changes: Iterable[ObjectChange] | None,
        placements: Iterable[Places],
        ignores: Callable[[str], bool],
    ) -> None:
        nodes = {node for places in placements for _, node in places}
        if changes is not None:
            nodes &= {node for change in changes if _may_fill(change) for node in change.affected_nodes}
        self._free = cache.free_capacity_by_node(nodes)
        self._ignores = ignores

    def find_node_with_too_little_capacity(self, places: Places) -> str | None:
        """Return a node on which pods of a placed gang no longer fit; None if there is no such node."""
        demand = _demand(places, self._free)
        return next((node for node in demand if not self._fits(demand[node], self._free[node])), None)

    def deduct_requests(self, places: Places) -> None:
        """Subtract the requests of a gang's pods from the free capacity of their nodes."""
        for node, requests in _demand(places, self._free).items():
            self._free[node].subtract(requests)

    def _fits(self, requests: Counter[str], free: Counter[str]) -> bool:
        return all(
            amount <= free[resource] or self._ignores(resource) for resource, amount in requests.items()
        )


def _may_fill(change: ObjectChange) -> bool:
    """Return whether a change may reduce a node's free capacity; the confirmation of a binding does not."""
    before, after = change.before, change.after
    if change.field == NODES:
        return (
            before is None or after is None or before.allocatable_quantities != after.allocatable_quantities
        )
    if change.field != PODS or after is None or not after.node_name:
        return False
    return before is None or before.node_name != after.node_name or before.spec is not after.spec


def _demand(places: Places, nodes: Container[str]) -> dict[str, Counter[str]]:
    """Return the sum of the pods' requests by node and by resource, for the given nodes only."""
    demand: dict[str, Counter[str]] = {}
    for pod, node in places:
        if node in nodes:
            demand.setdefault(node, Counter()).update(requests_with_pod_count(pod))
    return demand

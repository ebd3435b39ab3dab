"""Node sampling: how many feasible nodes are enough, and at which node the search begins.

On large clusters kube-scheduler stops after it has found a certain share of the nodes, and continues there for the
next pod. Here a Filter judges all nodes at once, so sampling saves no time; it reproduces kube-scheduler's choice
for profiles that set a percentage. Otherwise all feasible nodes are scored.
"""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from batchsched.framework.filter_result import FilterResult
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.status import BoolArray, IndexArray

FEWEST_NODES: Final = 100
"""Minimum number of feasible nodes that end a search, and of nodes for which sampling applies."""
LEAST_PERCENTAGE: Final = 5
REGION: Final = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
ZONE: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


def feasible_node_count_to_find(nodes: int, percentage: int) -> int:
    """Return the number of feasible nodes after which the search for a pod's nodes stops.

    Args:
      nodes: the number of nodes.
      percentage: the share of the nodes. 0 means 50 minus 1 for each 125 nodes, but at least 5.

    Source: `numFeasibleNodesToFind` of kube-scheduler.
    """
    if nodes < FEWEST_NODES:
        return nodes
    share = percentage or max(LEAST_PERCENTAGE, 50 - nodes // 125)
    return max(FEWEST_NODES, nodes * share // 100)


class NodeSampler:
    """A sampler that limits the feasible nodes of each pod, like kube-scheduler's percentageOfNodesToScore.

    The search for nodes starts at a node drawn from the seed; for the next pod it continues where it stopped.

    Args:
      table: the nodes.
      percentage: as for `feasible_node_count_to_find`.
      seed: the seed of the session.
      any_will_do: no plugin scores nodes, so the first feasible node is enough.
    """

    def __init__(self, table: NodeTable, percentage: int, seed: int, *, any_will_do: bool = False) -> None:
        self._order = table.cached_value_of_nodes("visiting order", visiting_order)
        self._percentage = percentage
        self._any_will_do = any_will_do
        self.start = zlib.crc32(str(seed).encode()) % max(1, len(self._order))

    def limit_to_sample(self, scan: FilterResult, allowed: BoolArray | None) -> FilterResult:
        """Return the filter result with only a sample of its feasible nodes: the first ones in visiting order.

        The search visits only nodes in `allowed` [N].

        Source: `findNodesThatPassFilters` of kube-scheduler, with its nodes visited one after the other.
        """
        looked_at = np.ones(len(self._order), np.bool_) if scan.outside is None else ~scan.outside
        if allowed is not None:
            looked_at &= allowed
        order = self._order[looked_at[self._order]]
        if not len(order):
            return scan
        # Excluded nodes do not count as visited, so the start is taken modulo the nodes that are left.
        order = np.roll(order, -(self.start % len(order)))
        enough = 1 if self._any_will_do else feasible_node_count_to_find(len(order), self._percentage)
        places = np.flatnonzero(scan.fits[order])[:enough]
        seen = int(places[-1]) + 1 if len(places) == enough else len(order)
        # The next pod continues after the last visited node, so that all nodes get pods in turn.
        self.start = (self.start + seen) % len(self._order)
        if not len(places):
            return scan
        fits = np.zeros_like(scan.fits)
        fits[order[places]] = True
        return replace(scan, fits=fits)


def visiting_order(table: NodeTable) -> IndexArray:
    """Return the node indexes [N] in the order in which sampling visits nodes: one node of each zone in turn.

    Source: `nodeTree.list` of kube-scheduler's cache.
    """
    zones: dict[tuple[str, str], list[int]] = {}
    for index, node in enumerate(table.nodes):
        zones.setdefault((_label(node.labels, REGION), _label(node.labels, ZONE)), []).append(index)
    turns = sorted(
        (turn, zone, index) for zone, nodes in enumerate(zones.values()) for turn, index in enumerate(nodes)
    )
    return np.array([index for _, _, index in turns], np.int32)


def _label(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((labels[key] for key in keys if key in labels), "")

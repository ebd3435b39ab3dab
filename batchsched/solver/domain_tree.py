"""The network cost of nodes by their topology domains, and the search for the layout with the least cost.

Shapes: K pods, L levels, N nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.solver.problem import BoolArray, IndexArray, IntArray

NODE_COST: Final = 1
"""Cost of one more node: that of a hop between two nodes of one domain."""
_UNREACHABLE: Final = np.int64(2**62)


def network_costs_by_level(levels: int) -> tuple[int, ...]:
    """Return for each topology level, the widest first, the network cost of using one more domain of the level.

    A hop that leaves the narrowest domain costs 2, of which `NODE_COST` is counted for the node. Each wider level
    doubles the cost of the hop.
    """
    return tuple(2 ** (levels - 1 - level) for level in range(levels))


class DomainTree:
    """The nodes of a cluster in their nested topology domains, with the network cost of using nodes and domains.

    A layout of least cost is found by dynamic programming over the domains. At most one domain of an optimal layout is
    used in part; all others are used up to a number of pods at which their cost rises. Only these numbers are
    combined.

    Args:
      paths: [L, N] domain of each node at each level, the widest first.
      prices: [L] cost of one more domain at each level.
      occupied: [N] nodes that the gang uses already; they cost nothing, and neither do their domains.
    """

    def __init__(self, paths: IndexArray, prices: Sequence[int], occupied: BoolArray) -> None:
        self._paths = paths
        self._prices = prices
        self._occupied = occupied
        self._capacity: IntArray = np.zeros(0, np.int64)
        self._scale = 1
        self.work = 0
        """Array elements that were computed."""

    def layout_cost(self, counts: IntArray) -> int:
        """Return the network cost of placing pods on all nodes that have a positive number in `counts`.

        `counts` [N] is the number of pods on each node.

        The first node and its domains cost nothing. If the gang occupies nodes already, these and their domains cost
        nothing instead, and all other nodes and domains have a cost.
        """
        used = np.flatnonzero(counts > 0)
        occupied = np.flatnonzero(self._occupied)
        total = NODE_COST * int((~self._occupied[used]).sum())
        paid_first = NODE_COST
        for level, price in enumerate(self._prices):
            paths = {tuple(path) for path in self._paths[: level + 1, used].T.tolist()}
            paths -= {tuple(path) for path in self._paths[: level + 1, occupied].T.tolist()}
            total += price * len(paths)
            paid_first += price
        return total if len(occupied) else total - paid_first

    def find_cheapest_layout(self, capacity: IntArray, pods: int) -> IntArray:
        """Return the number of pods on each node in the distribution of pods with the least network cost.

        Of several distributions with the least cost, the one that leaves the least room in its domains is returned.

        Args:
          capacity: [N] pods that fit on each node, > 0; together at least `pods`.
          pods: the number of pods.
        """
        self._capacity = capacity
        # Free capacity in the domains of a layout decides between layouts of equal cost: it is best left to others.
        self._scale = 1 + int(capacity.sum()) * (len(self._prices) + 1)
        counts = np.zeros(len(capacity), np.int64)
        self._combine(np.arange(len(capacity)), 0, pods).distribute_pods(pods, counts)
        return counts

    def _domain(self, nodes: IntArray, level: int, pods: int) -> "_Domain | _Leaf":
        """Return a domain of the level above `level`, with the cost of each number of pods in it."""
        if level == len(self._prices):
            return self._leaf(nodes, pods)
        return self._combine(nodes, level, pods)

    def _leaf(self, nodes: IntArray, pods: int) -> "_Leaf":
        # Occupied nodes first, because they are free; then the largest, because few nodes are to be used.
        order = nodes[np.lexsort((nodes, -self._capacity[nodes], ~self._occupied[nodes]))]
        reached = np.cumsum(self._capacity[order])
        price = np.cumsum(np.where(self._occupied[order], 0, NODE_COST * self._scale))
        needed = np.searchsorted(reached, np.arange(1, pods + 1))
        cost = np.full(pods + 1, _UNREACHABLE)
        cost[0] = 0
        within = needed < len(order)
        cost[1:][within] = price[needed[within]]
        return _Leaf(cost, order, self._capacity, int(self._occupied[nodes].sum()))

    def _combine(self, nodes: IntArray, level: int, pods: int) -> "_Domain":
        domains, member = np.unique(self._paths[level, nodes], return_inverse=True)
        children: list[_Domain | _Leaf] = []
        choices: list[IntArray] = []
        best = np.full(pods + 1, _UNREACHABLE)
        best[0] = 0
        amounts = np.arange(pods + 1)
        for number in range(len(domains)):
            inside = nodes[member == number]
            child = self._domain(inside, level + 1, pods)
            opening = int(self._capacity[inside].sum())
            if not self._occupied[inside].any():
                opening += self._prices[level] * self._scale
            # Numbers of pods after which the cost rises; any other number costs as much as the next of these.
            rises = np.append(child.cost[1:] > child.cost[:-1], True)
            points = np.flatnonzero(rises & (child.cost < _UNREACHABLE))
            points = points[points > 0]
            costs = (
                best[np.maximum(0, amounts - points[:, np.newaxis])]
                + (child.cost[points] + opening)[:, np.newaxis]
            )
            self.work += costs.size
            costs = np.vstack([best, np.minimum(costs, _UNREACHABLE)])
            chosen = costs.argmin(axis=0)
            best = costs[chosen, amounts]
            children.append(child)
            choices.append(np.concatenate([[0], points])[chosen])
        return _Domain(best, children, choices)


@dataclass(frozen=True, slots=True, eq=False)
class _Leaf:
    """A domain of the narrowest level: the cost by number of pods [K+1], and its nodes in the order of their use."""

    cost: IntArray
    order: IntArray
    capacity: IntArray
    occupied_count: int

    def distribute_pods(self, pods: int, counts: IntArray) -> None:
        """Fill this domain's nodes one after the other, until one node has room for all remaining pods.

        Of the nodes with that much room, the one with the least room gets the remaining pods. But if the next node is
        occupied already, it gets them, because it costs nothing. The numbers of pods are added to `counts` [N].
        """
        for position, node in enumerate(self.order.tolist()):
            amount = int(self.capacity[node])
            if amount >= pods:
                # An occupied node costs nothing, so no other node replaces it.
                later = self.order[position:].tolist() if position >= self.occupied_count else [node]
                fitting = [other for other in later if self.capacity[other] >= pods]
                best = min(fitting, key=lambda other: (int(self.capacity[other]), other))
                counts[best] += pods
                return
            counts[node] += amount
            pods -= amount


@dataclass(frozen=True, slots=True, eq=False)
class _Domain:
    """A domain with children: the cost by number of pods [K+1], and the pods [K+1] that each child then takes."""

    cost: IntArray
    children: list["_Domain | _Leaf"]
    choices: list[IntArray]

    def distribute_pods(self, pods: int, counts: IntArray) -> None:
        """Divide pods among the child domains so that the network cost is least.

        The number of pods on each node is added to `counts` [N].
        """
        for child, choice in zip(reversed(self.children), reversed(self.choices), strict=True):
            amount = int(choice[pods])
            if amount:
                child.distribute_pods(min(amount, pods), counts)
                pods = max(0, pods - amount)

"""The order in which nodes are filled with pods of one class.

1. *Slots.* Devices are requested in few sizes (1, 2, 4, 8 GPUs). A pod takes the slot that destroys the fewest larger
   slots: a pod with one GPU prefers the odd GPU of a node to breaking a pair, a pod with two GPUs prefers a pair to
   breaking a quad. Before that, a pod takes CPU and memory that the node's free devices will not need, so that no
   device remains without CPU and memory.
2. *Packing*: fewest free devices, then the fullest node; for pods without devices the node with free resources in the
   proportions of the request. With `Problem.spread`: the emptiest node. The steps are coarse, so that scores matter.
3. *Score* of the pipeline, higher first.
4. The lowest node index.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from batchsched.solver.packing.limits import limits_each_node_separately
from batchsched.solver.problem import IntArray, Problem

DEVICE_LIMIT: Final = 64
"""A resource of which every node has at most this many units is a device: it is allocated in slots."""
INDEX_BITS: Final = 20
SCORE_BITS: Final = 16
PACK_LEVELS: Final = 64


class NodeOrder:
    """The order in which the solver fills nodes with the pods of a pod class."""

    def __init__(self, problem: Problem, plain: bool = False) -> None:
        """Collect the device sizes that are requested; `plain` omits slot preservation, as in other schedulers."""
        self.demand = demand_with_plugin_limits(problem)
        self.needs = [
            tuple((r, amount) for r, amount in enumerate(row) if amount) for row in self.demand.tolist()
        ]
        self._problem, self.plain = problem, plain
        nodes = len(problem.nodes.capacity)
        self._total = np.maximum(1, problem.nodes.capacity.sum(axis=0)).astype(np.float64) / max(1, nodes)
        self._ratio = problem.classes.demand / self._total
        self._dominant: list[float] = self._ratio.max(axis=1, initial=0.0).tolist()
        largest = problem.nodes.capacity.max(axis=0, initial=0)
        varied = np.array(
            [len(np.unique(column[column > 0])) > 0 for column in problem.classes.demand.T], np.bool_
        )
        few = (largest <= DEVICE_LIMIT) & varied
        self.devices = [int(r) for r in np.flatnonzero(few) if int(r) != problem.pod_resource]
        demand = problem.classes.demand.tolist()
        self.device_of = [next((r for r in self.devices if row[r] > 0), -1) for row in demand]
        sizes = {r: np.unique(problem.classes.demand[:, r]).tolist() for r in self.devices}
        self._larger = [
            [size for size in sizes[r] if size > row[r]] if r >= 0 else []
            for r, row in zip(self.device_of, demand, strict=True)
        ]
        self._amounts_per_device = self._device_company(problem)
        self._score: dict[int, IntArray | None] = {}

    def largest_share_of_average_node(self, class_index: int) -> float:
        """Return the largest share of an average node's resources that one pod of a pod class requests.

        A pod with a large share is hard to place.
        """
        return self._dominant[class_index]

    def dominant_resource(self, class_index: int) -> int:
        """Return the resource in which a pod of a pod class requests the largest share of an average node."""
        return int(np.argmax(self._ratio[class_index]))

    def _device_company(self, problem: Problem) -> list[tuple[int, IntArray]]:
        """For each device, the amounts of other resources that pending pods request with one unit of it."""
        result = []
        for r in self.devices:
            pods = problem.classes.count * (problem.classes.demand[:, r] > 0)
            if pods.any():
                company = (problem.classes.demand * pods[:, None]).sum(axis=0) // (
                    problem.classes.demand[:, r] * pods
                ).sum()
                company[self.devices] = 0
                result.append((r, company))
        return result

    def is_filled_in_phases(self, class_index: int) -> bool:
        """Tell whether pods of a class fill nodes in phases, to break up large groups of free devices last.

        Before that, pods get CPU and memory that the node's free devices do not need. If the class is not filled in
        phases, all pods that fit are placed at once.
        """
        return not self.plain and (bool(self._amounts_per_device) or self.device_of[class_index] >= 0)

    def pod_limits_by_phase(
        self, class_index: int, free: IntArray, nodes: IntArray, fit: IntArray
    ) -> Iterator[IntArray]:
        """Yield the maximum number of pods on each node by phase; later phases break up larger device groups.

        For example, a pod with one GPU gets the odd GPU of a node in the first phase, and breaks up a pair in the next.

        Args:
          class_index: the class.
          free: [R, N] free amount of each resource on each node.
          nodes: [M] the nodes.
          fit: [M] pods of the class that fit on each of these nodes.

        Yields:
          arrays [M], each at least the one before, the last equal to `fit`.
        """
        device = self.device_of[class_index]
        cap: IntArray | None = None
        if not self.plain and self._amounts_per_device:
            spare = self._spare(class_index, free, nodes, fit)
            for step in self._steps(class_index, device, free, nodes, spare) if spare is not fit else ():
                cap = step if cap is None else np.maximum(cap, step)
                yield cap
        if not self.plain and device >= 0:
            for step in self._steps(class_index, device, free, nodes, fit):
                cap = step if cap is None else np.maximum(cap, step)
                yield cap
        else:
            yield fit

    def _steps(
        self, class_index: int, device: int, free: IntArray, nodes: IntArray, fit: IntArray
    ) -> Iterator[IntArray]:
        """For each larger slot the pods that fit without breaking it, and finally all that fit."""
        if device >= 0:
            size = int(self.demand[class_index, device])
            for larger in self._larger[class_index]:
                # The remainder modulo the larger size is what no whole larger slot contains.
                yield np.minimum(fit, free[device][nodes] % larger // size)
        yield fit

    def _spare(self, class_index: int, free: IntArray, nodes: IntArray, fit: IntArray) -> IntArray:
        """Pods that fit before a node's free devices lack the CPU and memory that are usually requested with them."""
        spare = fit
        for r, amount in self.needs[class_index]:
            if r >= len(self._total) or r in self.devices:
                continue
            kept: IntArray | None = None
            for d, company in self._amounts_per_device:
                if company[r]:
                    amount -= int(company[r]) * int(self.demand[class_index, d])
                    part = company[r] * free[d][nodes]
                    kept = part if kept is None else kept + part
            if kept is not None and amount > 0:
                spare = np.minimum(spare, np.maximum(0, free[r][nodes] - kept) // amount)
        return spare

    def order_node_positions(self, class_index: int, free: IntArray, nodes: IntArray, most: int) -> IntArray:
        """Return the positions in `nodes` of the first nodes to fill, in the order of filling.

        The result has `most` positions, or fewer if there are fewer nodes.

        Args:
          class_index: the class.
          free: [R, N] free amount of each resource on each node.
          nodes: [M] the nodes to order, ascending.
          most: how many positions are needed.
        """
        key = self._packing(class_index, free, nodes)
        score = self._score_rank(int(self._problem.classes.kind[class_index]))
        if score is not None:
            key <<= SCORE_BITS
            key += score[nodes]
        # One integer holds packing step, score rank and position: sorting it is faster than `lexsort` over three keys.
        key <<= INDEX_BITS
        key += np.arange(len(nodes))
        if most < len(nodes):
            # Usually few of thousands of nodes are needed: a partition avoids sorting the rest.
            key.partition(most)
            key = key[:most]
        key.sort()
        return key & ((1 << INDEX_BITS) - 1)

    def _packing(self, class_index: int, free: IntArray, nodes: IntArray) -> IntArray:
        if self.plain:
            return self._most_allocated(class_index, free, nodes)
        ratio, device = self._ratio[class_index], self.device_of[class_index]
        used = [r for r, _ in self.needs[class_index] if r < len(ratio) and r not in self.devices]
        shares = [free[r][nodes] * (1.0 / self._total[r]) for r in used]
        if not shares:
            fullness = np.zeros(len(nodes))
        else:
            fullness = shares[0] if len(shares) == 1 else np.maximum(shares[0], shares[1])
        # Coarse steps, so that nodes of nearly equal fullness are ordered by their scores.
        level: IntArray = np.minimum(fullness * (PACK_LEVELS / 4), PACK_LEVELS - 1).astype(np.int64)
        if self._problem.spread:
            emptiness = (free[device][nodes] if device >= 0 else 0) * PACK_LEVELS + level
            return (DEVICE_LIMIT + 1) * PACK_LEVELS - emptiness
        if device >= 0:
            level += free[device][nodes] * PACK_LEVELS
            return level
        if len(shares) < 2:
            return level
        # Alignment: of two resources, the pod prefers nodes that have relatively more of the one it requests more of.
        first, second = ratio[used[0]], ratio[used[1]]
        norm = np.sqrt(shares[0] ** 2 + shares[1] ** 2) + 1e-9
        along = (shares[0] * first + shares[1] * second) / (norm * float(np.hypot(first, second)))
        away: IntArray = np.minimum((1.0 - along) * 256, 63).astype(np.int64)
        return away * PACK_LEVELS + level

    def _most_allocated(self, class_index: int, free: IntArray, nodes: IntArray) -> IntArray:
        """Bin packing of other schedulers: 100 less the mean allocated percentage of the requested resources.

        Source: kube-scheduler, NodeResourcesFit with the scoring strategy MostAllocated, equal weights.
        """
        requests = [
            (r, amount)
            for r, amount in self.needs[class_index]
            if (r < len(self._total) and amount > 1) or r in self.devices
        ]
        total = np.zeros(len(nodes))
        for r, amount in requests:
            total += 1.0 - (free[r][nodes] - amount) / np.maximum(1, self._problem.nodes.capacity[nodes, r])
        percent: IntArray = np.floor(100.0 * total / max(1, len(requests))).astype(np.int64)
        return 100 - percent

    def _score_rank(self, kind: int) -> IntArray | None:
        """For a kind, how much each node's score is below the highest. Ranks replace differences above 16 bits."""
        if kind not in self._score:
            row = self._problem.kinds.score[kind]
            below = row.max(initial=0) - row
            largest = int(below.max(initial=0))
            if largest >= 1 << SCORE_BITS:
                values, inverse = np.unique(below, return_inverse=True)
                below = inverse.astype(np.int64) // max(1, -(-len(values) // (1 << SCORE_BITS)))
            self._score[kind] = below if largest else None
        return self._score[kind]


def demand_with_plugin_limits(problem: Problem) -> IntArray:
    """Return one pod's requests for each class, with plugin limits on single nodes as additional resources.

    The result is [C, R + E]: R resources, then E rows of plugins that limit each node by itself.
    """
    rows = [
        row.class_coefficients(len(problem.classes.demand))
        for row in problem.rows
        if limits_each_node_separately(row)
    ]
    return np.column_stack([problem.classes.demand, *rows])


def free_amounts_with_plugin_limits(problem: Problem) -> IntArray:
    """Return the free amounts of each node, with plugin limits on single nodes as additional resources.

    The result is [R + E, N], in the order of the columns of `demand_with_plugin_limits`.
    """
    rows = [np.maximum(0, row.right) for row in problem.rows if limits_each_node_separately(row)]
    return np.ascontiguousarray(np.vstack([problem.nodes.free.T, *rows]).astype(np.int64))

"""Which nodes a class of equal pods takes first: slot preservation, then packing or spreading, score, index.

The order, stated once:

1. *Slots.* Devices come in few sizes (1, 2, 4, 8 GPUs). A pod takes the slot that destroys the fewest larger
   slots: a one-GPU pod prefers the odd GPU of a node to breaking a pair, a pair to breaking a quad. Before that,
   a pod takes CPU and memory that a node's free devices will not need, so that no device is left without.
2. *Packing* (fewest free devices, then the fullest node; for pods without devices the node whose free
   resources look most like the request), or with `Problem.spread` the emptiest node. Coarse, on purpose.
3. *Score* of the pipeline, higher first.
4. The lowest node index.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from batchsched.solver.packing.limits import is_resource
from batchsched.solver.problem import IntArray, Problem

DEVICE_LIMIT: Final = 64
"""A resource of which a node has at most so many is a device: it is handed out in slots."""
INDEX_BITS: Final = 20
SCORE_BITS: Final = 16
PACK_LEVELS: Final = 64


class NodeOrder:
    """The order in which nodes are taken, for one problem; it holds no state of the packing."""

    def __init__(self, problem: Problem, plain: bool = False) -> None:
        """Look at the sizes that are asked for; `plain` leaves slot preservation out (the peers' bin-packing)."""
        self.demand = augmented_demand(problem)
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
        self._beside = self._device_company(problem)
        self._score: dict[int, IntArray | None] = {}

    def dominant(self, class_index: int) -> float:
        """The largest share that one pod of a class takes of an average node: how hard it is to place."""
        return self._dominant[class_index]

    def dominant_resource(self, class_index: int) -> int:
        """The resource of which a class takes the largest share."""
        return int(np.argmax(self._ratio[class_index]))

    def _device_company(self, problem: Problem) -> list[tuple[int, IntArray]]:
        """For each device, what else one device of the waiting pods takes along, per resource."""
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

    def phased(self, class_index: int) -> bool:
        """Whether a node may be filled in more than one phase; otherwise it takes what fits at once."""
        return not self.plain and (bool(self._beside) or self.device_of[class_index] >= 0)

    def phases(self, class_index: int, free: IntArray, nodes: IntArray, fit: IntArray) -> Iterator[IntArray]:
        """Upper limits per node, growing: what may be taken before the next larger slot is broken.

        Args:
          class_index: the class.
          free: what is free of each resource on each node, [R, N].
          nodes: the nodes looked at, [M].
          fit: pods of the class that fit on each of these nodes, [M].

        Yields:
          arrays [M], each at least the one before, the last equal to `fit`.
        """
        device = self.device_of[class_index]
        cap: IntArray | None = None
        if not self.plain and self._beside:
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
        """For each larger slot what goes without breaking it, and in the end all that fits."""
        if device >= 0:
            size = int(self.demand[class_index, device])
            for larger in self._larger[class_index]:
                yield np.minimum(fit, free[device][nodes] % larger // size)
        yield fit

    def _spare(self, class_index: int, free: IntArray, nodes: IntArray, fit: IntArray) -> IntArray:
        """Pods that go before a node's free devices lack the CPU and memory that usually come with them."""
        spare = fit
        for r, amount in self.needs[class_index]:
            if r >= len(self._total) or r in self.devices:
                continue
            kept: IntArray | None = None
            for d, company in self._beside:
                if company[r]:
                    amount -= int(company[r]) * int(self.demand[class_index, d])
                    part = company[r] * free[d][nodes]
                    kept = part if kept is None else kept + part
            if kept is not None and amount > 0:
                spare = np.minimum(spare, np.maximum(0, free[r][nodes] - kept) // amount)
        return spare

    def order(self, class_index: int, free: IntArray, nodes: IntArray, most: int) -> IntArray:
        """Positions into `nodes` in the order in which they are taken, the first `most` of them.

        Args:
          class_index: the class.
          free: as for `phases`, [R, N].
          nodes: the nodes to order, ascending, [M].
          most: how many are wanted.
        """
        key = self._packing(class_index, free, nodes)
        score = self._score_rank(int(self._problem.classes.kind[class_index]))
        if score is not None:
            key <<= SCORE_BITS
            key += score[nodes]
        key <<= INDEX_BITS
        key += np.arange(len(nodes))
        if most < len(nodes):
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
        level: IntArray = np.minimum(fullness * (PACK_LEVELS / 4), PACK_LEVELS - 1).astype(np.int64)
        if self._problem.spread:
            left = (free[device][nodes] if device >= 0 else 0) * PACK_LEVELS + level
            return (DEVICE_LIMIT + 1) * PACK_LEVELS - left
        if device >= 0:
            level += free[device][nodes] * PACK_LEVELS
            return level
        if len(shares) < 2:
            return level
        # Alignment: of two resources, the pod goes where the node has relatively more of what it wants more of.
        first, second = ratio[used[0]], ratio[used[1]]
        norm = np.sqrt(shares[0] ** 2 + shares[1] ** 2) + 1e-9
        along = (shares[0] * first + shares[1] * second) / (norm * float(np.hypot(first, second)))
        away: IntArray = np.minimum((1.0 - along) * 256, 63).astype(np.int64)
        return away * PACK_LEVELS + level

    def _most_allocated(self, class_index: int, free: IntArray, nodes: IntArray) -> IntArray:
        """The peers' bin-packing: 100 less the mean allocated percentage of what is asked for.

        Source: kube-scheduler, NodeResourcesFit with the scoring strategy MostAllocated, equal weights.
        """
        asked = [
            (r, amount)
            for r, amount in self.needs[class_index]
            if (r < len(self._total) and amount > 1) or r in self.devices
        ]
        total = np.zeros(len(nodes))
        for r, amount in asked:
            total += 1.0 - (free[r][nodes] - amount) / np.maximum(1, self._problem.nodes.capacity[nodes, r])
        percent: IntArray = np.floor(100.0 * total / max(1, len(asked))).astype(np.int64)
        return 100 - percent

    def _score_rank(self, kind: int) -> IntArray | None:
        """For a kind, by how much each node's score is below the highest; in ranks where that is too much."""
        if kind not in self._score:
            row = self._problem.kinds.score[kind]
            below = row.max(initial=0) - row
            largest = int(below.max(initial=0))
            if largest >= 1 << SCORE_BITS:
                values, inverse = np.unique(below, return_inverse=True)
                below = inverse.astype(np.int64) // max(1, -(-len(values) // (1 << SCORE_BITS)))
            self._score[kind] = below if largest else None
        return self._score[kind]


def augmented_demand(problem: Problem) -> IntArray:
    """Demand [C, R + E], a column for each row that limits every node by itself."""
    rows = [row for row in problem.rows if is_resource(row)]
    extra = np.zeros((len(problem.classes.demand), len(rows)), np.int64)
    for e, row in enumerate(rows):
        np.add.at(extra[:, e], row.classes, row.coefficients)
    return np.hstack([problem.classes.demand, extra])


def augmented_free(problem: Problem) -> IntArray:
    """Free amounts [R + E, N] to match `augmented_demand`, one resource after the other."""
    rows = [np.maximum(0, row.right) for row in problem.rows if is_resource(row)]
    return np.ascontiguousarray(np.vstack([problem.nodes.free.T, *rows]).astype(np.int64))

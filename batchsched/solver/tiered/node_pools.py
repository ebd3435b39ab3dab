"""Pools of similar nodes, and the Chvátal-Gomory rows (slot rows) that represent their capacity.

A pool is the set of nodes with the same mask column, the same type and equally many free devices. The model counts
the pods of a pool and does not place them. For every request size s the row Σ floor(request / s)·x <= Σ_n
floor(free_n / s) holds for every placement on the pool's nodes. The rows are exact for sizes that divide one another,
and a valid relaxation for others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.solver.packing.limits import RowLedger
from batchsched.solver.packing.packing import GangClasses, Packing
from batchsched.solver.problem import BoolArray, IndexArray, IntArray, Problem, group_positions

MAX_SPLIT_POOLS: Final = 64
"""Pools are split along a row's partition as long as there are at most this many."""
MAX_FREE_POOLS: Final = 128
"""Pools are split by the number of free devices on their nodes as long as there are at most this many."""
MAX_COMPOSITE_AMOUNTS: Final = 5
"""Maximum amounts of CPU or memory that form composite rows with one size of a device."""
MAX_MEMORY_RATIOS: Final = 3
"""Maximum ratios of memory to CPU that form composite rows with one amount of CPU."""
PAIRED_CPU_AMOUNTS: Final = 2
"""How many amounts of CPU form such rows, the smallest ones."""
MAX_SLOT_SIZES: Final = 24
"""Maximum sizes of one resource that form slot rows of an area; of more sizes, the quantiles are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class NodePools:
    """The node pools of a problem: disjoint sets of similar nodes.

    Args:
      of_node: [N] pool of each node.
      nodes: the nodes of each pool, ascending.
      along: by index into RowLedger.domains, the partitions into unions of pools: [P] domain or -1.
      kinds: distinct (demand, kind) among classes: [C] index of each class's row in `fit`.
      fit: [U, N] pods that fit on a node, for each distinct (demand, kind).
    """

    of_node: IndexArray
    nodes: list[IntArray]
    along: dict[int, IntArray]
    kinds: IntArray
    fit: IntArray

    @property
    def size(self) -> int:
        """The number of node pools."""
        return len(self.nodes)


def build_pools(packing: Packing) -> NodePools:
    """Divide the nodes of a problem into pools of similar nodes, so that the model counts pods by pool.

    Pools are also divided along the domains of rows and by free devices, as long as there are few enough pools.
    """
    problem, ledger = packing.problem, packing.room.rows
    labels = _labels(problem)
    split: list[int] = []
    # A row over unions of pools is linear in the pools' counts; other rows are left to rounding and cuts.
    for i, domain in enumerate(ledger.domains):
        if len(ledger.rows[i].right) > MAX_SPLIT_POOLS // 4:
            continue
        finer = _number(np.stack([labels, domain.astype(np.int64)], axis=1))
        if int(finer.max(initial=0)) < MAX_SPLIT_POOLS:
            labels = finer
            split.append(i)
    kinds, fit = _fits(packing)
    for r in packing.room.slots.devices:
        finer = _number(np.stack([labels, problem.nodes.free[:, r]], axis=1))
        if int(finer.max(initial=0)) < MAX_FREE_POOLS:
            labels = finer
    nodes = group_positions(labels, int(labels.max(initial=-1)) + 1)
    along = {i: np.array([ledger.domains[i][part[0]] for part in nodes], np.int64) for i in split}
    return NodePools(labels.astype(np.int32), nodes, along, kinds, fit)


def _labels(problem: Problem) -> IntArray:
    """A label for each node: its mask column and its type."""
    columns = np.packbits(problem.kinds.mask, axis=0).T
    return _number(np.hstack([columns.astype(np.int64), problem.nodes.capacity]))


def _number(rows: IntArray) -> IntArray:
    """Numbers of distinct rows, 0.. in sorted order."""
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _fits(packing: Packing) -> tuple[IntArray, IntArray]:
    problem, room = packing.problem, packing.room
    own = np.array([c + 1 if c in room.banned else 0 for c in range(len(problem.classes.count))], np.int64)
    keys = np.hstack([room.slots.demand, problem.classes.kind[:, None].astype(np.int64), own[:, None]])
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    fit = np.empty((len(first), len(problem.nodes.free)), np.int64)
    for row, class_index in enumerate(first.tolist()):
        fit[row] = room.count_fitting_pods(class_index)
        if not room.slots.needs[
            class_index
        ]:  # pods that take nothing: as many as there are of the largest class
            most = problem.classes.count[inverse.reshape(-1) == row].max()
            fit[row] = np.where(room.nodes_passing_filters(class_index), most, 0)
    return inverse.reshape(-1).astype(np.int64), fit


@dataclass(frozen=True, slots=True, eq=False)
class SlotCapacityRow:
    """A linear constraint on the pod counts x of a set of nodes, given by its capacity: Σ factors·x <= right.

    A pod counts as the minimum of floor(request / size) over the (resource, size) pairs of `requests`.
    """

    factors: IntArray
    right: int
    requests: tuple[tuple[int, int], ...]

    @property
    def size(self) -> tuple[int, int] | None:
        """The resource and the request size of a constraint on one resource; None for a constraint on several."""
        return self.requests[0] if len(self.requests) == 1 else None


class SlotSupply:
    """Computes how many requests of one size, such as 4 GPUs, fit on a set of nodes.

    Devices without enough CPU and memory do not count.
    """

    def __init__(self, packing: Packing) -> None:
        """Compute the usable devices: those with the CPU and memory that every pod requests with a device."""
        slots, room = packing.room.slots, packing.room
        self._packing = packing
        self._domains: dict[tuple[tuple[int, ...], int, int], list[int]] = {}
        self.demand = slots.demand
        self._free = [row.copy() for row in room.free]
        for device in slots.devices:
            with_device = self.demand[self.demand[:, device] > 0]
            for r in range(self.demand.shape[1]):
                if r == device or not len(with_device):
                    continue
                # floor(free_r / least per device), in integers: per device = request_r / devices.
                share = with_device[:, r] / with_device[:, device]
                least = int(np.argmin(share))
                per, of = int(with_device[least, r]), int(with_device[least, device])
                if per > 0:
                    self._free[device] = np.minimum(self._free[device], self._free[r] * of // per)
        self._devices = slots.devices
        self.units = [self._unit(column) for column in self.demand.T]
        every = np.arange(len(self.demand))
        self._smallest = [
            self.slot_sizes(r, every)[:PAIRED_CPU_AMOUNTS].tolist() for r in range(self.demand.shape[1])
        ]

    @staticmethod
    def _unit(column: IntArray) -> int:
        sizes = column[column > 0]
        if not sizes.size:
            return 1
        common = int(np.gcd.reduce(sizes))
        return max(common, int(sizes.mean()) // 4096, 1)

    def slot_sizes(self, resource: int, classes: IntArray) -> IntArray:
        """Return the request sizes of a resource, such as 1, 2 and 4 GPUs, for which capacity constraints are formed.

        They are the distinct requests of the pod classes, and their common unit.
        """
        sizes = np.unique(self.demand[classes, resource])
        sizes = sizes[sizes > 0]
        if len(sizes) > MAX_SLOT_SIZES:
            sizes = sizes[np.unique(np.linspace(0, len(sizes) - 1, MAX_SLOT_SIZES).astype(np.int64))]
        unit = self.units[resource]
        return np.unique(np.append(sizes, unit)) if sizes.size else sizes

    def total_slots(self, resource: int, sizes: IntArray, nodes: IntArray) -> IntArray:
        """Return how many requests of each size fit on the nodes: Σ_n floor(free_n / size)."""
        held: IntArray = (self._free[resource][nodes] // sizes[:, None]).sum(axis=1)
        return held

    def requested_slots(self, requests: tuple[tuple[int, int], ...]) -> IntArray:
        """Return how many slots a pod of each class [C] uses, given the (resource, size) pairs of one slot.

        The number of slots is the minimum of floor(request / size) over the pairs.
        """
        slots: IntArray = np.minimum.reduce([self.demand[:, r] // size for r, size in requests])
        return slots

    def free_slots(self, requests: tuple[tuple[int, int], ...], nodes: IntArray) -> int:
        """Return how many slots the nodes have together, given the (resource, size) pairs of one slot."""
        return int(np.minimum.reduce([self._free[r][nodes] // size for r, size in requests]).sum())

    def nonredundant_rows(
        self, classes: IntArray, most: IntArray, nodes: IntArray
    ) -> Iterator[SlotCapacityRow]:
        """Yield the capacity constraints of a set of nodes, without those that always hold.

        Args:
          classes: [J] the classes of the counts in the row, repeats allowed.
          most: [J] the largest value of each count.
          nodes: the area's nodes.

        Yields:
          simple rows Σ floor(request / s)·x <= Σ_n floor(free_n / s), and composite ones over a device and a resource
          requested with it: Σ min(floor(d / s), floor(r / q))·x <= Σ_n min(floor(d_n / s), floor(r_n / q)), valid
          because a node's sum is bounded by both; the same over CPU and memory.
        """
        demand = self.demand[classes]
        for r in range(demand.shape[1]):
            sizes = self.slot_sizes(r, classes)
            if not sizes.size:
                continue
            right = self.total_slots(r, sizes, nodes)
            factors = demand[:, r][None, :] // sizes[:, None]
            for i in np.flatnonzero(factors @ most > right).tolist():
                yield SlotCapacityRow(factors[i], int(right[i]), ((r, int(sizes[i])),))
        for device in self._devices:
            yield from self._composite(device, demand, most, nodes)
        yield from self._paired(demand, most, nodes)

    def slot_functions(self, classes: IntArray, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Return how many slots of F kinds a pod of each class uses, and how many of them each node has.

        For the pods on a node, the values of their requests add up to at most the value of its free amounts.

        Returns:
          the value [F, J] of a pod of each of the classes [J], and the value [F, n] of each node.
        """
        demand, free = self.demand[classes], [row[nodes] for row in self._free]
        simple = [(r, size) for r in range(demand.shape[1]) for size in self.slot_sizes(r, classes).tolist()]
        of_pods = [demand[:, r] // size for r, size in simple]
        of_nodes = [free[r] // size for r, size in simple]
        for device in self._devices:
            for size in np.unique(demand[demand[:, device] > 0, device]).tolist():
                with_size = demand[demand[:, device] == size]
                for r in range(demand.shape[1]):
                    amounts = [] if r in self._devices else np.unique(with_size[:, r])[1:].tolist()
                    of_pods += [np.minimum(demand[:, device] // size, demand[:, r] // a) for a in amounts]
                    of_nodes += [np.minimum(free[device] // size, free[r] // a) for a in amounts]
        count = len(of_pods)
        return (
            np.array(of_pods, np.int64).reshape(count, len(classes)),
            np.array(of_nodes, np.int64).reshape(count, len(nodes)),
        )

    def domains_with_enough_slots(
        self, members: GangClasses, need: int, level: int, cell: IntArray | None
    ) -> list[int]:
        """Return the domains of a topology level with capacity for `need` pods of a gang, the tightest fit first.

        Unlike `Packing.fitting_domains`, the pods of several classes count together.

        Args:
          members: the pods of the gang.
          need: how many of them are to be placed.
          level: the topology level.
          cell: the nodes to use; None for all.
        """
        key = tuple(members.classes), need, level
        if cell is None and key in self._domains:
            return self._domains[key]
        domains = self._packing.fitting_domains(members, need, level, cell)
        if need == members.pods and len(members.classes) > 1 and domains:
            domains = self._without_narrow_domains(members, level, cell, domains)
        if cell is None:
            self._domains[key] = domains
        return domains

    def _without_narrow_domains(
        self, members: GangClasses, level: int, cell: IntArray | None, domains: list[int]
    ) -> list[int]:
        """The given domains, without those that cannot hold all pods of a gang by one of the slot functions."""
        packing, classes = self._packing, np.array(members.classes, np.int64)
        pods = packing.problem.classes.count[classes].astype(np.int64)
        # A domain that has room for each class as many times as the gang has classes holds all classes together.
        fitting = np.stack([packing.count_fitting_pods_by_domain(c, level, cell) for c in members.classes])
        roomy: BoolArray = np.all(fitting >= len(classes) * pods[:, None], axis=0)
        tight = [domain for domain in domains if not roomy[domain]]
        if not tight:
            return domains
        nodes = packing.nodes_in_domains(level, tight, cell)
        masks = packing.problem.kinds.mask[np.unique(packing.problem.classes.kind[classes])]
        nodes = nodes[masks[:, nodes].any(axis=0)]
        factors, held = self.slot_functions(classes, nodes)
        supply = np.zeros((len(roomy), len(factors)), np.int64)
        np.add.at(supply, packing.problem.nodes.levels[level][nodes], held.T)
        narrow: BoolArray = np.any(supply < factors @ pods, axis=1)
        return [domain for domain in domains if roomy[domain] or not narrow[domain]]

    def _paired(self, demand: IntArray, most: IntArray, nodes: IntArray) -> Iterator[SlotCapacityRow]:
        """Composite rows over the two scarcest resources other than devices.

        A node may have one of the two left without the other; the simple rows do not see that.
        """
        plain = [
            r
            for r in range(demand.shape[1])
            if r not in self._devices and len(np.unique(demand[demand[:, r] > 0, r])) > 1
        ]
        plain.sort(key=lambda r: -float(demand[:, r] @ most) / max(1.0, float(self._free[r][nodes].sum())))
        if len(plain) < 2:
            return
        first, second = sorted(plain[:2])
        both = demand[(demand[:, [first, second]] > 0).all(axis=1)]
        # Pods with devices have composite rows of their own.
        alone = both[~(both[:, self._devices] > 0).any(axis=1)]
        both = alone if len(alone) else both
        ratio, first_row = np.unique(both[:, second] / np.maximum(1, both[:, first]), return_index=True)
        shapes = (
            both[first_row[np.unique(np.linspace(0, len(ratio) - 1, MAX_MEMORY_RATIOS).astype(np.int64))]]
            if len(first_row)
            else both
        )
        for size in self._smallest[first]:
            for shape in shapes:
                paired_size = max(1, size * int(shape[second]) // int(shape[first]))
                factors = np.minimum(demand[:, first] // size, demand[:, second] // paired_size)
                right = np.minimum(
                    self._free[first][nodes] // size, self._free[second][nodes] // paired_size
                ).sum()
                if int(factors @ most) > int(right):
                    yield SlotCapacityRow(factors, int(right), ((first, size), (second, paired_size)))

    def _composite(
        self, device: int, demand: IntArray, most: IntArray, nodes: IntArray
    ) -> Iterator[SlotCapacityRow]:
        for size in np.unique(demand[:, device]).tolist():
            if not size:
                continue
            with_size = demand[demand[:, device] == size]
            held = self._free[device][nodes] // size
            for r in range(demand.shape[1]):
                along = np.unique(with_size[:, r])
                if r in self._devices or len(along) < 2:
                    continue
                along = along[
                    np.unique(np.linspace(1, len(along) - 1, MAX_COMPOSITE_AMOUNTS).astype(np.int64))
                ]
                factors = np.minimum(demand[:, device] // size, demand[:, r] // along[:, None])
                # A sum of minima over nodes is tighter than the minimum of two sums.
                right = np.minimum(held, self._free[r][nodes] // along[:, None]).sum(axis=1)
                for i in np.flatnonzero(factors @ most > right).tolist():
                    yield SlotCapacityRow(factors[i], int(right[i]), ((device, size), (r, int(along[i]))))


def pools_by_domain(ledger: RowLedger, pools: NodePools, index: int) -> list[tuple[int, IntArray]] | None:
    """Return the node pools in each domain of a plugin constraint; None if a pool extends over several domains."""
    if index not in pools.along:
        return None
    of_pool = pools.along[index]
    return [(d, np.flatnonzero(of_pool == d)) for d in range(len(ledger.rows[index].right))]

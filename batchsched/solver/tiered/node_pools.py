"""Pools of similar nodes, and the Chvátal-Gomory rows (slot rows) that represent their capacity.

A pool is the set of nodes with the same mask column, the same type and equally many free devices. The model counts
the pods of a pool and does not place them. For every request size s the row Σ floor(request / s)·x <= Σ_n
floor(free_n / s) holds for every placement on the pool's nodes. The rows are exact for sizes that divide one another,
and a valid relaxation for others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.solver.packing.limits import RowTally
from batchsched.solver.packing.packing import GangPodClasses, Packing
from batchsched.solver.problem import BoolArray, IndexArray, IntArray, Problem, positions_by_group

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
      along: by index into RowTally.domains, the partitions into unions of pools: [P] domain or -1.
      kinds: distinct (demand, kind) among classes: [C] index of each class's row in `fit`.
      fit: [U, N] pods that fit on a node, for each distinct (demand, kind).
    """

    of_node: IndexArray
    nodes: list[IntArray]
    along: dict[int, IntArray]
    kinds: IntArray
    fit: IntArray

    @property
    def pool_count(self) -> int:
        """The number of node pools."""
        return len(self.nodes)


def build_pools(packing: Packing) -> NodePools:
    """Divide the nodes of a problem into pools of similar nodes, so that the model counts pods by pool.

    Pools are also divided along the domains of rows and by free devices, as long as there are few enough pools.
    """
    problem, tally = packing.problem, packing.room.rows
    labels = _labels(problem)
    split: list[int] = []
    # A row over unions of pools is linear in the pools' counts; other rows are left to rounding and cuts.
    for i, domain in enumerate(tally.domains):
        if len(tally.rows[i].right) > MAX_SPLIT_POOLS // 4:
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
    nodes = positions_by_group(labels, int(labels.max(initial=-1)) + 1)
    along = {i: np.array([tally.domains[i][part[0]] for part in nodes], np.int64) for i in split}
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
            fit[row] = np.where(room.permitted_nodes(class_index), most, 0)
    return inverse.reshape(-1).astype(np.int64), fit


@dataclass(frozen=True, slots=True, eq=False)
class SlotCapacityRow:
    """A linear constraint Σ factors·x <= right: pods on some nodes use no more slots than the nodes have.

    The variables x are numbers of pods by class. A pod uses as many slots as the minimum of floor(request / size)
    over the (resource, size) pairs of `requests`.
    """

    factors: IntArray
    right: int
    requests: tuple[tuple[int, int], ...]

    @property
    def resource_and_slot_size(self) -> tuple[int, int] | None:
        """The resource and the slot size, if the constraint is on a single resource; otherwise None."""
        return self.requests[0] if len(self.requests) == 1 else None


@dataclass(frozen=True, slots=True, eq=False)
class SlotKinds:
    """A table of F kinds of slots, such as 4 GPUs; kinds with one resource precede kinds with two.

    Args:
      resource, size: [F] the resource, and the size of a request.
      second, second_size: [F2] the second resource of the last F2 kinds, and its size.
    """

    resource: IntArray
    size: IntArray
    second: IntArray
    second_size: IntArray

    @classmethod
    def from_resource_size_pairs(cls, requests: Sequence[tuple[tuple[int, int], ...]]) -> "SlotKinds":
        """Create slot kinds of one or two (resource, size) pairs each; in the list, kinds with one pair come first."""
        first = np.array([pairs[0] for pairs in requests], np.int64).reshape(-1, 2)
        second = np.array([pairs[1] for pairs in requests if len(pairs) > 1], np.int64).reshape(-1, 2)
        return cls(first[:, 0], first[:, 1], second[:, 0], second[:, 1])

    def resource_size_pairs_of_kind(self, kind: int) -> tuple[tuple[int, int], ...]:
        """Return the (resource, size) pairs of one slot kind."""
        first = int(self.resource[kind]), int(self.size[kind])
        pair = kind - (len(self.size) - len(self.second))
        return (first,) if pair < 0 else (first, (int(self.second[pair]), int(self.second_size[pair])))

    def count_fitting_slots(self, amounts: IntArray) -> IntArray:
        """Return how many slots of each kind fit into each column of `amounts`, which has a row for each resource.

        Shapes: amounts [R, n], the result [F, n].

        For one resource the number is floor(amount / size), and for two resources the minimum of both.
        """
        slots: IntArray = amounts[self.resource] // self.size[:, None]
        if len(self.second):
            of_two = slots[-len(self.second) :]
            np.minimum(of_two, amounts[self.second] // self.second_size[:, None], out=of_two)
        return slots


NO_SLOT_KINDS: Final = SlotKinds.from_resource_size_pairs(())


class SlotCounter:
    """Counter of slots: how many requests of one size, such as 4 GPUs, fit on a set of nodes.

    Devices without enough CPU and memory do not count.
    """

    def __init__(self, packing: Packing) -> None:
        """Compute the usable devices: those with the CPU and memory that every pod requests with a device."""
        slots, room = packing.room.slots, packing.room
        self._packing = packing
        self._domains: dict[tuple[tuple[int, ...], int, int], list[int]] = {}
        self.demand = slots.demand
        self._free = np.array(room.free, np.int64)
        self._kinds: dict[bytes, _KindsOfPodClasses] = {}
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
        self.devices = slots.devices
        self.units = [self._unit(column) for column in self.demand.T]
        every = np.arange(len(self.demand))
        self.smallest_sizes = [
            self.slot_sizes(r, every)[:PAIRED_CPU_AMOUNTS] for r in range(self.demand.shape[1])
        ]

    @staticmethod
    def _unit(column: IntArray) -> int:
        sizes = column[column > 0]
        if not sizes.size:
            return 1
        common = int(np.gcd.reduce(sizes))
        return max(common, int(sizes.mean()) // 4096, 1)

    def slot_sizes(self, resource: int, classes: IntArray) -> list[int]:
        """Return the slot sizes of a resource (such as 1, 2 and 4 GPUs) for which the model limits capacity.

        They are the distinct requests of the pod classes, and their common unit.
        """
        sizes = [size for size in _distinct(self.demand[classes, resource]) if size > 0]
        if not sizes:
            return []
        return sorted({*_evenly_spaced(sizes, MAX_SLOT_SIZES), self.units[resource]})

    def count_requested_slots_by_class(self, requests: tuple[tuple[int, int], ...]) -> IntArray:
        """Return how many slots of one kind a pod of each class [C] uses.

        `requests` has the (resource, size) pairs of the slot kind. The number of slots is the minimum of
        floor(request / size) over the pairs.
        """
        slots: IntArray = np.minimum.reduce([self.demand[:, r] // size for r, size in requests])
        return slots

    def count_free_slots(self, requests: tuple[tuple[int, int], ...], nodes: IntArray) -> int:
        """Return how many slots of one kind are free on the given nodes together.

        `requests` has the (resource, size) pairs of the slot kind.
        """
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
        demand, free = self.demand[classes].T, self._free[:, nodes]
        kinds = self._kinds_of_pod_classes(classes)
        for group in (kinds.of_any_nodes, self._kinds_of_scarcest(kinds, demand @ most, free)):
            factors, right = group.count_fitting_slots(demand), group.count_fitting_slots(free).sum(axis=1)
            for kind in np.flatnonzero(factors @ most > right).tolist():
                yield SlotCapacityRow(
                    factors[kind], int(right[kind]), group.resource_size_pairs_of_kind(kind)
                )

    def _kinds_of_pod_classes(self, classes: IntArray) -> "_KindsOfPodClasses":
        key = classes.tobytes()
        if key not in self._kinds:
            self._kinds[key] = _KindsOfPodClasses(self, classes)
        return self._kinds[key]

    def _kinds_of_scarcest(
        self, kinds: "_KindsOfPodClasses", requested: IntArray, free: IntArray
    ) -> SlotKinds:
        """Return the kinds of slots of the two scarcest resources other than devices.

        A node may have one of the two left without the other; slots of one resource do not see that.

        Args:
          kinds: those of the classes.
          requested: [R] what their pods request at most.
          free: [R, n] what the nodes have.
        """
        total = free.sum(axis=1)
        scarcest = sorted(
            kinds.plain_resources, key=lambda r: -float(requested[r]) / max(1.0, float(total[r]))
        )
        return (
            kinds.slot_kinds_of_two_resources(*sorted(scarcest[:2])) if len(scarcest) > 1 else NO_SLOT_KINDS
        )

    def count_used_and_free_slots(self, classes: IntArray, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Return how many slots of each kind (such as 4 GPUs) a pod of each class uses and each node has.

        A kind of slot is a size of one resource, or sizes of two resources. Pods that fit on a node together use at
        most as many slots of each kind as the node has.

        Returns:
          two arrays, for F slot kinds: [F, J] the slots that a pod of each of the classes [J] uses, and [F, n] the
          slots that each node has free.
        """
        kinds = SlotKinds.from_resource_size_pairs(
            [*self.slot_kinds_of_one_resource(classes), *self.slot_kinds_with_device(classes, len(classes))]
        )
        return kinds.count_fitting_slots(self.demand[classes].T), kinds.count_fitting_slots(
            self._free[:, nodes]
        )

    def slot_kinds_of_one_resource(self, classes: IntArray) -> Iterator[tuple[tuple[int, int]]]:
        """Yield the slot kinds of one resource for the given classes, each as one (resource, size) pair."""
        for r in range(self.demand.shape[1]):
            for size in self.slot_sizes(r, classes):
                yield ((r, size),)

    def slot_kinds_with_device(
        self, classes: IntArray, most: int
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield slot kinds that combine a device size, such as 4 GPUs, with an amount of another resource.

        Pods of the given classes request both together.

        Args:
          classes: the classes.
          most: the maximum number of amounts for one size of a device; of more amounts, some are chosen.
        """
        demand = self.demand[classes]
        for device in self.devices:
            for size in _distinct(demand[demand[:, device] > 0, device]):
                with_size = demand[demand[:, device] == size]
                for r in range(demand.shape[1]):
                    if r not in self.devices:
                        # The smallest amount restricts nothing: every such pod requests it.
                        for amount in _evenly_spaced(_distinct(with_size[:, r])[1:], most):
                            yield (device, size), (r, amount)

    def domains_with_enough_slots(
        self, members: GangPodClasses, need: int, level: int, cell: IntArray | None
    ) -> list[int]:
        """Return the domains of a level that have room for `need` pods of a gang, the tightest fit first.

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
        self, members: GangPodClasses, level: int, cell: IntArray | None, domains: list[int]
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
        factors, held = self.count_used_and_free_slots(classes, nodes)
        supply = np.zeros((len(roomy), len(factors)), np.int64)
        np.add.at(supply, packing.problem.nodes.levels[level][nodes], held.T)
        narrow: BoolArray = np.any(supply < factors @ pods, axis=1)
        return [domain for domain in domains if roomy[domain] or not narrow[domain]]


class _KindsOfPodClasses:
    """The kinds of slots for which rows are formed over pods of certain classes.

    Args:
      supply: for the requests of the classes; it is not kept, since it keeps this object.
      classes: [J] the classes.
    """

    def __init__(self, supply: SlotCounter, classes: IntArray) -> None:
        distinct = np.unique(classes)
        self._demand = demand = supply.demand[distinct]
        self._devices, self._smallest_sizes = supply.devices, supply.smallest_sizes
        self.of_any_nodes = SlotKinds.from_resource_size_pairs(
            [
                *supply.slot_kinds_of_one_resource(distinct),
                *supply.slot_kinds_with_device(distinct, MAX_COMPOSITE_AMOUNTS),
            ]
        )
        """The kinds that do not depend on the nodes: of one resource, and of a device with another resource."""
        self.plain_resources = tuple(
            r
            for r in range(demand.shape[1])
            if r not in supply.devices and len(_distinct(demand[demand[:, r] > 0, r])) > 1
        )
        """The resources other than devices of which the classes request different amounts."""
        self._kinds_of_two_resources: dict[tuple[int, int], SlotKinds] = {}

    def slot_kinds_of_two_resources(self, first: int, second: int) -> SlotKinds:
        """Return the slot kinds that combine two resources other than devices, such as CPU and memory."""
        if (first, second) not in self._kinds_of_two_resources:
            both = self._demand[(self._demand[:, [first, second]] > 0).all(axis=1)]
            # Pods with devices have slots of a device and another resource.
            alone = both[~(both[:, self._devices] > 0).any(axis=1)]
            both = alone if len(alone) else both
            ratio, row = np.unique(both[:, second] / np.maximum(1, both[:, first]), return_index=True)
            shapes = both[_evenly_spaced(row.tolist(), MAX_MEMORY_RATIOS)] if len(ratio) else both
            sizes = [
                (size, max(1, size * int(shape[second]) // int(shape[first])))
                for size in self._smallest_sizes[first]
                for shape in shapes
            ]
            # No pod uses a slot with more of the second resource than any pod requests.
            largest = int(self._demand[:, second].max())
            self._kinds_of_two_resources[first, second] = SlotKinds.from_resource_size_pairs(
                [((first, size), (second, other)) for size, other in sizes if other <= largest]
            )
        return self._kinds_of_two_resources[first, second]


def _distinct(amounts: IntArray) -> list[int]:
    """The distinct amounts, ascending. Python sorts few of them faster than numpy."""
    return sorted(set(amounts.tolist()))


def _evenly_spaced(values: Sequence[int], most: int) -> list[int]:
    """At most this many of the values, at equal distances, with the first and the last one."""
    if len(values) <= most:
        return list(values)
    return [values[position] for position in np.linspace(0, len(values) - 1, most).astype(np.int64).tolist()]


def pools_by_row_domain(tally: RowTally, pools: NodePools, index: int) -> list[tuple[int, IntArray]] | None:
    """Return the node pools in each domain of a plugin constraint; None if a pool extends over several domains."""
    if index not in pools.along:
        return None
    of_pool = pools.along[index]
    return [(d, np.flatnonzero(of_pool == d)) for d in range(len(tally.rows[index].right))]

"""The free capacity of nodes while the solver places pods; every change can be undone."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple
from weakref import WeakMethod

import numpy as np

from batchsched.solver.packing.limits import RemainingQuotas, RowTally
from batchsched.solver.packing.node_order import NodeOrder, free_amounts_with_plugin_limits
from batchsched.solver.problem import UNLIMITED, BoolArray, IndexArray, IntArray, Problem

_NOWHERE = np.zeros(0, np.int64)
_ONE = np.ones(1, np.int64)


class TrailEntry(NamedTuple):
    """A recorded change of a packing that can be undone: placed pods, or a gang that counts as placed."""

    class_index: int
    gang: int
    nodes: IntArray
    counts: IntArray
    pods: int


class FreeCapacity:
    """The free capacity of nodes, queue limits and plugin constraints while pods are placed; changes can be undone.

    `checkpoint` and `roll_back_to` bracket an attempt. Minimums and domains are the subject of `Packing`.
    """

    def __init__(self, problem: Problem, plain: bool = False) -> None:
        self.problem = problem
        self.slots = NodeOrder(problem, plain)
        self.free = free_amounts_with_plugin_limits(problem)
        self.mask = problem.kinds.mask
        self.quotas = RemainingQuotas(problem)
        self.rows = RowTally(problem)
        self.waiting: list[int] = problem.classes.count.tolist()
        self.trail: list[TrailEntry] = []
        self._trail_removal_listeners: list[WeakMethod[Callable[[int], None]]] = []
        self._gang: list[int] = problem.classes.gang.tolist()
        self._kind: list[int] = problem.classes.kind.tolist()
        self.banned = _banned(problem)

    def permitted_nodes(self, class_index: int) -> BoolArray:
        """Return a mask [N] of the nodes on which both Filter plugins and cuts allow pods of a pod class.

        A cut excludes nodes on which plugins refused pods of the class that the solver had placed.
        """
        mask: BoolArray = self.mask[self._kind[class_index]]
        return mask & self.banned[class_index] if class_index in self.banned else mask

    def count_fitting_pods(self, class_index: int, nodes: IntArray | None = None) -> IntArray:
        """Return how many pods of a pod class fit on each node, ignoring queue limits and plugin constraints.

        Filter results, cuts and free capacity do count. The result is [N], or [M] for given nodes.
        """
        mask = self.permitted_nodes(class_index)
        if nodes is not None:
            mask = mask[nodes]
        fit: IntArray | None = None
        for r, amount in self.slots.needs[class_index]:
            free = self.free[r] if nodes is None else self.free[r][nodes]
            each = free // amount
            fit = each if fit is None else np.minimum(fit, each, out=fit)
        if fit is None:
            return np.where(mask, self.waiting[class_index], 0).astype(np.int64)
        # Negative free amounts do not occur: a node that is overcommitted has 0 free in a `Problem`.
        fit *= mask
        return fit

    def place_pods_up_to(
        self, class_index: int, want: int, nodes: IntArray | None = None, whole: bool = False
    ) -> int:
        """Place up to `want` pods of a pod class, on the given nodes or on any node.

        Args:
          class_index: the class.
          want: maximum number of pods.
          nodes: the nodes to use, ascending; None for all.
          whole: place nothing unless all `want` pods fit.

        Returns:
          how many pods were placed.
        """
        room = self.quotas.count_admitted_pods(self._gang[class_index], self.slots.needs[class_index], want)
        if room <= 0 or (whole and room < want):
            return 0
        # Lower limits first: pods beyond them must not take the room that another domain of the row still lacks.
        mark = self.checkpoint()
        placed = self._place_minima(class_index, room, nodes) if class_index in self.rows.of_class else 0
        if placed < room:
            placed += self._fill(class_index, room - placed, nodes, whole and placed == 0)
        if whole and placed < want:
            self.roll_back_to(mark)
            return 0
        return placed

    def _place_minima(self, class_index: int, want: int, nodes: IntArray | None) -> int:
        """Fill AT_LEAST rows first (the other domains of a topology spread constraint), domain by domain."""
        placed = 0
        for domain, lack in self.rows.missing_pods_by_domain(class_index):
            for d in np.flatnonzero(lack).tolist():
                inside = np.flatnonzero(domain == d) if nodes is None else nodes[domain[nodes] == d]
                if placed < want and inside.size:
                    placed += self._fill(class_index, min(int(lack[d]), want - placed), inside, False)
        return placed

    def place_equal_single_pod_gangs(self, classes: Sequence[int]) -> int:
        """Place gangs that consist of one pod each, all with equal requests, until a pod does not fit.

        Quotas and rows are not checked: `group_numbers_of_equal_single_pod_gangs` groups only gangs that they do not
        concern.

        Args:
          classes: the pod class of each gang, in the order of placing; all have the same kind and demand, and none of
            their pods is placed yet.

        Returns:
          how many gangs were placed.
        """
        nodes, counts = self._choose(classes[0], len(classes), None, False)
        each = np.repeat(nodes, counts)[:, None]
        for class_index, node in zip(classes, each, strict=False):
            self.count_gang_as_placed(self._gang[class_index])
            self.apply_trail_entry(TrailEntry(class_index, self._gang[class_index], node, _ONE, 1))
        return len(each)

    def _fill(self, class_index: int, want: int, nodes: IntArray | None, whole: bool) -> int:
        """Fill nodes phase by phase; with `whole`, place nothing if the capacity is too small."""
        where, counts = self._choose(class_index, want, nodes, whole)
        if where.size:
            self.change_placed_pods_unchecked(class_index, where, counts)
        return int(counts.sum())

    def _choose(
        self, class_index: int, want: int, nodes: IntArray | None, whole: bool
    ) -> tuple[IntArray, IntArray]:
        """Return the nodes on which up to `want` pods would be placed, and how many pods on each."""
        where = self.nodes_where_pod_fits(class_index, nodes)
        if (
            len(where) >= want
            and not self._held_back(class_index)
            and not self.slots.is_filled_in_phases(class_index)
        ):
            # Every node takes at least one pod, so `want` nodes are enough.
            where = where[self.slots.order_node_positions(class_index, self.free, where, want)]
            counts = _up_to(self.count_fitting_pods(class_index, where), want)
            ascending = where[: len(counts)].argsort()
            return where[ascending], counts[ascending]
        fit = self.count_fitting_pods(class_index, where)
        if whole and int(fit.sum()) < want:
            return _NOWHERE, _NOWHERE
        limited = class_index in self.rows.of_class
        missing, taken = want, np.zeros(len(fit), np.int64)
        for cap in self.slots.pod_limits_by_phase(class_index, self.free, where, fit):
            used, caps = self._take(class_index, where, cap - taken, missing)
            taken[used] += caps
            missing -= int(caps.sum())
            if limited and used.size:
                self.rows.add_pods(class_index, where[used], caps)
            if missing <= 0:
                break
        used = taken.nonzero()[0]
        where, counts = where[used], taken[used]
        if limited:  # undo the charges of the phases: `change_placed_pods_unchecked` charges the rows again
            self.rows.add_pods(class_index, where, -counts)
        return where, counts

    def nodes_where_pod_fits(self, class_index: int, nodes: IntArray | None) -> IntArray:
        """Return the nodes on which a pod of a class fits, of all nodes or only of `nodes` if this is given.

        Usually these are few.
        """
        usable = self.permitted_nodes(class_index)
        takes = usable if nodes is None else usable[nodes]
        for r, amount in self.slots.needs[class_index]:
            free = self.free[r] if nodes is None else self.free[r][nodes]
            takes = takes & (free >= amount)
        positions: IntArray = takes.nonzero()[0]
        return positions if nodes is None else nodes[positions]

    def _take(self, class_index: int, nodes: IntArray, cap: IntArray, want: int) -> tuple[IntArray, IntArray]:
        """The positions of the nodes that one phase fills and the pods on each, at most `want` together."""
        positions = (cap > 0).nonzero()[0]
        caps = cap[positions]
        held_back = self._held_back(class_index)
        if not positions.size or (not held_back and int(caps.sum()) <= want):
            return positions, caps
        positions = positions[
            self.slots.order_node_positions(
                class_index, self.free, nodes[positions], len(positions) if held_back else want
            )
        ]
        caps = cap[positions]
        if self.problem.spread:
            caps = _level(caps, want)
        if class_index in self.rows.of_class:
            caps = self.rows.clip_pod_limits_to_rows(class_index, nodes[positions], caps)
        caps = _up_to(caps, want)
        return positions[: len(caps)], caps

    def _held_back(self, class_index: int) -> bool:
        """Whether a node may get fewer pods of the class than fit, although more pods are to be placed."""
        return self.problem.spread or class_index in self.rows.of_class

    def change_placed_pods_unchecked(self, class_index: int, nodes: IntArray, counts: IntArray) -> None:
        """Place pods of a pod class, or remove them if counts are negative, without any check of capacity.

        Nodes are distinct.
        """
        pods = int(counts.sum())
        self.apply_trail_entry(TrailEntry(class_index, self._gang[class_index], nodes, counts, pods))

    def count_gang_as_placed(self, gang: int) -> None:
        """Count a gang as placed for the queue limits and plugin constraints that count gangs."""
        self.apply_trail_entry(TrailEntry(-1, gang, _NOWHERE, _NOWHERE, 0))

    def apply_trail_entry(self, entry: TrailEntry, sign: int = 1) -> None:
        """Make the change of a trail entry and record it (sign 1), or undo the recorded change (sign -1).

        The change places pods, or counts a gang as placed. A caller that undoes an entry has removed it from the trail.
        """
        if entry.class_index < 0:
            self.quotas.deduct_gang(entry.gang, sign)
            self.rows.add_placed_gang(entry.gang, sign)
        else:
            for r, amount in self.slots.needs[entry.class_index]:
                self.free[r][entry.nodes] -= entry.counts * (amount * sign)
            self.waiting[entry.class_index] -= sign * entry.pods
            self.quotas.deduct_pods(entry.gang, self.slots.needs[entry.class_index], sign * entry.pods)
            if self.rows.rows:
                self.rows.add_pods(entry.class_index, entry.nodes, entry.counts * sign)
        # An undone entry has been removed from the trail by the caller.
        if sign > 0:
            self.trail.append(entry)

    def apply_trail_entry_if_it_fits(self, entry: TrailEntry) -> bool:
        """Make the change of a trail entry and record it, unless capacity or a queue limit is missing for it.

        Filter results, cuts and plugin constraints are not checked.
        """
        if entry.class_index < 0:
            fits = self.quotas.allows_one_more_running_gang(entry.gang)
        else:
            needs = self.slots.needs[entry.class_index]
            admitted = self.quotas.count_admitted_pods(entry.gang, needs, entry.pods)
            fits = admitted == entry.pods and all(
                bool((self.free[resource][entry.nodes] >= entry.counts * amount).all())
                for resource, amount in needs
            )
        if fits:
            self.apply_trail_entry(entry)
        return fits

    def checkpoint(self) -> int:
        """Return a number that identifies the present state, so that `roll_back_to` can restore it."""
        return len(self.trail)

    def roll_back_to(self, mark: int) -> None:
        """Undo all changes of the packing since the call of `checkpoint` that returned this number."""
        while len(self.trail) > mark:
            self.apply_trail_entry(self.trail.pop(), -1)
        self._report_trail_removal(mark)

    def withdraw_gangs(self, gangs: set[int]) -> list[TrailEntry]:
        """Remove all placed pods of some gangs, and return the removed placements."""
        return self._withdraw(lambda entry: entry.gang in gangs)

    def withdraw_pods_of_classes(self, classes: Collection[int]) -> list[TrailEntry]:
        """Remove all placed pods of some pod classes, and return the removed placements.

        The gangs of these pods still count as placed.
        """
        return self._withdraw(lambda entry: entry.class_index in classes)

    def _withdraw(self, leaves: Callable[[TrailEntry], bool]) -> list[TrailEntry]:
        kept: list[TrailEntry] = []
        withdrawn: list[TrailEntry] = []
        unchanged = len(self.trail)  # entries before the first withdrawn one keep their positions
        for position, entry in enumerate(self.trail):
            if leaves(entry):
                self.apply_trail_entry(entry, -1)
                withdrawn.append(entry)
                unchanged = min(unchanged, position)
            else:
                kept.append(entry)
        self.trail[:] = kept
        self._report_trail_removal(unchanged)
        return withdrawn

    def add_trail_removal_listener(self, listener: Callable[[int], None]) -> None:
        """Register a method that is called each time after entries of the trail are removed.

        Its argument is the number of trail entries before the first removed entry; these entries are unchanged.

        The registration does not keep the method's object alive, and ends with it.
        """
        # Weak: tables over the trail refer to this object, and a cycle would keep both until a full garbage collection.
        self._trail_removal_listeners.append(WeakMethod(listener))

    def _report_trail_removal(self, unchanged: int) -> None:
        for reference in self._trail_removal_listeners:
            listener = reference()
            if listener is not None:
                listener(unchanged)

    def placements(self) -> tuple[IndexArray, IndexArray, IndexArray]:
        """Return all placements as three sorted arrays [P]: pod classes, nodes and pod counts.

        There is one triple for each class and node.
        """
        entries = [entry for entry in self.trail if entry.class_index >= 0]
        if not entries:
            empty = np.zeros(0, np.int32)
            return empty, empty, empty
        width = max(1, self.free.shape[1])
        keys = np.concatenate([entry.class_index * width + entry.nodes for entry in entries])
        counts = np.concatenate([entry.counts for entry in entries])
        keys, inverse = np.unique(keys, return_inverse=True)
        total = np.zeros(len(keys), np.int64)
        np.add.at(total, inverse, counts)
        keys, total = keys[total > 0], total[total > 0]
        return (keys // width).astype(np.int32), (keys % width).astype(np.int32), total.astype(np.int32)


def _banned(problem: Problem) -> dict[int, BoolArray]:
    """For each class of a cut, the nodes that it may still use, [N]: all but those where the pipeline refused it."""
    result: dict[int, BoolArray] = {}
    for cut in problem.cuts:
        for class_index, node in zip(cut.classes.tolist(), cut.nodes.tolist(), strict=True):
            result.setdefault(class_index, np.ones(len(problem.nodes.free), np.bool_))[node] = False
    return result


def _up_to(caps: IntArray, want: int) -> IntArray:
    """The first of these caps that sum to `want`, the last of them reduced; all caps if their sum is smaller."""
    running = caps.cumsum()
    # The first position at which the running sum reaches `want`.
    last = int(running.searchsorted(want))
    if last == len(caps):
        return caps
    caps = caps[: last + 1].copy()
    caps[-1] -= running[last] - want
    return caps


def _level(caps: IntArray, want: int) -> IntArray:
    """Caps reduced to the lowest common level at which they still sum to `want`: the pods are spread evenly."""
    low, high = 1, int(caps.max())
    while low < high:
        middle = (low + high) // 2
        if int(np.minimum(caps, middle).sum()) >= want:
            high = middle
        else:
            low = middle + 1
    return np.minimum(caps, low) if low < UNLIMITED else caps

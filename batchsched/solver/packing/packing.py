"""The placement of one gang after the other, all or nothing, on the present free capacity of the nodes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from batchsched.solver.gang_tree import GangTrees
from batchsched.solver.objective import (
    count_pods_still_required,
    objective_upper_bounds_by_tier,
    objectives_by_tier,
)
from batchsched.solver.packing.free_capacity import FreeCapacity, TrailEntry
from batchsched.solver.packing.node_order import NodeOrder
from batchsched.solver.packing.tree_packing import SubgroupTreePlacer
from batchsched.solver.problem import (
    NONE,
    IntArray,
    Problem,
    Solution,
    position_lists_by_group,
    positions_by_group,
)


@dataclass(frozen=True, slots=True)
class SubgroupPodClasses:
    """The pod classes of one subgroup of a gang; `index` is -1 for the pods that belong to no subgroup."""

    index: int
    need: int
    required: int
    preferred: int
    pinned: int
    classes: tuple[int, ...]  # the largest pods first


@dataclass(frozen=True, slots=True)
class GangPodClasses:
    """The sorted pod classes and sorted subgroups of a gang; the solver places pods in this order."""

    classes: tuple[int, ...]
    parts: tuple[SubgroupPodClasses, ...]
    pods: int
    levelled: bool  # some level, of the gang or of a part, is asked for


def collect_pod_classes_of_gang(
    problem: Problem,
    slots: NodeOrder,
    gang: int,
    owned: Sequence[int],
    subgroups: Sequence[int],
    *,
    tree: bool,
) -> GangPodClasses:
    """Collect and sort the pod classes and subgroups of a gang; the solver places pods in this order.

    `tree` says whether the gang is a tree (`solver.gang_tree`).
    """
    classes = sorted(owned, key=partial(_size, slots))
    inner = problem.subgroups
    # `SubgroupTreePlacer` places a tree: here its subgroups set no minimum and no level, so that every placement of
    # it is one.
    parts = [
        SubgroupPodClasses(
            index=s,
            need=0 if tree else int(inner.need[s]),
            required=NONE if tree else int(inner.required[s]),
            preferred=NONE if tree else int(inner.preferred[s]),
            pinned=int(inner.pinned[s]),
            classes=tuple(c for c in classes if problem.classes.subgroup[c] == s),
        )
        for s in subgroups
    ]
    loose = tuple(c for c in classes if problem.classes.subgroup[c] == NONE)
    if loose:
        parts.append(SubgroupPodClasses(-1, 0, NONE, NONE, NONE, loose))
    parts.sort(key=lambda part: (part.required == NONE, -part.required, _size(slots, part.classes[0])
                                 if part.classes else (0, 0.0, 0)))  # fmt: skip
    levelled = (
        tree
        or bool(problem.gangs.required[gang] != NONE or problem.gangs.preferred[gang] != NONE)
        or any(part.required != NONE or part.preferred != NONE for part in parts)
    )
    return GangPodClasses(
        tuple(classes), tuple(parts), sum(int(problem.classes.count[c]) for c in classes), levelled
    )


def _size(slots: NodeOrder, class_index: int) -> tuple[int, float, int]:
    """Sort key: the largest pods first, by devices, then by dominant share; in plain packings the given order."""
    if slots.plain:
        return (0, 0.0, class_index)
    device = slots.device_of[class_index]
    return (
        -int(slots.demand[class_index, device]) if device >= 0 else 0,
        -slots.largest_share_of_average_node(class_index),
        class_index,
    )


@dataclass(frozen=True, slots=True)
class WithdrawnGangs:
    """The placements and topology domains of gangs that were removed from a packing, kept to restore them."""

    entries: list[TrailEntry]
    domains: dict[int, int]
    inner: dict[int, int]


class Packing:
    """A partial placement: the nodes of a solver problem with the pods that are placed on them so far.

    The greedy solver adds gangs one by one, by these rules, in this order: a gang's required (or pinned) domain is
    the one that holds the gang with the least to spare; it uses the fewest domains of its preferred level; nodes
    are filled in the order of `NodeOrder`.

    Use: `entries = packing.place_minimum_of_gang(g)`; `None` means that none of its pods was placed. `checkpoint` and
    `roll_back_to` bracket attempts; `withdraw_gangs` and `reinstate_gangs` take whole gangs out and put them back.
    """

    def __init__(self, problem: Problem, plain: bool = False) -> None:
        """Start from the problem's free capacity; `plain` packs as other schedulers do, without slot preservation."""
        self.problem = problem
        self.room = FreeCapacity(problem, plain)
        self.needs: list[int] = count_pods_still_required(problem).tolist()
        self.taken = np.array([n == 0 for n in self.needs], np.bool_)
        self.domain_of: dict[int, int] = {}
        self.domain_of_subgroup: dict[int, int] = {}
        self._members: dict[int, GangPodClasses] = {}
        self._nodes_of: dict[int, list[IntArray]] = {}
        gangs = len(problem.gangs.need)
        self._classes_of = position_lists_by_group(problem.classes.gang, gangs)
        self._parts_of = position_lists_by_group(problem.subgroups.gang, gangs)
        self.trees = GangTrees(problem)

    def checkpoint(self) -> int:
        """Return a number that identifies the present state of the packing, for a later `roll_back_to`."""
        return self.room.checkpoint()

    def roll_back_to(self, mark: int) -> None:
        """Undo all changes to the packing since the call of `checkpoint` that returned the number `mark`."""
        for entry in self.room.trail[mark:]:
            if entry.class_index < 0:
                self._forget(entry.gang)
        self.room.roll_back_to(mark)

    def withdraw_gangs(self, gangs: set[int]) -> "WithdrawnGangs":
        """Remove all pods of some gangs from their nodes; return what `reinstate_gangs` needs to put them back."""
        # The domains must be read before `_forget` drops them.
        domains = {g: d for g, d in self.domain_of.items() if g in gangs}
        parts = {subgroup for g in gangs for subgroup in self._parts_of[g]}
        inner = {s: d for s, d in self.domain_of_subgroup.items() if s in parts}
        for g in sorted(gangs):
            self._forget(g)
        return WithdrawnGangs(self.room.withdraw_gangs(gangs), domains, inner)

    def reinstate_gangs(self, withdrawn: "WithdrawnGangs") -> None:
        """Put the gangs that `withdraw_gangs` has removed back on the same nodes."""
        for entry in withdrawn.entries:
            self.room.apply_trail_entry(entry)
            if entry.class_index < 0:
                self.taken[entry.gang] = True
        self.domain_of.update(withdrawn.domains)
        self.domain_of_subgroup.update(withdrawn.inner)

    def reinstate_gangs_that_fit(self, gangs: Sequence[int], withdrawn: "WithdrawnGangs") -> list[int]:
        """Put gangs that `withdraw_gangs` has removed back on their nodes, one by one, if nodes and queues have room.

        Returns:
          the gangs that no longer fit. None of their pods is placed.
        """
        entries: defaultdict[int, list[TrailEntry]] = defaultdict(list)
        for entry in withdrawn.entries:
            entries[entry.gang].append(entry)
        displaced = []
        for gang in gangs:
            mark = self.checkpoint()
            if not all(self.room.apply_trail_entry_if_it_fits(entry) for entry in entries[gang]):
                self.roll_back_to(mark)
                displaced.append(gang)
                continue
            self.taken[gang] = True
            if gang in withdrawn.domains:
                self.domain_of[gang] = withdrawn.domains[gang]
            for subgroup in self._parts_of[gang]:
                if subgroup in withdrawn.inner:
                    self.domain_of_subgroup[subgroup] = withdrawn.inner[subgroup]
        return displaced

    def _forget(self, gang: int) -> None:
        if self.needs[gang] > 0:
            self.taken[gang] = False
        self.domain_of.pop(gang, None)
        for subgroup in self._parts_of[gang]:
            self.domain_of_subgroup.pop(subgroup, None)

    def place_minimum_of_gang(self, gang: int) -> list[TrailEntry] | None:
        """Place the minimum number of pods of a gang, or no pod at all.

        Returns:
          the trail entries of its pods; None if the gang cannot be placed now. Then nothing has changed.
        """
        problem, room = self.problem, self.room
        if self.taken[gang] or not problem.gangs.allowed[gang]:
            return None
        # The cheap tests first: most refusals of a full cluster are decided without a look at the nodes.
        if not room.quotas.allows_one_more_running_gang(gang) or not room.quotas.may_admit_minimum(gang):
            return None
        members = self.pod_classes_of_gang(gang)
        need = self.needs[gang]
        if members.pods < need:
            return None
        mark = room.checkpoint()
        # The gang counts against gang limits and rows before its pods, so that rows over y see it.
        room.count_gang_as_placed(gang)
        if self._place_minimum(gang, members) and (
            not room.rows.rows or room.rows.rows_of_gang_are_satisfied(gang)
        ):
            self.taken[gang] = True
            return room.trail[mark:]
        self._forget(gang)
        room.roll_back_to(mark)
        return None

    def place_equal_single_pod_gangs(self, gangs: Sequence[int]) -> None:
        """Place single-pod gangs with equal requests, in the order of `gangs`, until one does not fit.

        Gangs that are placed already keep their places.

        Args:
          gangs: gangs with the same number in `group_numbers_of_equal_single_pod_gangs`.
        """
        missing = [gang for gang in gangs if not self.taken[gang]]
        if missing:
            placed = self.room.place_equal_single_pod_gangs([self._classes_of[gang][0] for gang in missing])
            self.taken[missing[:placed]] = True

    def place_elastic_pods(self, gang: int) -> int:
        """If a gang's minimum is placed, add as many elastic pods as fit; return how many were placed."""
        if not self.taken[gang] or not self.problem.gangs.allowed[gang]:
            return 0
        if not any(self.room.waiting[class_index] for class_index in self._classes_of[gang]):
            return 0
        tree = self.trees.tree_of_gang(gang)
        if tree is not None:
            return SubgroupTreePlacer(self, gang).place_elastic_pods(tree)
        placed = 0
        for part in self.pod_classes_of_gang(gang).parts:
            for class_index in part.classes:
                want = self.room.waiting[class_index]
                if want > 0:
                    placed += self._surplus(gang, part, class_index, want)
        return placed

    def _surplus(
        self, gang: int, part: SubgroupPodClasses, class_index: int, want: int, check: bool = True
    ) -> int:
        mark = self.room.checkpoint()
        cell, settled = self._cell(gang, part)
        if settled:
            got = self.room.place_pods_up_to(class_index, want, cell)
        else:
            got = self._surplus_where_most_fit(gang, part, class_index, want, check)
        if check and self.room.rows.rows and got and not self.room.rows.rows_of_gang_are_satisfied(gang):
            self.room.roll_back_to(mark)
            return 0
        return got

    def _cell(self, gang: int, part: SubgroupPodClasses) -> tuple[IntArray | None, bool]:
        """The nodes that a part's pods may use by the domains chosen so far; False if a domain is not chosen yet."""
        problem = self.problem
        level = int(problem.gangs.required[gang])
        nodes: IntArray | None = None
        if level != NONE:
            domain = self.domain_of.get(gang, int(problem.gangs.pinned[gang]))
            if domain == NONE:
                return None, False
            nodes = self.nodes_of_domain(level, domain)
        if part.required != NONE:
            domain = self.domain_of_subgroup.get(part.index, part.pinned)
            if domain == NONE:
                return nodes, False
            inner = self.nodes_of_domain(part.required, domain)
            nodes = inner if nodes is None else np.intersect1d(nodes, inner, assume_unique=True)
        return nodes, True

    def nodes_of_chosen_domains(self, class_index: int) -> IntArray | None:
        """Return the nodes in the topology domain chosen for the pods of a class; None if all are allowed."""
        gang = int(self.problem.classes.gang[class_index])
        part = next(part for part in self.pod_classes_of_gang(gang).parts if class_index in part.classes)
        return self._cell(gang, part)[0]

    def _surplus_where_most_fit(
        self, gang: int, part: SubgroupPodClasses, class_index: int, want: int, check: bool
    ) -> int:
        """Choose the open domains for elastic pods: the domain in which the most of them fit."""
        level = int(self.problem.gangs.required[gang])
        cell, _ = self._cell(gang, part)
        if (
            cell is None
            and level != NONE
            and self.domain_of.get(gang, int(self.problem.gangs.pinned[gang])) == NONE
        ):
            capacity = self.count_fitting_pods_by_domain(class_index, level, None)
            if not capacity.any():
                return 0
            self.domain_of[gang] = int(np.argmax(np.minimum(capacity, want)))
            return self._surplus(gang, part, class_index, want, check)
        capacity = self.count_fitting_pods_by_domain(class_index, part.required, cell)
        if not capacity.any():
            return 0
        self.domain_of_subgroup[part.index] = int(np.argmax(np.minimum(capacity, want)))
        return self._surplus(gang, part, class_index, want, check)

    # ------------------------------------------------------------------------------------ minimum

    def _place_minimum(self, gang: int, members: GangPodClasses) -> bool:
        tree = self.trees.tree_of_gang(gang)
        if tree is not None:
            return SubgroupTreePlacer(self, gang).place_minimum(tree)
        if members.levelled:
            return self._in_domains(gang, members)
        return self._minimum(members, self.needs[gang], None)

    def _minimum(self, members: GangPodClasses, need: int, nodes: IntArray | None) -> bool:
        """Place `need` pods, each part's own need among them, on the given nodes or on any."""
        room = self.room
        if need == members.pods:
            # A gang that needs all its pods has no choice among classes: each must fit as a whole.
            return all(
                room.place_pods_up_to(c, room.waiting[c], nodes, whole=True)
                for c in members.classes
                if room.waiting[c]
            )
        placed = 0
        for part in members.parts:
            got = self.place_pods_of_any_class(part.classes, part.need, nodes)
            if got < part.need:
                return False
            placed += got
        return (
            placed >= need
            or self.place_pods_of_any_class(members.classes, need - placed, nodes) >= need - placed
        )

    def place_pods_of_any_class(self, classes: Sequence[int], want: int, nodes: IntArray | None) -> int:
        """Place up to `want` pods of some pod classes, class by class; return how many were placed."""
        placed = 0
        for c in classes:
            if placed < want and self.room.waiting[c] > 0:
                placed += self.room.place_pods_up_to(c, min(want - placed, self.room.waiting[c]), nodes)
        return placed

    def _in_domains(self, gang: int, members: GangPodClasses) -> bool:
        """Place a minimum under required and preferred levels."""
        problem = self.problem
        level, need = int(problem.gangs.required[gang]), self.needs[gang]
        if level == NONE:
            return self._in_cell(gang, members, need, None)
        for domain, nodes in self._try_domains(members, need, (level, int(problem.gangs.pinned[gang])), None):
            self.domain_of[gang] = domain
            if self._in_cell(gang, members, need, nodes):
                return True
        self.domain_of.pop(gang, None)
        return False

    def _try_domains(
        self, members: GangPodClasses, need: int, level: tuple[int, int], cell: IntArray | None
    ) -> Iterator[tuple[int, IntArray]]:
        """Yield the domains that may hold a minimum, the tightest fit first, and their nodes.

        The caller stops at the domain in which it placed the minimum; otherwise its attempt is undone.

        Args:
          members: the pods to place.
          need: how many of them make the minimum.
          level: the required level, and the pinned domain or NONE.
          cell: the nodes that may be used, None for all.
        """
        required, pinned = level
        for domain in [pinned] if pinned != NONE else self.fitting_domains(members, need, required, cell):
            mark = self.room.checkpoint()
            yield domain, self.nodes_in_domains(required, [domain], cell)
            self.room.roll_back_to(mark)

    def _in_cell(self, gang: int, members: GangPodClasses, need: int, cell: IntArray | None) -> bool:
        """Place a minimum inside a cell of nodes, parts with levels of their own first."""
        own = [part for part in members.parts if part.required != NONE or part.preferred != NONE]
        if not own:
            return self._preferring(int(self.problem.gangs.preferred[gang]), gang, -1, members, need, cell)
        placed = 0
        # Parts with levels of their own have the fewest nodes to choose from, so they are placed first.
        for part in sorted(members.parts, key=lambda part: part not in own):
            least = sum(self.room.waiting[c] for c in part.classes) if need == members.pods else part.need
            if part in own:
                if least and not self._part(gang, part, least, cell):
                    return False
            elif self.place_pods_of_any_class(part.classes, least, cell) < least:
                return False
            placed += least
        return placed >= need or self._beyond(gang, members, need - placed)

    def _beyond(self, gang: int, members: GangPodClasses, want: int) -> bool:
        """Place pods that the minimum needs in addition to the needs of the parts: any that fit."""
        for part in members.parts:
            for class_index in part.classes:
                if want > 0 and self.room.waiting[class_index]:
                    want -= self._surplus(
                        gang, part, class_index, min(want, self.room.waiting[class_index]), check=False
                    )
        return want <= 0

    def _part(self, gang: int, part: SubgroupPodClasses, least: int, cell: IntArray | None) -> bool:
        members = GangPodClasses(
            part.classes, (part,), sum(self.room.waiting[c] for c in part.classes), levelled=True
        )
        if part.required == NONE:
            return self._preferring(part.preferred, gang, part.index, members, least, cell)
        for domain, nodes in self._try_domains(members, least, (part.required, part.pinned), cell):
            if self._preferring(part.preferred, gang, part.index, members, least, nodes):
                self.domain_of_subgroup[part.index] = domain
                return True
        return False

    def _preferring(
        self, level: int, gang: int, part: int, members: GangPodClasses, need: int, cell: IntArray | None
    ) -> bool:
        """Place on as few domains of a level as possible: on one if it suffices, else on those with the most room."""
        if level == NONE:
            return self._minimum(members, need, cell)
        used = self._used(gang, part, level)
        if not used:
            for domain in self.fitting_domains(members, need, level, cell)[:8]:
                if self._attempt(members, need, self.nodes_in_domains(level, [domain], cell)):
                    return True
        roomy = self._roomiest(members, level, cell)
        order = used + [d for d in roomy if d not in set(used)]
        # Doubling the number of domains finds a small number in few attempts; the last attempt uses all nodes.
        share = max(len(used), 1)
        while share < len(order):
            if self._attempt(members, need, self.nodes_in_domains(level, order[:share], cell)):
                return True
            share *= 2
        return self._minimum(members, need, cell)

    def _attempt(self, members: GangPodClasses, need: int, nodes: IntArray) -> bool:
        mark = self.room.checkpoint()
        if self._minimum(members, need, nodes):
            return True
        self.room.roll_back_to(mark)
        return False

    # ------------------------------------------------------------------------------------ domains

    def nodes_of_domain(self, level: int, domain: int) -> IntArray:
        """Return the nodes of a topology domain, ascending."""
        if level not in self._nodes_of:
            ids = self.problem.nodes.levels[level]
            self._nodes_of[level] = positions_by_group(ids, int(ids.max(initial=-1)) + 1)
        domains = self._nodes_of[level]
        return domains[domain] if domain < len(domains) else np.zeros(0, np.int64)

    def nodes_in_domains(self, level: int, domains: Sequence[int], cell: IntArray | None) -> IntArray:
        """Return the nodes in some topology domains of a level, ascending.

        `cell` restricts the result to some nodes; None means all nodes.
        """
        nodes = self.nodes_of_domain(level, domains[0])
        if len(domains) > 1:
            nodes = np.sort(np.concatenate([self.nodes_of_domain(level, d) for d in domains]))
        return nodes if cell is None else np.intersect1d(nodes, cell, assume_unique=True)

    def count_fitting_pods_by_domain(self, class_index: int, level: int, cell: IntArray | None) -> IntArray:
        """Return for each topology domain [D] of a level how many pods of a class fit in it.

        `cell` limits the count to some nodes; None means all nodes.
        """
        ids = self.problem.nodes.levels[level]
        size = int(ids.max(initial=-1)) + 1
        nodes = self.room.nodes_where_pod_fits(class_index, cell)
        nodes = nodes[ids[nodes] >= 0]
        total = np.bincount(
            ids[nodes], weights=self.room.count_fitting_pods(class_index, nodes), minlength=size
        )
        return total.astype(np.int64)

    def fitting_domains(
        self, members: GangPodClasses, need: int, level: int, cell: IntArray | None
    ) -> list[int]:
        """Return the domains of a level that have room for `need` pods of a gang, the tightest fit first."""
        spare: IntArray | None = None
        total: IntArray | None = None
        # With all pods needed, each class must fit as a whole; otherwise only the sum counts.
        rigid = need == members.pods
        for c in members.classes:
            waiting = self.room.waiting[c]
            if not waiting:
                continue
            capacity = self.count_fitting_pods_by_domain(c, level, cell)
            within = np.minimum(capacity, waiting)
            total = within if total is None else total + within
            if rigid:
                # Thousandths, so that the tightest fit is an exact comparison of integers.
                multiple = np.where(capacity >= waiting, capacity * 1000 // waiting, -1)
                spare = multiple if spare is None else np.minimum(spare, multiple)
        if total is None:
            return []
        key = spare if spare is not None else np.where(total >= need, total, -1)
        good = (key >= 0).nonzero()[0]
        tightest: list[int] = good[key[good].argsort(kind="stable")].tolist()
        return tightest

    def _roomiest(self, members: GangPodClasses, level: int, cell: IntArray | None) -> list[int]:
        share = np.zeros(int(self.problem.nodes.levels[level].max(initial=-1)) + 1)
        for c in members.classes:
            waiting = self.room.waiting[c]
            if waiting:
                share += np.minimum(self.count_fitting_pods_by_domain(c, level, cell), waiting)
        order = np.argsort(-share, kind="stable")
        return [int(d) for d in order if share[d] > 0]

    def place_pods_of_class_on_few_domains(
        self, class_index: int, want: int, level: int, cell: IntArray | None
    ) -> int:
        """Place up to `want` pods of a class on few domains of a level; return how many were placed.

        Domains that already have pods of the gang come first, then the tightest that holds the rest, else the
        largest.
        """
        gang, sub = (
            int(self.problem.classes.gang[class_index]),
            int(self.problem.classes.subgroup[class_index]),
        )
        used = self._used(gang, sub, level) + self._used(gang, NONE, level)
        for entry in self.room.trail:
            if entry.gang == gang and entry.class_index >= 0:
                used.extend(np.unique(self.problem.nodes.levels[level][entry.nodes]).tolist())
        missing, used_first = want, [d for d in dict.fromkeys(used) if d != NONE]
        for domain in used_first:
            if missing > 0:
                missing -= self.room.place_pods_up_to(
                    class_index, missing, self.nodes_in_domains(level, [domain], cell)
                )
        while missing > 0:
            capacity = self.count_fitting_pods_by_domain(class_index, level, cell)
            if not capacity.any():
                break
            enough = np.flatnonzero(capacity >= missing)
            tightest = int(enough[np.argmin(capacity[enough])]) if enough.size else int(np.argmax(capacity))
            placed = self.room.place_pods_up_to(
                class_index, missing, self.nodes_in_domains(level, [tightest], cell)
            )
            if placed == 0:
                break
            missing -= placed
        return want - missing

    def _used(self, gang: int, part: int, level: int) -> list[int]:
        problem = self.problem
        if not problem.used_domains.gang.size:
            return []
        own = (
            (problem.used_domains.gang == gang)
            & (problem.used_domains.level == level)
            & (problem.used_domains.subgroup == part)
        )
        return [int(d) for d in np.unique(problem.used_domains.domain[own])]

    # ------------------------------------------------------------------------------------ members

    def pod_classes_of_gang(self, gang: int) -> GangPodClasses:
        """Return the sorted pod classes and subgroups of a gang; the solver places pods in this order."""
        if gang not in self._members:
            self._members[gang] = collect_pod_classes_of_gang(
                self.problem,
                self.room.slots,
                gang,
                self._classes_of[gang],
                self._parts_of[gang],
                tree=bool(self.trees.is_tree[gang]),
            )
        return self._members[gang]

    def to_solution(self, stage: str) -> Solution:
        """Convert the packing to a solution of the problem, with a simple upper bound for each tier.

        `stage` is the step that found the placements. The bound is that of `objective_upper_bounds_by_tier`, or the
        objective if this is larger.
        """
        classes, nodes, counts = self.room.placements()
        value = objectives_by_tier(self.problem, classes, counts)
        bound = np.maximum(value, objective_upper_bounds_by_tier(self.problem))
        return Solution(classes, nodes, counts, self.taken.copy(), value, bound, stage)

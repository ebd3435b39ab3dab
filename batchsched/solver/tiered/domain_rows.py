"""Linear constraints on gangs that compete for the domains of a required topology level.

In the model for bounds a gang may use all domains that hold it, and two gangs the same devices of a domain. These rows
limit the gangs that the domains hold together. The gangs are items, the domains are bins, and a slot row of a domain
is the size of both: Σ_c factors·count for a gang, Σ_n of the free amounts divided in the same way for a domain.

* *Sizes.* For a size k, Σ_g floor(size_g / k)·y_g <= Σ_d floor(size_d / k) over the domains that hold a gang of this
  size: the slot rows of `node_pools`, one level higher.
* *Counts.* For a set of gangs, Σ_g y_g <= Σ_d the number of its smallest gangs that d holds, in every size.

Only rigid gangs are items: they are placed whole. A gang with a level inside of another one is an item of both.

Shapes: D domains, F sizes (slot functions), G gangs, I items, N nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, BoolArray, IntArray
from batchsched.solver.tiered.node_pools import SlotCounter

MAX_THRESHOLDS: Final = 16
"""Maximum sizes of one slot function that form rows; of more, the quantiles are kept."""
MAX_GANG_SETS: Final = 64
"""Maximum sets of gangs of a level that are counted: those that exceed the domains for them by most."""
MAX_SUMS_AT_ONCE: Final = 2**20
"""Maximum sums over the smallest gangs of a set that are computed at once: it bounds the memory."""


@dataclass(frozen=True, slots=True, eq=False)
class RivalGangs:
    """Gangs that compete for the domains of a level; sizes of gangs and domains are counted in slots.

    Args:
      gangs: [I] the gangs, ascending.
      sizes: [F, I] size of each gang.
      supply: [F, D] size of each domain.
      fits: [I, D] whether a domain may hold the gang alone.
    """

    gangs: IntArray
    sizes: IntArray
    supply: IntArray
    fits: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class RivalGangsRow:
    """A linear constraint on gangs that compete for domains: Σ factors·y[gangs] <= right.

    The variable y of a gang is 1 if the gang is placed, and 0 otherwise.
    """

    gangs: IntArray
    factors: IntArray
    right: int


class DomainRowBuilder:
    """Builder of linear constraints on gangs that compete for the domains of a topology level."""

    def __init__(
        self, packing: Packing, supply: SlotCounter, inside: dict[tuple[int, int], IntArray]
    ) -> None:
        """Take the gangs with required levels.

        Args:
          packing: a packing without placed pods.
          supply: the slot functions of its nodes.
          inside: by two levels, for each domain of the first the domain of the second that contains all its nodes.
        """
        self._packing, self._supply, self._inside = packing, supply, inside
        self._problem = packing.problem
        gangs = self._problem.gangs
        self._rigid = np.array(
            [
                gangs.allowed[g]
                and need > 0
                and packing.pod_classes_of_gang(g).pods == need
                and gangs.required[g] != NONE
                for g, need in enumerate(packing.needs)
            ],
            np.bool_,
        )

    def rival_rows(self) -> Iterator[RivalGangsRow]:
        """Yield, for all topology levels, the constraints that some choice of gangs could violate."""
        fits: dict[int, BoolArray] = {}
        # The innermost level first: an outer domain holds an inner gang only if one of its own domains does.
        for level in range(len(self._problem.nodes.levels))[::-1]:
            items = self._items(level, fits)
            if items is None:
                continue
            closed = items.gangs[~items.fits.any(axis=1)]
            if closed.size:
                yield RivalGangsRow(closed, np.ones(len(closed), np.int64), 0)
            yield from _size_rows(items)
            yield from _count_rows(items)

    def _items(self, level: int, fits: dict[int, BoolArray]) -> RivalGangs | None:
        problem = self._problem
        required = problem.gangs.required
        ids = problem.nodes.levels[level]
        domains = int(ids.max(initial=-1)) + 1
        inner = [a for (a, b), outer in self._inside.items() if b == level and a in fits and _nested(outer)]
        usable = self._rigid & np.isin(required, [level, *inner])
        gangs = np.flatnonzero(usable)
        if not gangs.size:
            return None
        alone = np.zeros((len(gangs), domains), np.bool_)
        for item, gang in enumerate(gangs.tolist()):
            own = int(required[gang])
            if own == level:
                alone[item, self._domains_of(gang, level)] = True
            else:
                outer = self._inside[own, level][np.flatnonzero(fits[own][gang])]
                alone[item, outer[outer >= 0]] = True
        classes = np.flatnonzero(np.isin(problem.classes.gang, gangs))
        mask = problem.kinds.mask[np.unique(problem.classes.kind[classes])].any(axis=0)
        nodes = np.flatnonzero(mask & (ids >= 0))
        factors, held = self._supply.count_used_and_free_slots(classes, nodes)
        sizes = np.zeros((len(factors), len(gangs)), np.int64)
        item_of = np.searchsorted(gangs, problem.classes.gang[classes])
        np.add.at(sizes.T, item_of, (factors * problem.classes.count[classes]).T)
        supply = np.zeros((len(factors), domains), np.int64)
        np.add.at(supply.T, ids[nodes], held.T)
        for size, limit in zip(sizes, supply, strict=True):
            alone &= size[:, None] <= limit
        whole = np.zeros((len(required), domains), np.bool_)
        whole[gangs] = alone
        fits[level] = whole
        # Many slot functions are equal for these gangs, and most domains hold none of them.
        holding = alone.any(axis=0)
        both = np.unique(np.hstack([sizes, supply[:, holding]]), axis=0)
        return RivalGangs(gangs, both[:, : len(gangs)], both[:, len(gangs) :], alone[:, holding])

    def _domains_of(self, gang: int, level: int) -> list[int]:
        pinned = int(self._problem.gangs.pinned[gang])
        if pinned != NONE:
            return [pinned] if self._packing.nodes_of_domain(level, pinned).size else []
        members = self._packing.pod_classes_of_gang(gang)
        return self._supply.domains_with_enough_slots(members, self._packing.needs[gang], level, None)


def _nested(outer: IntArray) -> bool:
    return bool((outer >= 0).all())


def _size_rows(items: RivalGangs) -> Iterator[RivalGangsRow]:
    fits = items.fits.astype(np.int64)
    for size, limit in zip(items.sizes, items.supply, strict=True):
        thresholds = np.array(_thresholds(size), np.int64)
        factors = size // thresholds[:, None]
        holding = (factors > 0) @ fits > 0
        right = np.where(holding, limit // thresholds[:, None], 0).sum(axis=1)
        for row in np.flatnonzero(factors.sum(axis=1) > right).tolist():
            large = factors[row] > 0
            yield RivalGangsRow(items.gangs[large], factors[row, large], int(right[row]))


def _thresholds(size: IntArray) -> list[int]:
    distinct = np.unique(size[size > 0])
    if len(distinct) > MAX_THRESHOLDS:
        distinct = distinct[np.linspace(0, len(distinct) - 1, MAX_THRESHOLDS).astype(np.int64)]
    thresholds: list[int] = distinct.tolist()
    return thresholds


def _count_rows(items: RivalGangs) -> Iterator[RivalGangsRow]:
    chosen = np.unique(np.array([*_sets(items)]), axis=0)
    # Every domain that holds a gang of the set holds one at least, so that only larger sets give a row.
    excess = chosen.sum(axis=1) - (chosen.astype(np.int64) @ items.fits > 0).sum(axis=1)
    for position in np.argsort(-excess, kind="stable")[
        : min(MAX_GANG_SETS, int((excess > 0).sum()))
    ].tolist():
        own = chosen[position]
        right = _count_gangs_held(items, own)
        if int(own.sum()) > right:
            yield RivalGangsRow(items.gangs[own], np.ones(int(own.sum()), np.int64), right)


def _sets(items: RivalGangs) -> Iterator[BoolArray]:
    """Sets of gangs that compete: the large ones in each size, and those that fit only where another one fits."""
    for size in items.sizes:
        for threshold in _thresholds(size):
            yield size >= threshold
    for own in items.fits:
        yield ~(items.fits & ~own).any(axis=1)


def _count_gangs_held(items: RivalGangs, chosen: BoolArray) -> int:
    """Upper bound of the number of the chosen gangs that the domains hold together."""
    fits = items.fits[chosen]
    held: IntArray = fits.sum(axis=0)
    # A domain that one gang alone may use holds it.
    shared = held > 1
    fits, most = fits[:, shared], held[shared]
    sizes, supply = items.sizes[:, chosen], items.supply[:, shared]
    exceeded = np.flatnonzero((sizes @ fits > supply).any(axis=1))
    # All sizes at once: most sets are small, so that one call for each size would cost more than its work.
    parts = 1 + fits.size * len(exceeded) // MAX_SUMS_AT_ONCE
    for rows in np.array_split(exceeded, parts):
        order = np.argsort(sizes[rows], axis=1, kind="stable")
        inside = fits[order]
        ascending = np.take_along_axis(sizes[rows], order, axis=1)
        total = np.cumsum(np.where(inside, ascending[:, :, None], 0), axis=1)
        # Sums of the smallest gangs only grow, so that as many gangs fit as sums do.
        held_by_size = (inside & (total <= supply[rows, None])).sum(axis=1)
        most = np.minimum(most, held_by_size.min(axis=0, initial=len(fits)))
    return int(held[~shared].sum()) + int(most.sum())

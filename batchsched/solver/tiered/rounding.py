"""Rounding: place what the tiered model selected on nodes, gangs with domains first, then the largest pods.

A gang below its minimum is withdrawn as a whole and reported, and the rest of the session continues. In the end every
gang and surplus pod that still fits is added in the policy's order.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.solver.greedy import fill_packing
from batchsched.solver.local_search.ejection import GangEjection
from batchsched.solver.local_search.search import LocalSearch
from batchsched.solver.objective import gang_worth
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, FloatArray, IntArray
from batchsched.solver.tiered.model import OPEN, TieredModel

MAX_RESETTLED_GANGS: Final = 48
"""Maximum gangs below their minimum that are placed again in one rounding."""


@dataclass(frozen=True, slots=True)
class PodShortage:
    """Pods of a class that the plan has and the nodes did not hold."""

    gang: int
    class_index: int
    pods: int


@dataclass(frozen=True, slots=True, eq=False)
class RoundedSolution:
    """A packing, and the pods that did not fit at first, whether or not room was found for them later."""

    packing: Packing
    shortages: tuple[PodShortage, ...]


@dataclass(frozen=True, slots=True)
class _Order:
    """Pods of one class to place, and the cell where the plan has them."""

    gang: int
    class_index: int
    pods: int
    cell: IntArray | None


def round_to_nodes(
    aggregate: TieredModel, values: IntArray, split: FloatArray, prefer: bool
) -> RoundedSolution:
    """Place a plan on nodes, and finally everything else that fits.

    Args:
      aggregate: the model.
      values: [V] the plan: values of the model's variables.
      split: [C, P] its spread over pools.
      prefer: use few domains of preferred levels, before the plan's pools.
    """
    problem = aggregate.problem
    packing = Packing(problem)
    chosen = np.flatnonzero(values[aggregate.y] > 0).tolist()
    lost = {g for g in chosen if not _begin(packing, g)}
    search = LocalSearch(packing)
    shortages = []
    elsewhere: set[int] = set()
    for order in _orders(aggregate, values):
        if order.gang in lost or order.gang in elsewhere:
            continue
        placed = _place(packing, aggregate, order, split[order.class_index], prefer)
        if placed < order.pods:
            placed += search.make_room(order.class_index, order.pods - placed, order.cell)
        if placed < order.pods and aggregate.rigid[order.gang]:
            packing.withdraw({order.gang})
            # Gangs with domains are placed first: other domains may still hold the gang, since few pods are placed yet.
            if order.cell is not None and packing.try_gang(order.gang) is not None:
                elsewhere.add(order.gang)
                continue
            lost.add(order.gang)
        if placed < order.pods:
            shortages.append(PodShortage(order.gang, order.class_index, order.pods - placed))
    # A row may have been satisfied only by a gang that was withdrawn since.
    failed = _withdraw_broken(packing, [g for g in chosen if g not in lost])
    _resettle(aggregate, values, GangEjection(packing, search), failed | lost)
    # Ejections withdraw gangs, too: all minimums and rows are checked again before the rest is filled.
    standing = [g for g, need in enumerate(packing.needs) if need > 0 and packing.taken[g]]
    _withdraw_broken(packing, standing)
    fill_packing(packing)
    return RoundedSolution(packing, tuple(shortages))


def _resettle(aggregate: TieredModel, values: IntArray, ejection: GangEjection, fallen: set[int]) -> None:
    """Place withdrawn gangs again, tier by tier, and in the same way the gangs that are ejected for them."""
    problem = aggregate.problem
    worth = gang_worth(problem)
    for _ in range(MAX_RESETTLED_GANGS):
        if not fallen:
            break
        gang = min(
            fallen, key=lambda g: (int(problem.gangs.tier[g]), -float(worth[g]), int(problem.gangs.rank[g]))
        )
        fallen.discard(gang)
        fallen |= set(ejection.place_gang(gang, _meant(aggregate, values, gang)) or ())


def _withdraw_broken(packing: Packing, gangs: list[int]) -> set[int]:
    """Withdraw gangs with a violated minimum or row, until none is left: a withdrawal may violate another row."""
    failed: set[int] = set()
    while broken := {g for g in gangs if g not in failed and not _holds(packing, g)}:
        packing.withdraw(broken)
        failed |= broken
    return failed


def _meant(aggregate: TieredModel, values: IntArray, gang: int) -> IntArray | None:
    """The nodes where the plan has a gang, or None for anywhere."""
    mine = np.flatnonzero((aggregate.owner == gang) & (aggregate.cell != NONE) & (aggregate.switch >= 0))
    mine = mine[values[aggregate.switch[mine]] > 0]
    return (
        np.unique(np.concatenate([aggregate.cells[aggregate.cell[j]].nodes for j in mine]))
        if mine.size
        else None
    )


def _begin(packing: Packing, gang: int) -> bool:
    """Count a selected gang against gang limits and rows before its pods are placed."""
    if packing.taken[gang]:
        return True
    if not packing.room.quotas.admits(gang):
        return False
    packing.room.take(gang)
    packing.taken[gang] = True
    return True


def _orders(aggregate: TieredModel, values: IntArray) -> list[_Order]:
    """What to place, in this order: small cells first, then large devices, then large pods."""
    problem, slots = aggregate.problem, aggregate.packing.room.slots
    on = np.where(aggregate.switch == OPEN, 1, values[np.maximum(aggregate.switch, 0)])
    pods = aggregate.factor * values[aggregate.variable] * (on > 0)
    keyed_orders = []
    for load in np.flatnonzero(pods).tolist():
        class_index, cell = int(aggregate.class_index[load]), int(aggregate.cell[load])
        nodes = None if cell == NONE else aggregate.cells[cell].nodes
        device = slots.device_of[class_index]
        key = (
            len(problem.nodes.free) if nodes is None else len(nodes),
            -int(slots.demand[class_index, device]) if device >= 0 else 0,
            -slots.dominant(class_index),
            class_index,
        )
        keyed_orders.append(
            (key, _Order(int(problem.classes.gang[class_index]), class_index, int(pods[load]), nodes))
        )
    keyed_orders.sort(key=lambda pair: pair[0])
    return [order for _, order in keyed_orders]


def _place(packing: Packing, aggregate: TieredModel, order: _Order, share: FloatArray, prefer: bool) -> int:
    """Place one order along the plan's pools, then wherever its cell has room; return the number of placed pods."""
    problem, room = aggregate.problem, packing.room
    placed = 0
    gang, part = order.gang, int(problem.classes.subgroup[order.class_index])
    nodes, settled = order.cell, True
    if problem.gangs.required[gang] != NONE or (part != NONE and problem.subgroups.required[part] != NONE):
        settled = _settle(packing, order)
    level = int(problem.subgroups.preferred[part]) if part != NONE else NONE
    level = int(problem.gangs.preferred[gang]) if level == NONE else level
    if prefer and level != NONE and settled:
        placed += packing.gather(order.class_index, order.pods, level, nodes)
    if settled and placed < order.pods:
        pools = aggregate.pools
        for p, pods in _whole(share, order.pods):
            where = pools.nodes[p] if nodes is None else nodes[pools.of_node[nodes] == p]
            placed += room.place(order.class_index, min(pods, order.pods - placed), where)
    if placed < order.pods and settled:
        placed += room.place(order.class_index, order.pods - placed, nodes)
    return placed


def _settle(packing: Packing, order: _Order) -> bool:
    """Record the domains of an order's cell, so that surplus pods are placed in the same domains."""
    problem = packing.problem
    gang, part = order.gang, int(problem.classes.subgroup[order.class_index])
    if order.cell is None or not order.cell.size:
        return False
    first = int(order.cell[0])
    if problem.gangs.required[gang] != NONE:
        packing.domain_of[gang] = int(problem.nodes.levels[problem.gangs.required[gang], first])
    if part != NONE and problem.subgroups.required[part] != NONE:
        packing.domain_of_part[part] = int(problem.nodes.levels[problem.subgroups.required[part], first])
    return True


def _whole(share: FloatArray, pods: int) -> list[tuple[int, int]]:
    """Round a fractional split over pools to whole pods, largest remainders first; the largest shares come first."""
    down = np.floor(share + 1e-6).astype(np.int64)
    left = pods - int(down.sum())
    if left > 0:
        rest = np.argsort(-(share - down), kind="stable")[: min(left, len(share))]
        down[rest] += 1
    order = np.argsort(-down, kind="stable")
    return [(int(p), int(down[p])) for p in order if down[p] > 0]


def _holds(packing: Packing, gang: int) -> bool:
    """Whether a gang and its parts have their minimums, and all rows that concern the gang are satisfied."""
    placed = {
        c: int(packing.problem.classes.count[c]) - packing.room.waiting[c]
        for c in packing.members(gang).classes
    }
    if sum(placed.values()) < packing.needs[gang]:
        return False
    for part in packing.members(gang).parts:
        if sum(placed[c] for c in part.classes) < part.need:
            return False
    return packing.room.rows.holds(gang)

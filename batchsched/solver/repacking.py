"""Repacking: the pods of this session on a few nodes are placed again by an exact model, so that more pods fit there.

Moves of single pods fail where several pods must change their nodes at once, for example the pods of three gangs in a
rack with little CPU and memory left. A rack is small enough for CP-SAT: its variables are the numbers
of pods of each pod class on each of its nodes.

Shapes: C classes, H movable classes in a window, N nodes, R resources, W nodes of a window.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.linear_model import LinearModel
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, BoolArray, IndexArray, IntArray, count_pods_that_fit

MAX_WINDOW_NODES: Final = 40
"""Maximum nodes that are packed again together. A cell of more nodes is represented by the most promising ones."""
MAX_WINDOW_VARIABLES: Final = 1000
"""Maximum variables of a window's model: with more, a repacking takes as long as a round."""
MAX_REPACKINGS: Final = 12
"""Maximum windows of one search."""
REPACKING_EFFORT: Final = 0.01
"""Maximum deterministic units of CP-SAT for one window."""


@dataclass(frozen=True, slots=True, eq=False)
class Repacking:
    """A change of the placement on a few nodes: how many pods of each class enter or leave each node.

    Args:
      classes: [H] the classes.
      nodes: [W] the nodes, ascending.
      change: [H, W] pods of each class that enter a node, negative if they leave it.
      placed: how many of the requested pods the new placement contains.
    """

    classes: IntArray
    nodes: IntArray
    change: IntArray
    placed: int


class RepackingSearch:
    """A search with CP-SAT that places this session's pods on a few nodes again, so that more pods fit."""

    def __init__(self, packing: Packing, budget: CpSatBudget) -> None:
        self._packing, self._budget = packing, budget
        self._remaining_windows = MAX_REPACKINGS
        problem, room = packing.problem, packing.room
        free_of_rows = np.array(
            [c not in room.rows.of_class and c not in room.banned for c in range(len(problem.classes.count))],
            np.bool_,
        )
        self._movable: BoolArray = free_of_rows & ~packing.trees.is_tree[problem.classes.gang]

    def find_repacking(
        self, class_index: int, missing_pods: int, nodes: IntArray | None, placed: IndexArray
    ) -> Repacking | None:
        """Find a new placement on a few nodes with room for more pods of a class; return None on failure.

        Args:
          class_index: the class.
          missing_pods: how many more pods of it are to be placed; the quotas admit them.
          nodes: the nodes that they may use, ascending; None for all.
          placed: [C, N] pods of this session on each node.
        """
        if self._remaining_windows <= 0 or missing_pods <= 0 or self._budget.remaining <= 0:
            return None
        if not self._movable[class_index]:
            return None
        window = self._choose_window(class_index, nodes, placed)
        if not window.size:
            return None
        present = (placed[:, window] > 0).any(axis=1) & self._movable
        present[class_index] = True
        classes = np.flatnonzero(present)
        if len(classes) * len(window) > MAX_WINDOW_VARIABLES:
            return None
        self._remaining_windows -= 1
        return self._solve(class_index, missing_pods, classes, window, placed)

    # ------------------------------------------------------------------------------------ choosing nodes

    def _choose_window(self, class_index: int, nodes: IntArray | None, placed: IndexArray) -> IntArray:
        """A small cell as a whole; of many nodes those that lack the least, and those with room for what leaves."""
        if nodes is not None and len(nodes) <= MAX_WINDOW_NODES:
            return nodes
        room = self._packing.room
        usable = np.flatnonzero(room.permitted_nodes(class_index))
        usable = usable if nodes is None else np.intersect1d(usable, nodes, assume_unique=True)
        lack = np.zeros(len(usable))
        movable_demand = room.slots.demand[self._movable].T
        for resource, amount in room.slots.needs[class_index]:
            free = room.free[resource][usable]
            held = movable_demand[resource] @ placed[np.ix_(self._movable, usable)]
            lack += np.maximum(0.0, 1.0 - free / amount)
            lack[free + held < amount] = np.inf
        order = np.argsort(lack, kind="stable")[: MAX_WINDOW_NODES // 2]
        sources = usable[order[np.isfinite(lack[order])]]
        if not sources.size:
            return sources
        leaving = np.flatnonzero((placed[:, sources] > 0).any(axis=1) & self._movable)
        fit = np.zeros(len(self._packing.problem.nodes.free), np.int64)
        for leaving_class in leaving.tolist():
            fit += np.minimum(1, room.count_fitting_pods(leaving_class))
        fit[sources] = 0
        targets = np.argsort(-fit, kind="stable")[: MAX_WINDOW_NODES - len(sources)]
        return np.sort(np.concatenate([sources, targets[fit[targets] > 0]]))

    # ------------------------------------------------------------------------------------ packing again

    def _solve(
        self, class_index: int, missing_pods: int, classes: IntArray, window: IntArray, placed: IndexArray
    ) -> Repacking | None:
        now = placed[np.ix_(classes, window)].astype(np.int64)
        demand = self._packing.room.slots.demand[classes]
        free = np.stack([row[window] for row in self._packing.room.free], axis=1) + now.T @ demand
        upper = np.stack([self._upper(c, window, free) for c in classes.tolist()])
        own = int(np.flatnonzero(classes == class_index)[0])
        counts = now.sum(axis=1)
        most = counts.copy()
        most[own] += missing_pods
        upper = np.maximum(np.minimum(upper, most[:, None]), now)
        model = LinearModel()
        columns = model.add_variables(np.zeros(upper.size, np.int64), upper.reshape(-1)).reshape(upper.shape)
        for row, own_columns in enumerate(columns):
            model.add_sum_constraint(own_columns, lower=int(counts[row]), upper=int(most[row]))
        for position in range(len(window)):
            for resource in np.flatnonzero(demand.T @ upper[:, position] > free[position]).tolist():
                asks = demand[:, resource]
                used = asks > 0
                unit = int(np.gcd.reduce(asks[used]))
                limit = int(free[position, resource]) // unit
                model.add_row(columns[used, position], asks[used] // unit, upper=limit)
        objective = np.zeros(model.variable_count, np.int64)
        objective[columns[own]] = 1
        answer = self._budget.maximise(
            model, objective, min(REPACKING_EFFORT, self._budget.remaining), hint=now.reshape(-1)
        )
        if answer.values is None or answer.objective <= counts[own]:
            return None
        change = answer.values.reshape(upper.shape) - now
        return Repacking(classes, window, change, answer.objective - int(counts[own]))

    def _upper(self, class_index: int, window: IntArray, free: IntArray) -> IntArray:
        """Pods [W] of a class that fit on each node of the window if all movable pods have left it."""
        packing = self._packing
        allowed: BoolArray = packing.room.permitted_nodes(class_index)[window]
        problem = packing.problem
        gang, subgroup = int(problem.classes.gang[class_index]), int(problem.classes.subgroup[class_index])
        if problem.gangs.required[gang] != NONE or (
            subgroup != NONE and problem.subgroups.required[subgroup] != NONE
        ):
            inside = packing.nodes_of_chosen_domains(class_index)
            allowed = allowed & (np.isin(window, inside) if inside is not None else True)
        most = int(problem.classes.count[class_index])
        return count_pods_that_fit(packing.room.slots.demand[class_index], free, most) * allowed

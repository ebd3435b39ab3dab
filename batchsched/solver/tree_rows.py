"""The constraints of the node-level model for subgroup trees and topology slices.

For every subgroup there is a 0/1 variable *open*: pods may be placed in it. An open subgroup runs, and so does the one
above it. A required level has a 0/1 variable for each domain, and slices have a count for each domain.

Shapes: C classes, X counts, D domains.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.solver.gang_tree import SubgroupTreeNode
from batchsched.solver.linear_model import HIGHEST, LinearModel
from batchsched.solver.problem import NONE, IntArray, Problem

ALWAYS: Final = -1
"""Instead of a variable: the gang runs already."""


@dataclass(frozen=True, slots=True, eq=False)
class SliceColumns:
    """Variables for the topology slices of a gang or subgroup, in a model that places pods on single nodes.

    Args:
      node: the group.
      domains: [D] the domains of the slices' level.
      slices: [D] variables: slices that are added in the domain.
      used: [D] variables: 1 if the domain has a slice afterwards.
      least: variable: the fewest slices of a domain in use.
    """

    node: SubgroupTreeNode
    domains: IntArray
    slices: IntArray
    used: IntArray
    least: int


class SubgroupTreeRows:
    """Variables and constraints for the subgroup tree of a gang, in a model that places pods on single nodes.

    Args:
      model: the model; its first X variables are the counts.
      problem: the problem.
      counts: [X] the class and the node of each count.
      tree: the gang.
      taken: the variable of the gang, `ALWAYS` if it runs already.
    """

    def __init__(
        self,
        model: LinearModel,
        problem: Problem,
        counts: tuple[IntArray, IntArray],
        tree: SubgroupTreeNode,
        taken: int,
    ) -> None:
        self._model, self._problem, self._tree = model, problem, tree
        self._classes, self._nodes = counts
        self._taken = taken
        self._upper = model.variable_bounds()[1]
        self._open: list[tuple[SubgroupTreeNode, int]] = []
        self._choices: list[tuple[SubgroupTreeNode, IntArray, IntArray]] = []
        self.slices: list[SliceColumns] = []
        self._gets: list[tuple[int, int]] = []
        self._add_node(tree, taken, taken)

    # ------------------------------------------------------------------------------------ rows

    def _add_node(self, node: SubgroupTreeNode, switch: int, above: int) -> None:
        """Add the rows of a subtree; `switch` is its open variable and `above` that of the subtree above."""
        model = self._model
        if node.subgroup != NONE:
            if above != ALWAYS:
                model.add_row(np.array([switch, above]), np.array([1, -1]), upper=0)
            self._limit_to_switch(node, switch)
        if node.required != NONE and node.pinned == NONE:
            self._add_choice(node, switch)
        if node.slice_size:
            self._add_slices(node, switch)
        inner = []
        for child in node.children:
            opened = int(model.add_booleans(1)[0])
            self._open.append((child, opened))
            inner.append((child, opened))
            self._add_node(child, opened, switch)
        running = sum(child.is_running for child in node.children)
        missing = node.min_children - running
        waiting = [opened for child, opened in inner if not child.is_running]
        if missing > 0:
            self._require(np.array(waiting, np.int64), missing, switch)
        if node.subgroup != NONE and node.need > 0:
            self._require(self._columns_of(node.all_classes), node.need, switch)

    def _limit_to_switch(self, node: SubgroupTreeNode, switch: int) -> None:
        """No pod of a group without the variable of the group."""
        for class_index, count in zip(node.classes, node.counts, strict=True):
            columns = np.flatnonzero(self._classes == class_index)
            if len(columns):
                self._model.link_sum_to_switch(columns, switch, count, upper=0)

    def _require(self, columns: IntArray, amount: int, switch: int) -> None:
        """Require a sum if a switch is on."""
        if switch == ALWAYS:
            self._model.add_sum_constraint(columns, lower=amount)
        else:
            self._model.link_sum_to_switch(columns, switch, amount, lower=0)

    def _columns_of(self, classes: tuple[int, ...]) -> IntArray:
        return np.flatnonzero(np.isin(self._classes, classes))

    def _add_choice(self, node: SubgroupTreeNode, switch: int) -> None:
        """One domain of the required level for all pods of a subtree."""
        model = self._model
        columns = self._columns_of(node.all_classes)
        place = self._problem.nodes.levels[node.required][self._nodes[columns]]
        domains = np.unique(place).astype(np.int64)
        variables = model.add_booleans(len(domains))
        counts = self._problem.classes.count
        for domain, variable in zip(domains.tolist(), variables.tolist(), strict=True):
            inside = columns[place == domain]
            for class_index in np.unique(self._classes[inside]).tolist():
                own = inside[self._classes[inside] == class_index]
                model.link_sum_to_switch(own, variable, int(counts[class_index]), upper=0)
        if switch == ALWAYS:
            model.add_sum_constraint(variables, upper=1)
        else:
            model.link_sum_to_switch(variables, switch, 1, -HIGHEST, 0)
        self._choices.append((node, domains, variables))

    def _add_slices(self, node: SubgroupTreeNode, switch: int) -> None:
        """Whole slices in every domain, and numbers of slices that differ by at most one."""
        model, size = self._model, node.slice_size
        columns = self._columns_of(node.classes)
        place = self._problem.nodes.levels[node.slice_level][self._nodes[columns]]
        started, gaps = node.running_slices_by_domain, node.missing_slice_pods_by_domain
        domains = np.unique(np.concatenate([place, list(started)])).astype(np.int64)
        most = sum(node.counts) // size
        room = np.array([int(self._upper[columns[place == d]].sum()) // size for d in domains], np.int64)
        slices = model.add_variables(np.zeros(len(domains), np.int64), np.minimum(room, most))
        running = np.array([d in started for d in domains.tolist()], np.int64)
        used = model.add_variables(running, np.ones(len(domains), np.int64))
        tallest = max(started.values(), default=0) + most
        least = int(model.add_variables(np.zeros(1, np.int64), np.array([tallest]))[0])
        completed = self._completion_switch(node, switch)
        for d, count, flag in zip(domains.tolist(), slices.tolist(), used.tolist(), strict=True):
            inside = columns[place == d]
            gap = gaps.get(d, 0)
            # Σ pods = size · slices + gap · completed
            names = [*inside.tolist(), count]
            factors = [1] * len(inside) + [-size]
            if gap:
                names.append(completed)
                factors.append(-gap)
            model.add_row(np.array(names, np.int64), np.array(factors, np.int64), 0, 0)
            # slices ≤ most · used; slices ≥ used where none runs
            model.add_row(np.array([count, flag]), np.array([1, -most]), upper=0)
            if d not in started:
                model.add_row(np.array([count, flag]), np.array([1, -1]), lower=0)
            # least ≤ started + slices where the domain is in use
            height = started.get(d, 0)
            model.add_row(
                np.array([count, least, flag]), np.array([1, -1, -tallest]), lower=-tallest - height
            )
            self._limit_height(count, least, height, most, tallest)
        # Slices that run in part are completed before another one starts.
        if gaps:
            for count in slices.tolist():
                model.add_row(np.array([count, completed]), np.array([1, -most]), upper=0)
        self.slices.append(SliceColumns(node, domains, slices, used, least))

    def _completion_switch(self, node: SubgroupTreeNode, switch: int) -> int:
        """The variable that is 1 if slices that run in part are completed: whenever a pod is placed."""
        if not node.missing_slice_pods_by_domain:
            return switch
        completed = int(self._model.add_booleans(1)[0])
        self._open.append((node, completed))
        if switch != ALWAYS:
            self._model.add_row(np.array([completed, switch]), np.array([1, -1]), upper=0)
        return completed

    def _limit_height(self, count: int, least: int, height: int, most: int, tallest: int) -> None:
        """A domain that gets a slice has at most one more than the fewest."""
        if height == 0:
            # With no slices the row holds anyway.
            self._model.add_row(np.array([count, least]), np.array([1, -1]), upper=1)
            return
        gets = int(self._model.add_booleans(1)[0])
        self._gets.append((count, gets))
        self._model.add_row(np.array([count, gets]), np.array([1, -most]), upper=0)
        reach = tallest + height
        self._model.add_row(
            np.array([count, least, gets]), np.array([1, -1, reach]), upper=1 - height + reach
        )

    # ------------------------------------------------------------------------------------ values

    def compute_subgroup_variable_values(self, values: IntArray) -> None:
        """Compute the values of the subgroup variables from the numbers of pods, and store them in `values`."""
        for node, variable in self._open:
            values[variable] = int(values[self._columns_of(node.all_classes)].sum() > 0)
        for node, domains, variables in self._choices:
            columns = self._columns_of(node.all_classes)
            placed = columns[values[columns] > 0]
            values[variables] = np.isin(
                domains, self._problem.nodes.levels[node.required][self._nodes[placed]]
            )
        for part in self.slices:
            self._set_slices(part, values)
        for count, gets in self._gets:
            values[gets] = int(values[count] > 0)

    def _set_slices(self, part: SliceColumns, values: IntArray) -> None:
        columns = self._columns_of(part.node.classes)
        place = self._problem.nodes.levels[part.node.slice_level][self._nodes[columns]]
        started, gaps = part.node.running_slices_by_domain, part.node.missing_slice_pods_by_domain
        completed = values[columns].sum() > 0
        heights = []
        for d, count, flag in zip(
            part.domains.tolist(), part.slices.tolist(), part.used.tolist(), strict=True
        ):
            pods = int(values[columns[place == d]].sum()) - (gaps.get(d, 0) if completed else 0)
            values[count] = pods // part.node.slice_size
            values[flag] = int(values[count] > 0 or d in started)
            if values[flag]:
                heights.append(started.get(d, 0) + int(values[count]))
        values[part.least] = min(heights, default=0)

"""The division of chosen pods among node pools by a linear program, and a Benders cut if they do not fit.

The variable x[class, pool] is the number of pods of a class in a pool. For fixed pod counts n and switches the program
is: Σ_p x[c, p] + s[c] = n[c]; slot rows of every pool; rows of plugins over pools; x[c, p] no more than fits in the
cells that are switched on. It minimizes the weighted shortage s. With the duals μ of the rows, π_c of the classes and
ν_cp of the limits on x,

    Σ_c π_c n[c] <= Σ_r μ_r (b_r + B_r y) + Σ_cp ν_cp limit_cp(switches)

holds for every choice that fits, and this one violates it: a Benders feasibility cut. For classes that are not chosen
now, π_c is lifted to the price of its cheapest pool, which keeps the cut valid and makes it stronger.

Source: Benders, Partitioning procedures for solving mixed-variables programming problems (1962).
"""

from dataclasses import dataclass

import numpy as np

from batchsched.solver.cpsat import LinearProgram
from batchsched.solver.linear_model import HIGHEST, LinearModel
from batchsched.solver.problem import (
    ALL_NODES,
    NONE,
    UNLIMITED,
    BoolArray,
    FloatArray,
    IntArray,
    Sense,
    positions_by_group,
)
from batchsched.solver.tiered.model import OPEN, TieredModel
from batchsched.solver.tiered.node_pools import pools_by_row_domain

_MIN_SHORTAGE = 1e-6
"""A shortage below this is a rounding error."""
_CUT_SCALE = 2.0**34
"""Sum to which a cut's coefficients are scaled as integers."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolSplit:
    """The number of pods of each pod class in each pool of similar nodes [C, P]; numbers may be fractions.

    `short` is the weighted shortage.
    """

    pods: FloatArray
    short: float


class PoolTransport:
    """The linear program that divides the pods that the tiered model has chosen among pools of similar nodes.

    It is kept in the LP solver between choices.
    """

    def __init__(self, aggregate: TieredModel) -> None:
        """Build the program without a choice."""
        self._aggregate = aggregate
        self.slot_functions: list[tuple[int, tuple[tuple[int, int], ...]]] = []
        """Pool and requests of each slot row; these rows are the first ones of the program."""
        self.cut_duals: list[FloatArray] = []
        """The prices of the rows, at least 0, from which each cut was made."""
        problem, pools = aggregate.problem, aggregate.pools
        bound = np.zeros(len(problem.classes.count), np.bool_)
        bound[aggregate.class_index[(aggregate.cell != NONE)]] = True
        self._lot, self._first = self._lots(bound)
        self._limits = self._load_limits()
        total = np.zeros((len(self._first), pools.pool_count), np.int64)
        np.add.at(total, self._lot[aggregate.class_index], self._limits)
        total = np.minimum(total, self._per_lot(problem.classes.count.astype(np.int64))[:, None])
        self.lot, self.pool = (axis.astype(np.int64) for axis in np.nonzero(total))
        self._upper = total[self.lot, self.pool]
        self._moving = np.flatnonzero(bound[self._first][self.lot])
        # Rows have the form Σ coefficient·x <= right + Σ gangs·y.
        self._levels: dict[tuple[int, int, int], int] = {}
        self._gangs: dict[int, tuple[IntArray, IntArray]] = {}
        rows = LinearModel()
        rows.add_variables(np.zeros(len(self.lot), np.int64), self._upper)
        self._add_level_rows(rows)
        self._add_plugin_rows(rows)
        starts, self._column, factors = rows.constraint_matrix()
        self._row, self._factor = (
            np.repeat(np.arange(rows.row_count), np.diff(starts)),
            factors.astype(np.float64),
        )
        self._original_right = rows.row_bounds()[1].astype(np.float64)
        self._right = self._original_right.copy()
        self.local: dict[int, int] = {}
        self._program = self._build(rows)

    @property
    def tiered_model(self) -> TieredModel:
        """The tiered model that chooses the pods which this linear program divides among node pools."""
        return self._aggregate

    # ------------------------------------------------------------------------------------ building

    def _lots(self, bound: BoolArray) -> tuple[IntArray, IntArray]:
        """Merge classes with equal requests, no required level and no row into lots: the lot of each class [C].

        Also returns the first class of each lot, [U].
        """
        aggregate = self._aggregate
        room = aggregate.packing.room
        own = [c + 1 if bound[c] or c in room.rows.of_class else 0 for c in range(len(bound))]
        keys = np.stack([aggregate.pools.kinds, np.array(own, np.int64)], axis=1)
        _, first, lot = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        return lot.reshape(-1).astype(np.int64), first.astype(np.int64)

    def _per_lot(self, amounts: IntArray) -> IntArray:
        """Amounts by class [C] summed by lot [U]."""
        total = np.zeros(len(self._first), np.int64)
        np.add.at(total, self._lot, amounts)
        return total

    def _load_limits(self) -> IntArray:
        """Pods of each load's class that fit into each pool of its cell, [J, P]."""
        aggregate = self._aggregate
        pools, problem = aggregate.pools, aggregate.problem
        limits = np.zeros((len(aggregate.class_index), pools.pool_count), np.int64)
        onehot = np.zeros((len(problem.nodes.free), pools.pool_count), np.float64)
        onehot[np.arange(len(problem.nodes.free)), pools.of_node] = 1.0
        whole = (pools.fit.astype(np.float64) @ onehot).astype(np.int64)
        for load, (class_index, cell) in enumerate(
            zip(aggregate.class_index.tolist(), aggregate.cell.tolist(), strict=True)
        ):
            kind = int(pools.kinds[class_index])
            if cell == NONE:
                limits[load] = whole[kind]
            else:
                nodes = aggregate.cells[cell].nodes
                fit = pools.fit[kind][nodes]
                limits[load] = np.bincount(
                    pools.of_node[nodes], weights=fit, minlength=pools.pool_count
                ).astype(np.int64)
            most = np.minimum(self._row_caps(class_index, cell), int(problem.classes.count[class_index]))
            limits[load] = np.minimum(limits[load], most)
        return limits

    def _row_caps(self, class_index: int, cell: int) -> IntArray:
        """Maximum pods of a class in each pool by AT_MOST rows over fine partitions, [P]."""
        aggregate = self._aggregate
        pools, ledger = aggregate.pools, aggregate.packing.room.rows
        caps = np.full(pools.pool_count, UNLIMITED, np.int64)
        for i, coefficient in ledger.of_class.get(class_index, ()):
            row = ledger.rows[i]
            alone = row.gangs.size == 0 and bool((row.coefficients >= 0).all())
            if i in pools.along or coefficient <= 0 or row.sense is not Sense.AT_MOST or not alone:
                continue
            nodes = np.arange(len(pools.of_node)) if cell == NONE else aggregate.cells[cell].nodes
            nodes = nodes[pools.fit[pools.kinds[class_index]][nodes] > 0]
            pairs = np.unique(np.stack([pools.of_node[nodes], ledger.domains[i][nodes]], axis=1), axis=0)
            inside = pairs[pairs[:, 1] >= 0]
            right = ledger.right[i]
            room = np.minimum(np.maximum(0, right), UNLIMITED // (1 + len(right))) // coefficient
            total = np.zeros(pools.pool_count, np.int64)
            np.add.at(total, inside[:, 0], room[inside[:, 1]])
            total[pairs[pairs[:, 1] < 0, 0]] = UNLIMITED
            caps = np.minimum(caps, total)
        return caps

    def _add_level_rows(self, rows: LinearModel) -> None:
        """Add the slot rows of every pool that can be violated at all."""
        aggregate = self._aggregate
        supply = aggregate.supply
        for p, nodes in enumerate(aggregate.pools.nodes):
            columns = np.flatnonzero(self.pool == p)
            if not columns.size:
                continue
            for level in supply.nonredundant_rows(
                self._first[self.lot[columns]], self._upper[columns], nodes
            ):
                used = np.flatnonzero(level.factors)
                index = rows.add_row(columns[used], level.factors[used], upper=level.right)
                self.slot_functions.append((p, level.requests))
                if level.resource_and_slot_size is not None:
                    self._levels[p, level.resource_and_slot_size[0], level.resource_and_slot_size[1]] = index

    def _add_plugin_rows(self, rows: LinearModel) -> None:
        """Add the rows of plugins over domains that are unions of pools; AT_LEAST rows are negated."""
        aggregate = self._aggregate
        ledger = aggregate.packing.room.rows
        for i, row in enumerate(ledger.rows):
            if row.partition == ALL_NODES:
                continue
            factor = row.class_coefficients(len(aggregate.problem.classes.count))
            of_lot = factor[self._first][self.lot]
            concerned = of_lot != 0
            sign = 1 if row.sense is Sense.AT_MOST else -1
            for d, pools in pools_by_row_domain(ledger, aggregate.pools, i) or ():
                right = int(ledger.right[i][d])
                if abs(right) >= UNLIMITED:
                    continue
                columns = np.flatnonzero(concerned & np.isin(self.pool, pools))
                index = rows.add_row(columns, sign * of_lot[columns], upper=sign * right)
                if row.gangs.size:
                    self._gangs[index] = (row.gangs.astype(np.int64), -sign * row.gang_coefficients[d])

    def _build(self, model: LinearModel) -> LinearProgram:
        """Add the pods of every lot and their shortage; return the program that minimizes the weighted shortage."""
        aggregate, lots = self._aggregate, len(self._first)
        # Without an upper limit that could be reached, the dual of a shortage belongs to its lot's row alone.
        most = 2 * self._per_lot(aggregate.problem.classes.count.astype(np.int64)) + 1
        short = model.add_variables(np.zeros(lots, np.int64), most)
        for columns, shortage in zip(positions_by_group(self.lot, lots), short.tolist(), strict=True):
            model.add_sum_constraint(np.append(columns, shortage), 0, 0)
        size = np.array(
            [aggregate.packing.room.slots.largest_share_of_average_node(c) for c in self._first.tolist()]
        )
        cost = np.zeros(model.variable_count)
        cost[short] = -np.maximum(size / max(float(size.mean()), 1e-12), 1e-3) if lots else 0.0
        return LinearProgram(model, cost)

    # ------------------------------------------------------------------------------------ tightening

    @property
    def has_reduced_capacity(self) -> bool:
        """Whether `reduce_pool_capacity` has reduced the capacity of any node pool.

        New cuts are then not valid for bounds.
        """
        return bool((self._right < self._original_right).any())

    def reduce_pool_capacity(self, class_index: int, pods: FloatArray) -> None:
        """Reduce the capacity of each node pool by the planned pods of a class that did not fit on its nodes.

        `pods` [P] is the number of these pods for each pool. The pods are subtracted from the slot rows of their size
        and of smaller sizes.
        """
        needs = dict(self._aggregate.packing.room.slots.needs[class_index])
        for (p, r, size), row in self._levels.items():
            amount = needs.get(r, 0)
            if pods[p] and size <= amount:
                self._side(row, max(0.0, float(self._right[row]) - float(pods[p]) * (amount // size)))

    def reset_to_original_limits(self) -> FloatArray:
        """Restore the original limits of all constraints; return the tightened ones for `set_limits`."""
        kept = self._right.copy()
        self.set_limits(self._original_right)
        return kept

    def set_limits(self, right: FloatArray) -> None:
        """Set the limits of all constraints to the values that `reset_to_original_limits` returned."""
        for row in np.flatnonzero(self._right != right).tolist():
            self._side(row, float(right[row]))

    def _side(self, row: int, right: float) -> None:
        self._right[row] = right
        self._program.set_row_bounds(np.array([row]), np.array([-np.inf]), np.array([right]))

    # ------------------------------------------------------------------------------------ asking

    def split_over_pools_or_add_cut(self, values: IntArray) -> tuple[PoolSplit, bool]:
        """Divide a plan's pods among the node pools; if they do not fit, add a cut that excludes the plan.

        Args:
          values: the values [V] of the variables of the plan.

        Returns:
          the division, and False if the pods do not fit and a cut that excludes the plan was added to the model.
        """
        aggregate = self._aggregate
        pods = aggregate.pods_by_class(values)
        on = np.where(aggregate.switch == OPEN, 1, values[np.maximum(aggregate.switch, 0)])
        limit = self._limit(on)
        if self._moving.size:
            self._program.set_variable_ranges_from_zero(self._moving, limit[self._moving].astype(np.float64))
        first, counts = len(self._right), self._per_lot(pods).astype(np.float64)
        self._program.set_row_bounds(np.arange(first, first + len(counts)), counts, counts)
        taken = values[aggregate.y]
        for index, (gangs, factors) in self._gangs.items():
            side = self._right[index] + float(factors @ taken[gangs])
            self._program.set_row_bounds(np.array([index]), np.array([-np.inf]), np.array([side]))
        vertex = self._program.solve()
        if vertex is None:
            return PoolSplit(np.zeros((len(pods), aggregate.pools.pool_count)), 0.0), True
        spread = self._deal(vertex.values[: len(self.lot)], pods)
        short = -vertex.worth
        if short <= _MIN_SHORTAGE:
            return PoolSplit(spread, 0.0), True
        cut = self._cut(vertex.duals, pods, values)
        return PoolSplit(spread, short), not cut

    def _deal(self, values: FloatArray, pods: IntArray) -> FloatArray:
        """Distribute the pods of every lot and pool to its classes, one class after the other, [C, P]."""
        of_lot = np.zeros((len(self._first), self._aggregate.pools.pool_count))
        of_lot[self.lot, self.pool] = values
        ends = np.cumsum(of_lot, axis=1)[self._lot]
        starts = ends - of_lot[self._lot]
        order = np.argsort(self._lot, kind="stable")
        running = np.cumsum(pods[order])
        before = np.append(0, running)[np.searchsorted(self._lot[order], np.arange(len(self._first)))]
        to = np.empty(len(pods))
        to[order] = running
        to -= before[self._lot]
        since = to - pods
        dealt: FloatArray = np.maximum(
            0.0, np.minimum(ends, to[:, None]) - np.maximum(starts, since[:, None])
        )
        return dealt

    def _limit(self, on: IntArray) -> IntArray:
        """The upper limit of every x for the switches that are on, [X]."""
        total = np.zeros((len(self._first), self._aggregate.pools.pool_count), np.int64)
        np.add.at(total, self._lot[self._aggregate.class_index], self._limits * on[:, None])
        upper = self._upper.copy()
        moving = self._moving
        upper[moving] = np.minimum(upper[moving], total[self.lot[moving], self.pool[moving]])
        return upper

    def _cut(self, duals: FloatArray, pods: IntArray, values: IntArray) -> bool:
        """Add the Benders cut of these duals to the model; False if it would exclude nothing."""
        aggregate, lots = self._aggregate, len(self._first)
        price_of_row = np.maximum(duals[: len(self._right)], 0.0)
        price = np.bincount(self._column, self._factor * price_of_row[self._row], minlength=len(self.lot))
        cheapest = np.full(lots, np.inf)
        np.minimum.at(cheapest, self.lot, price)
        cheapest[np.isinf(cheapest)] = 0.0
        worth = np.where(self._per_lot(pods) > 0, -duals[len(self._right) :], cheapest)
        over = np.maximum(0.0, worth[self.lot] - price)
        # Rounding errors of the duals would enter the cut as terms of every load.
        over[over < 1e-12] = 0.0
        coefficient = np.zeros(aggregate.variable_count)
        np.add.at(coefficient, aggregate.variable, worth[self._lot[aggregate.class_index]] * aggregate.factor)
        fixed = np.ones(len(self.lot), np.bool_)
        fixed[self._moving] = False
        right = float(price_of_row @ self._right) + float(over[fixed] @ self._upper[fixed])
        right += self._charge_limits(over, coefficient)
        for index, (gangs, factors) in self._gangs.items():
            np.add.at(coefficient, aggregate.y[gangs], -price_of_row[index] * factors)
        # Scale by the terms of the cut and not by their difference: what cancels leaves only rounding errors.
        gross = float(
            (np.abs(worth[self._lot[aggregate.class_index]]) * aggregate.factor).sum()
            + price_of_row @ np.abs(self._right)
        )
        scale = _CUT_SCALE / max(gross, float(np.abs(coefficient).sum()), abs(right), 1e-9)
        whole = np.floor(coefficient * scale + 1e-9).astype(np.int64)
        used = np.flatnonzero(whole)
        slack = int(_CUT_SCALE * 1e-8)  # duals are floats: rounding must not cut off what fits
        limit = int(np.floor(right * scale)) + slack
        if int(whole @ values) <= limit:
            return False
        row = aggregate.add_row(used, whole[used], -HIGHEST, limit)
        self.cut_duals.append(price_of_row)
        # Such a cut excludes choices that the problem allows, so that bounds leave it out.
        if self.has_reduced_capacity:
            self.local[row] = limit
        return True

    def _charge_limits(self, over: FloatArray, coefficient: FloatArray) -> float:
        """Move the duals of the limits of switched loads to the left side; return the constant part."""
        aggregate = self._aggregate
        moving = self._moving[over[self._moving] > 0]
        if not moving.size:
            return 0.0
        value = np.zeros((len(self._first), aggregate.pools.pool_count))
        value[self.lot[moving], self.pool[moving]] = over[moving]
        of_load = (value[self._lot[aggregate.class_index]] * self._limits).sum(axis=1)
        opened = aggregate.switch == OPEN
        np.add.at(coefficient, aggregate.switch[~opened], -of_load[~opened])
        return float(of_load[opened].sum())

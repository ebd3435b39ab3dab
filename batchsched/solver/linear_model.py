"""An integer linear model as sparse arrays, and the conversion of float weights to integers.

Shapes: V variables, M rows, Z non-zeros, C classes.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchsched.errors import SolverFault
from batchsched.solver.problem import FloatArray, IntArray

HIGHEST: Final = 2**62
"""As a row's side: no limit. CP-SAT rejects models in which a sum could reach it."""
SCALED_TOTAL: Final = 2**50
"""Sum of all weights of one objective after scaling: below 2^53, so that floats represent it exactly."""
MAX_UNPLACEABLE_SHARE: Final = 1024.0
"""Pods that cannot be placed may weigh this many times as much as the others: that much precision is left over."""
_RATIOS: Final = 256
"""Weights that are all multiples of the smallest one ÷ k are scaled exactly for k up to this."""


class LinearModel:
    """An integer linear model: variables with bounds, and linear constraints (rows) over them.

    Rows and variables are only added; their bounds may change. `when` maps a row to the 0/1 variable that must be 1
    for it to hold (~v: variable v must be 0). `written`, `moved_variables` and `moved_rows` belong to the engine:
    what its proto contains so far.
    """

    def __init__(self) -> None:
        self._lower: list[IntArray] = []
        self._upper: list[IntArray] = []
        self._variables = 0
        self.row_lower: list[int] = []
        self.row_upper: list[int] = []
        self.when: dict[int, int] = {}
        self._starts: list[IntArray] = []
        self._columns: list[IntArray] = []
        self._coefficients: list[IntArray] = []
        self._nonzeros = 0
        self.moved_variables: set[int] = set()
        self.moved_rows: set[int] = set()
        self.written: object = None

    @property
    def variable_count(self) -> int:
        """The number V of variables of the model."""
        return self._variables

    @property
    def row_count(self) -> int:
        """The number M of linear constraints (rows) of the model."""
        return len(self.row_lower)

    def add_variables(self, lower: NDArray[np.integer], upper: NDArray[np.integer]) -> IntArray:
        """Add an integer variable for each pair of bounds in `lower` and `upper`; return the new indices.

        Shapes: all arrays [n].
        """
        first = self._variables
        self._lower.append(np.asarray(lower, np.int64))
        self._upper.append(np.asarray(upper, np.int64))
        self._variables += len(lower)
        return np.arange(first, self._variables, dtype=np.int64)

    def add_booleans(self, count: int) -> IntArray:
        """Add `count` variables that are 0 or 1; return their indices [count]."""
        return self.add_variables(np.zeros(count, np.int64), np.ones(count, np.int64))

    def add_sum_constraint(
        self, columns: NDArray[np.integer], lower: int = -HIGHEST, upper: int = HIGHEST
    ) -> int:
        """Add a constraint on the sum of the variables `columns`: lower <= Σ x[columns] <= upper.

        Returns the row index of the constraint.
        """
        return self.add_row(columns, np.ones(len(columns), np.int64), lower, upper)

    def link_sum_to_switch(
        self,
        columns: NDArray[np.integer],
        switch: int,
        factor: int,
        lower: int = -HIGHEST,
        upper: int = HIGHEST,
    ) -> int:
        """Link a sum of variables to the variable `switch`: lower <= Σ x[columns] - factor·x[switch] <= upper.

        With upper=0 and variables that are at least 0, the columns are 0 while the switch is 0.

        Returns the row index of the constraint.
        """
        coefficients = np.append(np.ones(len(columns), np.int64), -factor)
        return self.add_row(np.append(columns, switch), coefficients, lower, upper)

    def add_row(
        self,
        columns: NDArray[np.integer],
        coefficients: NDArray[np.integer],
        lower: int = -HIGHEST,
        upper: int = HIGHEST,
        *,
        when: int | None = None,
    ) -> int:
        """Add a constraint on the variables `columns`: lower <= Σ coefficients·x[columns] <= upper.

        Returns the row index of the constraint.

        With `when` the row only holds if that 0/1 variable is 1 (~v: if variable v is 0).
        """
        row = self.row_count
        # A model has thousands of single rows, so that they do without the arrays of `add_rows`.
        self._starts.append(np.array([self._nonzeros], np.int64))
        self._columns.append(np.asarray(columns, np.int64))
        self._coefficients.append(np.asarray(coefficients, np.int64))
        self.row_lower.append(max(int(lower), -HIGHEST))
        self.row_upper.append(min(int(upper), HIGHEST))
        self._nonzeros += len(columns)
        if when is not None:
            self.when[row] = int(when)
        return row

    def add_rows(
        self,
        starts: NDArray[np.integer],
        columns: NDArray[np.integer],
        coefficients: NDArray[np.integer],
        lower: NDArray[np.integer],
        upper: NDArray[np.integer],
    ) -> None:
        """Add n linear constraints, stated in the compressed sparse row (CSR) format.

        Constraint i has the terms at the positions from starts[i] up to, but not including, starts[i+1] in the arrays
        `columns` and `coefficients` [Z].

        Shapes: starts [n + 1], lower and upper [n]. A column may not repeat inside a row.
        """
        begin = np.asarray(starts[:-1], np.int64)
        self._starts.append(begin + self._nonzeros)
        self._columns.append(np.asarray(columns, np.int64))
        self._coefficients.append(np.asarray(coefficients, np.int64))
        # Sides beyond 2^62 are clipped: CP-SAT reads larger numbers as an overflow.
        self.row_lower.extend(np.maximum(np.asarray(lower, np.int64), -HIGHEST).tolist())
        self.row_upper.extend(np.minimum(np.asarray(upper, np.int64), HIGHEST).tolist())
        self._nonzeros += len(columns)

    def set_variable_bounds(
        self, indices: NDArray[np.integer], lower: NDArray[np.integer], upper: NDArray[np.integer]
    ) -> None:
        """Set the lower and the upper bound of each variable in `indices`.

        Shapes: all arrays [n].
        """
        low, high = self.variable_bounds()
        # Callers may hold the arrays that `variable_bounds` returned.
        low, high = low.copy(), high.copy()
        low[indices], high[indices] = lower, upper
        self._lower, self._upper = [low], [high]
        self.moved_variables.update(np.asarray(indices).tolist())

    def set_row_bounds(self, row: int, lower: int, upper: int) -> None:
        """Set the lower and the upper limit of one linear constraint."""
        self.row_lower[row] = max(int(lower), -HIGHEST)
        self.row_upper[row] = min(int(upper), HIGHEST)
        self.moved_rows.add(row)

    def variable_bounds(self) -> tuple[IntArray, IntArray]:
        """Return the lower bounds and the upper bounds of all variables, as two arrays [V]."""
        if len(self._lower) != 1:
            empty = np.zeros(0, np.int64)
            self._lower = [np.concatenate([empty, *self._lower])]
            self._upper = [np.concatenate([empty, *self._upper])]
        return self._lower[0], self._upper[0]

    def constraint_matrix(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the coefficients of all constraints as a matrix in compressed sparse row (CSR) format.

        Returns:
          the starts of the rows [M + 1], and the column and the coefficient of each of the Z terms [Z].
        """
        empty = np.zeros(0, np.int64)
        if len(self._columns) > 1:
            self._starts = [np.concatenate(self._starts)]
            self._columns = [np.concatenate(self._columns)]
            self._coefficients = [np.concatenate(self._coefficients)]
        starts = np.append(self._starts[0] if self._starts else empty, self._nonzeros)
        if not self._columns:
            return starts, empty, empty
        return starts, self._columns[0], self._coefficients[0]

    def row_bounds(self) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
        """Return each constraint's lower limit and upper limit, and whether it has no `when` condition.

        Shapes: three arrays [M]. A constraint with a `when` condition need not hold if the condition is false.
        """
        always = np.ones(self.row_count, np.bool_)
        always[list(self.when)] = False
        return np.array(self.row_lower, np.int64), np.array(self.row_upper, np.int64), always

    def is_satisfied_by(self, values: NDArray[np.integer]) -> bool:
        """Tell whether these values of the variables [V] satisfy all bounds and constraints of the model."""
        lower, upper = self.variable_bounds()
        if np.any(values < lower) or np.any(values > upper):
            return False
        starts, columns, coefficients = self.constraint_matrix()
        # Sums of rows by differences of one running sum: rows may be empty, which `reduceat` cannot express.
        sums = np.diff(np.concatenate([[0], np.cumsum(coefficients * values[columns])])[starts])
        row_lower, row_upper, always = self.row_bounds()
        for row, switch in self.when.items():
            always[row] = values[switch] == 1 if switch >= 0 else values[~switch] == 0
        return not np.any(always & ((sums < row_lower) | (sums > row_upper)))

    def check_limits_of_cpsat(self) -> None:
        """Raise `SolverFault` if CP-SAT would reject the model: a bound is wrong, or a sum could overflow.

        Raises:
          SolverFault: a row's sum could reach 2^62, or a variable's lower bound exceeds its upper bound.
        """
        lower, upper = self.variable_bounds()
        if np.any(lower > upper):
            raise SolverFault(
                f"variable {int(np.argmax(lower > upper))} has a lower bound above its upper one"
            )
        starts, columns, coefficients = self.constraint_matrix()
        reach = np.maximum(np.abs(lower), np.abs(upper)).astype(np.float64)
        terms = np.abs(coefficients).astype(np.float64) * reach[columns]
        sums = np.diff(np.concatenate([[0.0], np.cumsum(terms)])[starts])
        if sums.size and sums.max() >= HIGHEST:
            raise SolverFault(f"row {int(np.argmax(sums))} could reach 2^62: scale its coefficients down")


def drop_dominating_unplaceable_classes(
    weights: FloatArray, counts: NDArray[np.integer], max_pods: NDArray[np.integer]
) -> NDArray[np.integer]:
    """Return the pod counts [C] by which to scale weights: 0 for classes that cannot be placed and outweigh the others.

    One pod with absurd requests would otherwise make the integers of all other pods 0. Classes of usual weight remain,
    so that the integers, and the search of CP-SAT with them, do not change with each gang that happens not to fit.

    Args:
      weights: [C] weight of a pod of each class.
      counts: [C] pods of each class.
      max_pods: [C] how many of them can be placed at most.
    """
    value, placeable = weights * counts, max_pods > 0
    if float(value[~placeable].sum()) <= MAX_UNPLACEABLE_SHARE * float(value[placeable].sum()):
        return counts
    return np.where(placeable, counts, 0)


def scale_weights_to_integers(
    weights: FloatArray, counts: NDArray[np.integer], largest: int = SCALED_TOTAL
) -> tuple[IntArray, float, int]:
    """Convert the float weights [C] of pod classes to proportional integers, because CP-SAT accepts only integers.

    `counts` [C] are the pods of each class. The weight of a class with the count 0 has no effect, and its integer is 0
    (`drop_dominating_unplaceable_classes`).

    Returns the integers W [C], the scale (W ≈ scale · weights) and the slack. Equal weights stay equal.
    When all weights are multiples of the smallest ÷ k for a small k, the integers are exact and the slack
    is 0. Otherwise Σ W·counts is `largest` and the error of each pod is at most half a unit, so two placements of
    equal value differ by at most Σ counts = slack. A tier is fixed by the row Σ W·x >= best - slack, which loses
    less than 1e-9 of Σ weights·counts for up to a million pods and the default of 2^50.
    """
    heavy = (weights > 0) & (counts > 0)
    weights = np.where(heavy, weights, 0.0)
    if not heavy.any():
        return np.zeros(len(weights), np.int64), 1.0, 0
    distinct = np.unique(weights[heavy])
    total = float(np.sum(weights * counts))
    ratios = distinct / distinct[0]
    # Weights are mostly small multiples of one share of the cluster. Then integers express them without an error.
    for divisor in range(1, _RATIOS + 1):
        multiples = ratios * divisor
        if np.all(np.abs(multiples - np.rint(multiples)) <= 1e-12 * multiples):
            scale = divisor / float(distinct[0])
            if total * scale <= largest:
                return np.rint(weights * scale).astype(np.int64), scale, 0
    scale = largest / max(total, float(distinct[-1]))
    return np.rint(weights * scale).astype(np.int64), scale, int(counts[heavy].sum())

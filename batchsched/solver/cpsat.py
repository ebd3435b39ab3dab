"""The interface to OR-Tools: CP-SAT's solutions and GLOP's bounds for a `LinearModel`.

A model is built as arrays and becomes a proto once. Solving again after more rows or moved bounds writes only
what is new. One worker, a fixed seed and a deterministic limit make the answers repeat across processes.
The wall clock is only a loose guard, and an answer states whether it fired.

`cp_model`, the layer for models written by hand, is not used: it imports pandas, which costs 75 MiB and a quarter of
a second in every process.

Shapes: V variables, M rows, Z non-zeros, C classes.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from ortools.linear_solver.linear_solver_pb2 import MPModelProto
from ortools.sat.python import cp_model_helper as cp_sat

from batchsched.errors import SolverFault
from batchsched.solver.linear_model import HIGHEST, LinearModel
from batchsched.solver.problem import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class CpSatAnswer:
    """The result of one CP-SAT call: the best values of the variables, and an upper bound on the objective.

    Args:
      values: [V] the best assignment, or None if none was found.
      objective: its value (0 without an assignment).
      bound: upper bound on the value of every assignment; valid however the search ended.
      proved: objective equals bound, or there is provably no assignment.
      infeasible: there is provably no assignment.
      deterministic_used: deterministic units spent.
      guard: the wall-clock guard ended the search: the answer may not repeat.
    """

    values: IntArray | None
    objective: int
    bound: int
    proved: bool
    infeasible: bool
    deterministic_used: float
    guard: bool


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """Limits of one CP-SAT call: deterministic time, wall-clock time, and the relative gap at which CP-SAT may stop.

    Args:
      deterministic: units of deterministic time; repeats across machines.
      guard_seconds: the loose wall-clock guard.
      gap: stop when the relative gap to the bound is no larger.
      seed: CP-SAT's random seed.
    """

    deterministic: float
    guard_seconds: float
    gap: float = 0.0
    seed: int = 0


def maximise(
    model: LinearModel,
    objective: NDArray[np.integer],
    effort: SolveLimits,
    *,
    hint: NDArray[np.integer] | None = None,
) -> CpSatAnswer:
    """Find the values of a model's variables that maximize a linear objective, by one call of CP-SAT.

    The objective is Σ objective·x over the variables x.

    Args:
      model: the variables and linear constraints.
      objective: [V] the coefficient of each variable.
      effort: limits of the call.
      hint: [V] a first guess of the values; it need not be feasible.

    Raises:
      SolverFault: CP-SAT rejects the model as invalid, or the objective could reach 2^62.
    """
    proto = _proto(model)
    weights = np.asarray(objective, np.int64)
    ceiling = _ceiling(model, weights)
    proto.clear_objective()
    proto.clear_solution_hint()
    used = np.flatnonzero(weights)
    proto.objective.vars.extend(used.tolist())
    proto.objective.coeffs.extend((-weights[used]).tolist())
    if hint is not None:
        proto.solution_hint.vars.extend(range(model.variable_count))
        proto.solution_hint.values.extend(np.asarray(hint, np.int64).tolist())
    solver = cp_sat.SolveWrapper()
    solver.set_parameters(_parameters(effort))
    response = solver.solve(proto)  # type: ignore[no-untyped-call]
    status = response.status
    if status == cp_sat.MODEL_INVALID:
        raise SolverFault("CP-SAT calls the model invalid: " + cp_sat.CpSatHelper.validate_model(proto))
    ended = status in (cp_sat.OPTIMAL, cp_sat.INFEASIBLE)
    spent = float(response.deterministic_time)
    # CP-SAT checks the clock only now and then, and ends early if it expects the next check to be too late.
    late = float(response.wall_time) >= 0.5 * effort.guard_seconds
    guard = not ended and late and spent < effort.deterministic
    if status in (cp_sat.OPTIMAL, cp_sat.FEASIBLE):
        values = np.array(response.solution, np.int64)
        worth = int(values @ weights)
        bound = min(ceiling, max(worth, -int(response.inner_objective_lower_bound)))
        return CpSatAnswer(values, worth, bound, bound == worth, False, spent, guard)
    none = status == cp_sat.INFEASIBLE
    return CpSatAnswer(None, 0, 0 if none else ceiling, none, none, spent, guard)


def _ceiling(model: LinearModel, weights: IntArray) -> int:
    """Upper bound of the objective by the variables' bounds alone."""
    lower, upper = model.variable_bounds()
    reach = np.maximum(np.abs(lower), np.abs(upper)).astype(np.float64)
    if float(np.abs(weights).astype(np.float64) @ reach) >= HIGHEST:
        raise SolverFault("the objective could reach 2^62 or more: scale its weights down")
    return int(np.where(weights > 0, weights * upper, weights * lower).sum())


def _parameters(effort: SolveLimits) -> cp_sat.SatParameters:
    parameters = cp_sat.SatParameters()
    parameters.num_workers = 1
    # Otherwise CP-SAT replaces Python's signal handler, and the next Ctrl-C kills the process at once.
    parameters.catch_sigint_signal = False
    parameters.random_seed = effort.seed % 2**31
    parameters.max_deterministic_time = effort.deterministic
    parameters.max_time_in_seconds = effort.guard_seconds
    parameters.relative_gap_limit = effort.gap
    parameters.linearization_level = 2
    # A light presolve: on models of this kind, CP-SAT's own takes longer than the search that it saves.
    parameters.cp_model_probing_level = 0
    parameters.symmetry_level = 0
    parameters.max_presolve_iterations = 1
    parameters.presolve_inclusion_work_limit = 0
    parameters.find_big_linear_overlap = False
    parameters.find_clauses_that_are_exactly_one = False
    return parameters


UNITS_PER_VARIABLE: Final = 6e-5
"""Units for each variable of a model that is solved, for the linear programs and for building the model."""
UNITS_PER_PAIR: Final = 2e-8
"""Units for each pair of a pod class and a node, for building the node pools and for rounding."""


def estimate_solve_work(effort: float, variables: int, pairs: int) -> float:
    """Estimate the work of solver calls from CP-SAT's deterministic time and the size of the models.

    The size of the models determines the work outside CP-SAT, such as building a model and rounding.

    This work is not measured, because measured times are not repeatable. The constants are fitted to CPU seconds: one
    unit is about five seconds.

    Args:
      effort: CP-SAT's deterministic units.
      variables: the variables of the models that CP-SAT solved, added over all its calls.
      pairs: the pairs of a pod class and a node.
    """
    return effort + UNITS_PER_VARIABLE * variables + UNITS_PER_PAIR * pairs


class CpSatBudget:
    """The deterministic time (counted in operations, not in seconds) that CP-SAT may still use in one solve.

    Each call of CP-SAT reduces it.

    Attributes:
      remaining: deterministic units that may still be spent.
      spent: deterministic units that were spent.
      variables: the variables of the models that were solved, added over all calls.
      guard: whether the wall-clock guard ended a call.
    """

    def __init__(self, deterministic: float, guard_seconds: float, seed: int) -> None:
        self.remaining = deterministic
        self.spent = 0.0
        self.variables = 0
        self.guard = False
        self._guard_seconds, self._seed = guard_seconds, seed

    def maximise(
        self,
        model: LinearModel,
        objective: NDArray[np.integer],
        most: float,
        *,
        gap: float = 0.0,
        hint: NDArray[np.integer] | None = None,
    ) -> CpSatAnswer:
        """Maximize an objective by one CP-SAT call, and deduct the time of the call from the budget.

        The call may use at most `most` units of deterministic time.
        """
        answer = maximise(
            model, objective, SolveLimits(most, self._guard_seconds, gap, self._seed), hint=hint
        )
        self.remaining -= answer.deterministic_used
        self.spent += answer.deterministic_used
        self.variables += model.variable_count
        self.guard |= answer.guard
        return answer


def linear_relaxation_bound(model: LinearModel, objective: FloatArray) -> float:
    """Return an upper bound on Σ objective·x over all solutions of a model, computed with fractional x.

    The bound is computed from the dual values and holds whatever their quality: for any duals y,
    Σ_j max over x_j's range of (c - Aᵀy)_j·x_j + Σ_i max over row i's range of y_i·a_i.
    Source: Neumaier and Shcherbina, Safe bounds in linear and mixed-integer linear programming (2004).
    Rows with a `when` are omitted, which keeps it a bound.

    Raises:
      SolverFault: GLOP rejects the model as invalid.
    """
    costs = np.asarray(objective, np.float64)
    vertex = LinearProgram(model, costs).solve()
    low, high = _row_sides(model)
    duals = np.zeros(model.row_count)
    if vertex is not None:
        # OR-Tools drops rows without any limit when it loads a model: their duals are 0.
        duals[np.isfinite(low) | np.isfinite(high)] = vertex.duals
    # A dual of the wrong sign is a rounding error; on an infinite side it would make the bound infinite.
    duals = np.where((duals > 0) & np.isinf(high) | (duals < 0) & np.isinf(low), 0.0, duals)
    starts, columns, coefficients = model.constraint_matrix()
    of_row = np.repeat(np.arange(model.row_count), np.diff(starts))
    reduced = costs - np.bincount(columns, coefficients * duals[of_row], minlength=model.variable_count)
    sides = np.where(duals > 0, high, np.where(duals < 0, low, 0.0))
    lower, upper = (side.astype(np.float64) for side in model.variable_bounds())
    return float(np.sum(np.maximum(reduced * lower, reduced * upper)) + duals @ sides)


def _row_sides(model: LinearModel) -> tuple[FloatArray, FloatArray]:
    """Lower and upper sides of the rows [M] as floats: infinite without a limit, and for rows with a `when`."""
    lower, upper, always = model.row_bounds()
    low = np.where((lower <= -HIGHEST) | ~always, -np.inf, lower)
    high = np.where((upper >= HIGHEST) | ~always, np.inf, upper)
    return low, high


def _linear_program(model: LinearModel, costs: FloatArray) -> MPModelProto:
    """The linear relaxation of a model: maximize Σ costs·x [V]."""
    proto = MPModelProto()
    proto.maximize = True
    lower, upper = model.variable_bounds()
    low, high = _row_sides(model)
    add_variable = proto.variable.add
    for bottom, top, cost in zip(lower.tolist(), upper.tolist(), costs.tolist(), strict=True):
        add_variable(lower_bound=bottom, upper_bound=top, objective_coefficient=cost)
    starts, columns, coefficients = model.constraint_matrix()
    ends, names, factors = starts.tolist(), columns.tolist(), coefficients.tolist()
    add_row = proto.constraint.add
    for begin, end, bottom, top in zip(ends, ends[1:], low.tolist(), high.tolist(), strict=False):
        add_row(
            var_index=names[begin:end], coefficient=factors[begin:end], lower_bound=bottom, upper_bound=top
        )
    return proto


@dataclass(slots=True)
class _Written:
    """How much of a model its proto contains already."""

    proto: cp_sat.CpModelProto = field(default_factory=cp_sat.CpModelProto)
    variables: int = 0
    rows: int = 0


def _proto(model: LinearModel) -> cp_sat.CpModelProto:
    """Return the model as CP-SAT's proto, brought up to date; the same object every time."""
    model.check_limits_of_cpsat()
    written = model.written
    if not isinstance(written, _Written):
        written = model.written = _Written()
    _write_variables(model, written)
    _write_rows(model, written)
    return written.proto


def _write_variables(model: LinearModel, written: _Written) -> None:
    lower, upper = model.variable_bounds()
    proto = written.proto
    for index in sorted(i for i in model.moved_variables if i < written.variables):
        domain = proto.variables[index].domain
        domain.clear()
        domain.extend([int(lower[index]), int(upper[index])])
    add = proto.variables.add
    for pair in np.stack([lower, upper], 1)[written.variables :].tolist():
        add().domain.extend(pair)
    written.variables = model.variable_count
    model.moved_variables.clear()


def _write_rows(model: LinearModel, written: _Written) -> None:
    proto = written.proto
    for row in sorted(i for i in model.moved_rows if i < written.rows):
        domain = proto.constraints[row].linear.domain
        domain.clear()
        domain.extend([model.row_lower[row], model.row_upper[row]])
    starts, columns, coefficients = model.constraint_matrix()
    first = int(starts[written.rows])
    ends = (starts[written.rows :] - first).tolist()
    names, factors = columns[first:].tolist(), coefficients[first:].tolist()
    add = proto.constraints.add
    for row, begin, end in zip(range(written.rows, model.row_count), ends, ends[1:], strict=False):
        constraint = add()
        linear = constraint.linear
        linear.vars.extend(names[begin:end])
        linear.coeffs.extend(factors[begin:end])
        linear.domain.extend([model.row_lower[row], model.row_upper[row]])
        if row in model.when:
            constraint.enforcement_literal.append(model.when[row])
    written.rows = model.row_count
    model.moved_rows.clear()


@dataclass(frozen=True, slots=True, eq=False)
class LpOptimum:
    """The optimum of a linear program: its value, the variables' values, and the duals of the constraints.

    `values` has one entry for each variable [V], and `duals` has one entry for each constraint [M]. Duals of upper
    limits are at least 0, those of lower limits at most 0.
    """

    worth: float
    values: FloatArray
    duals: FloatArray


class LinearProgram:
    """A linear program that stays loaded in the GLOP solver, to be solved again after its bounds change.

    `set_row_bounds` and the duals count only rows with a limit: OR-Tools drops the others when it loads the model.
    Each solve starts from the basis of the previous one: equal sequences of solves give equal answers.
    """

    def __init__(self, model: LinearModel, objective: FloatArray) -> None:
        """Maximize Σ objective·x [V] over the linear relaxation of `model`.

        Raises:
          SolverFault: GLOP rejects the model.
        """
        from ortools.linear_solver import pywraplp  # on first use: it takes 40 ms, and few sessions need it

        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        fault = self._solver.LoadModelFromProto(_linear_program(model, np.asarray(objective, np.float64)))
        if fault:
            raise SolverFault("GLOP calls the model invalid: " + str(fault))
        self._rows, self._variables = self._solver.constraints(), self._solver.variables()

    def set_row_bounds(self, rows: NDArray[np.integer], lower: FloatArray, upper: FloatArray) -> None:
        """Set the lower and the upper limit of each constraint in `rows`; infinity means no limit.

        Shapes: all arrays [n].
        """
        for row, bottom, top in zip(rows.tolist(), lower.tolist(), upper.tolist(), strict=True):
            self._rows[row].SetBounds(bottom, top)

    def set_variable_ranges_from_zero(self, indices: NDArray[np.integer], upper: FloatArray) -> None:
        """Set the upper bound of each variable in `indices`, and set its lower bound to 0.

        Shapes: both arrays [n].
        """
        for index, top in zip(indices.tolist(), upper.tolist(), strict=True):
            self._variables[index].SetBounds(0.0, top)

    def solve(self) -> LpOptimum | None:
        """Solve the linear program; return its optimum, or None if the solver finds none."""
        if self._solver.Solve() != self._solver.OPTIMAL:
            return None
        duals = np.array([row.dual_value() for row in self._rows], np.float64)
        values = np.array([variable.solution_value() for variable in self._variables], np.float64)
        return LpOptimum(float(self._solver.Objective().Value()), values, duals)

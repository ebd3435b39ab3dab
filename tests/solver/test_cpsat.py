"""The door to OR-Tools: answers, bounds, and models that grow between solves."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.errors import SolverFault
from batchsched.solver.cpsat import LinearProgram, SolveLimits, linear_relaxation_bound, maximise
from batchsched.solver.linear_model import HIGHEST, SCALED_TOTAL, LinearModel, scale_weights_to_integers

EFFORT = SolveLimits(deterministic=5.0, guard_seconds=60.0)


def knapsack() -> tuple[LinearModel, np.ndarray]:
    """Weights 3, 4, 5 in a sack of 9, each at most twice, worth 3, 4 and 6."""
    model = LinearModel()
    columns = model.add_variables(np.zeros(3, np.int64), np.full(3, 2))
    model.add_row(columns, np.array([3, 4, 5]), upper=9)
    return model, np.array([3, 4, 6])


def test_a_knapsack_is_filled_to_its_proved_optimum():
    model, worth = knapsack()
    answer = maximise(model, worth, EFFORT)
    assert (answer.objective, answer.bound, answer.proved, answer.guard) == (10, 10, True, False)
    assert answer.values is not None
    assert answer.values.tolist() == [0, 1, 1]


def test_ctrl_c_still_raises_once_a_model_was_solved():
    code = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job inherits SIG_IGN
        "from tests.solver.test_cpsat import EFFORT, knapsack, maximise\n"
        "maximise(*knapsack(), EFFORT)\n"
        "try:\n    signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt:\n    print('raised')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "raised\n"), done.stderr


def test_rows_and_bounds_added_later_apply_in_the_next_solve():
    model, worth = knapsack()
    maximise(model, worth, EFFORT)
    extra = model.add_row(np.array([2]), np.array([1]), upper=0)
    assert maximise(model, worth, EFFORT).objective == 8
    model.set_row_bounds(extra, -HIGHEST, 1)
    assert maximise(model, worth, EFFORT).objective == 10
    model.set_variable_bounds(np.array([1]), np.array([0]), np.array([0]))
    assert maximise(model, worth, EFFORT).objective == 9
    fresh = model.add_variables(np.array([0]), np.array([1]))
    values = maximise(model, np.append(worth, 5), EFFORT).values
    assert values is not None
    assert values[fresh[0]] == 1


def test_a_row_with_a_switch_holds_only_if_the_switch_is_on():
    model = LinearModel()
    columns = model.add_variables(np.zeros(3, np.int64), np.array([9, 1, 1]))
    model.add_row(columns[:1], np.ones(1, np.int64), upper=4, when=1)
    model.add_row(columns[:1], np.ones(1, np.int64), upper=6, when=~2)
    assert maximise(model, np.array([1, 0, 0]), EFFORT).objective == 9
    model.set_variable_bounds(columns[2:], np.array([0]), np.array([0]))
    assert maximise(model, np.array([1, 0, 0]), EFFORT).objective == 6
    assert maximise(model, np.array([1, 3, 0]), EFFORT).objective == 7
    assert model.is_satisfied_by(np.array([4, 1, 0]))
    assert not model.is_satisfied_by(np.array([5, 1, 0]))
    assert not model.is_satisfied_by(np.array([10, 0, 0]))


def test_an_infeasible_model_is_reported_as_infeasible():
    model, worth = knapsack()
    model.add_row(np.arange(3), np.ones(3, np.int64), lower=4)
    answer = maximise(model, worth, EFFORT)
    assert answer.infeasible
    assert answer.proved
    assert answer.values is None


def test_a_solve_without_time_still_returns_a_valid_bound():
    model, worth = knapsack()
    answer = maximise(model, worth, SolveLimits(deterministic=0.0, guard_seconds=60.0))
    assert answer.bound >= 10


def test_a_solve_ended_by_the_guard_reports_it():
    rng = np.random.default_rng(0)
    model = LinearModel()
    columns = model.add_variables(np.zeros(60, np.int64), np.ones(60, np.int64))
    for _ in range(40):
        model.add_row(columns, rng.integers(100, 1000, 60), upper=13000)
    answer = maximise(model, rng.integers(100, 1000, 60), SolveLimits(deterministic=1e6, guard_seconds=0.2))
    assert answer.guard
    assert not answer.proved


def test_numbers_that_would_overflow_are_refused_before_the_solver_sees_them():
    model = LinearModel()
    columns = model.add_variables(np.zeros(2, np.int64), np.full(2, 2**20))
    with pytest.raises(SolverFault, match="objective"):
        maximise(model, np.full(2, 2**45), EFFORT)
    model.add_row(columns, np.full(2, 2**45), upper=5)
    with pytest.raises(SolverFault, match="row 0"):
        maximise(model, np.ones(2, np.int64), EFFORT)


def test_crossed_bounds_are_refused():
    model = LinearModel()
    model.add_variables(np.array([2]), np.array([1]))
    with pytest.raises(SolverFault, match="above its upper"):
        maximise(model, np.ones(1, np.int64), EFFORT)


@pytest.mark.properties
@given(st.integers(0, 2**32 - 1))
def test_the_relaxation_bounds_every_integer_solution(seed: int):
    rng = np.random.default_rng(seed)
    model = LinearModel()
    columns = model.add_variables(rng.integers(-3, 1, 5), rng.integers(1, 5, 5))
    for _ in range(4):
        some = columns[rng.random(5) < 0.7]
        low = int(rng.integers(-30, 1)) if rng.random() < 0.5 else -HIGHEST
        model.add_row(some, rng.integers(-4, 9, len(some)), lower=low, upper=int(rng.integers(0, 40)))
    worth = rng.integers(-5, 20, 5)
    answer = maximise(model, worth, EFFORT)
    bound = linear_relaxation_bound(model, worth.astype(np.float64))
    if answer.values is not None:
        assert answer.proved
        vertex = LinearProgram(model, worth.astype(np.float64)).solve()
        assert bound >= answer.objective - 1e-9
        assert vertex is not None
        assert bound == pytest.approx(vertex.worth, abs=1e-5)
        assert model.is_satisfied_by(answer.values)


def test_the_relaxation_leaves_switched_rows_out():
    model = LinearModel()
    columns = model.add_variables(np.zeros(2, np.int64), np.array([9, 1]))
    model.add_row(columns[:1], np.ones(1, np.int64), upper=4, when=1)
    assert linear_relaxation_bound(model, np.array([1.0, 0.0])) == pytest.approx(9.0)


def test_a_linear_program_is_solved_again_with_other_sides_and_upper_bounds():
    model, worth = knapsack()
    program = LinearProgram(model, worth.astype(np.float64))
    first = program.solve()
    assert first is not None
    assert first.worth == pytest.approx(6 * 9 / 5)
    program.set_variable_ranges_from_zero(np.array([2]), np.array([1.0]))
    second = program.solve()
    assert second is not None
    assert second.values[2] == pytest.approx(1.0)
    assert second.worth == pytest.approx(6 + 4)
    program.set_row_bounds(np.array([0]), np.array([-np.inf]), np.array([5.0]))
    third = program.solve()
    assert third is not None
    assert third.worth == pytest.approx(6.0)


def test_rows_are_returned_as_they_were_added():
    model = LinearModel()
    assert model.constraint_matrix()[0].tolist() == [0]
    model.add_variables(np.zeros(3, np.int64), np.ones(3, np.int64))
    model.add_row(np.array([2]), np.array([7]), upper=3)
    starts = np.array([0, 2, 3])
    model.add_rows(
        starts, np.array([0, 1, 2]), np.array([1, 2, 3]), np.array([0, -(2**63)]), np.array([5, 2**63 - 1])
    )
    starts, columns, coefficients = model.constraint_matrix()
    assert starts.tolist() == [0, 1, 3, 4]
    assert columns.tolist() == [2, 0, 1, 2]
    assert coefficients.tolist() == [7, 1, 2, 3]
    lower, upper, always = model.row_bounds()
    assert lower.tolist() == [-HIGHEST, 0, -HIGHEST]
    assert upper.tolist() == [3, 5, HIGHEST]
    assert always.all()
    assert (model.variable_count, model.row_count) == (3, 3)


def test_weights_of_a_common_measure_are_scaled_exactly():
    integers, scale, slack = scale_weights_to_integers(
        np.array([0.1, 0.3, 0.25, 0.0]), np.array([1, 2, 3, 4])
    )
    assert integers.tolist() == [2, 6, 5, 0]
    assert scale == pytest.approx(20.0)
    assert slack == 0


def test_weight_of_a_class_without_pods_does_not_change_the_scale():
    weights, counts = np.array([0.1, 1 / 3, 1e15]), np.array([1, 2, 0])
    integers, scale, slack = scale_weights_to_integers(weights, counts)
    expected, expected_scale, expected_slack = scale_weights_to_integers(weights[:2], counts[:2])
    assert integers.tolist() == [*expected.tolist(), 0]
    assert (scale, slack) == (expected_scale, expected_slack)


def test_no_positive_weight_is_scaled_to_zero():
    assert scale_weights_to_integers(np.zeros(2), np.ones(2, np.int64))[0].tolist() == [0, 0]


@pytest.mark.properties
@given(st.lists(st.tuples(st.floats(1e-7, 1e3), st.integers(1, 500)), min_size=1, max_size=30))
def test_scaling_loses_less_than_a_billionth_and_keeps_equals_equal(pairs: list[tuple[float, int]]):
    weights, counts = np.array([w for w, _ in pairs]), np.array([k for _, k in pairs])
    integers, scale, slack = scale_weights_to_integers(np.append(weights, weights[0]), np.append(counts, 1))
    counts = np.append(counts, 1)
    weights = np.append(weights, weights[0])
    total = float(weights @ counts)
    assert integers[0] == integers[-1]
    assert abs(float(integers @ counts) / scale - total) <= 1e-9 * total
    assert slack / scale <= 1e-9 * total
    assert int(integers @ counts) <= SCALED_TOTAL + int(counts.sum())


def test_the_first_variable_may_be_the_switch_of_a_row():
    model = LinearModel()
    columns = model.add_variables(np.zeros(3, np.int64), np.array([1, 9, 1]))
    model.add_row(columns[1:2], np.ones(1, np.int64), upper=4, when=0)
    assert model.is_satisfied_by(np.array([0, 5, 0]))
    assert model.is_satisfied_by(np.array([1, 4, 0]))
    assert not model.is_satisfied_by(np.array([1, 5, 1]))

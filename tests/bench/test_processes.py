"""The prediction of the time with several processes: steps without gains run side by side, those with gains do not."""

import pytest

from bench.solver import main
from bench.solver.processes import StepTimes, TimedStep


def steps(count: int, *, gained: bool) -> StepTimes:
    numbers = range(count)
    return StepTimes([TimedStep(number, tuple(numbers[number + 1 :]), 1.0, gained) for number in numbers])


@pytest.mark.parametrize("workers, seconds", [(1, 16.0), (2, 8.0), (4, 4.0), (8, 2.0), (64, 1.0)])
def test_steps_without_a_gain_take_turns_on_all_processes(workers: int, seconds: float):
    assert steps(16, gained=False).simulate(workers) == pytest.approx(seconds)


def test_steps_that_all_gain_are_not_faster():
    assert steps(8, gained=True).simulate(8) == pytest.approx(8.0)


def test_a_process_that_solves_a_discarded_step_is_busy_until_its_end():
    found = StepTimes(
        [
            TimedStep(0, (1, 2), 1.0, gained=True),
            TimedStep(1, (2,), 3.0, gained=False),
            TimedStep(2, (), 3.0, gained=False),
        ]
    )
    # The other process has step 1 of the old solution until 3, then step 2 of the new one until 6.
    assert found.simulate(2) == pytest.approx(6.0)


def test_a_prediction_states_the_steps_and_the_seconds_of_each_number(capsys: pytest.CaptureFixture[str]):
    arguments = [
        "--nodes",
        "128",
        "--gangs",
        "24",
        "--partitioned",
        "--seeds",
        "1",
        "--predict-workers",
        "1,2",
    ]
    assert main(arguments) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["seed", "cpu"]
    assert row.split()[0] == "1"
    assert row.split()[7] == "1.00"

import gc
from functools import partial

import pytest

from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput
from batchsched.lab.simulation import Experiment, generated, simulate, simulate_all
from batchsched.simulator.generator import Recipe, generate
from batchsched.simulator.run import RunSettings

RECIPE = Recipe(gangs=15, node_count=4)


def experiments(*policies, detail=True):
    return [
        Experiment(
            partial(generate, RECIPE, 3),
            Profile.model_validate({"selection": "ordered", "backfill": "easy", "policy": {"name": name}}),
            RunSettings(name),
            detail,
        )
        for name in policies
    ]


def test_results_come_in_the_order_of_the_experiments_whatever_the_number_of_processes():
    alone = simulate_all(experiments("saf", "fcfs", "sjf"), 1)
    assert [one.policy for one in alone] == ["saf", "fcfs", "sjf"]
    assert simulate_all(experiments("saf", "fcfs", "sjf"), 2) == alone


def test_without_detail_the_figures_of_gangs_are_the_same_and_the_rest_is_left_out():
    (whole,) = simulate_all(experiments("saf"), 1)
    (small,) = simulate_all(experiments("saf", detail=False), 1)
    assert small.metrics().mean_slowdown == whole.metrics().mean_slowdown
    assert small.series.times == ()
    assert all(one.placements == () for one in small.gangs)
    assert all(one.placements for one in whole.gangs)


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_is_told_run_by_run(processes):
    told = []
    simulate_all(experiments("saf", "fcfs"), processes, lambda *both: told.append(both))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_policy_that_does_not_exist_is_named_and_leaves_the_collector_as_it_was(processes):
    before = gc.get_threshold()
    with pytest.raises(InvalidInput, match="nonsense"):
        simulate_all(experiments("nonsense", "saf"), processes)
    assert gc.get_threshold() == before


def test_no_node_fails_unless_it_is_asked_for():
    assert generated(RECIPE, 3) == generate(RECIPE, 3)


def test_gangs_outlive_failures_of_their_nodes():
    made = generated(RECIPE, 3, (40 * 3600.0, 3600.0))
    result = simulate(made, experiments("fcfs")[0].profile, RunSettings("fcfs"))
    assert len(made.outages) == result.failures > 0
    assert result.metrics().unfinished == 0
    assert sum(one.restarts for one in result.gangs) > 0

from dataclasses import replace

import numpy as np

from batchsched.lab.run_columns import (
    GPUS,
    PODS,
    build_run_columns,
    resources_in_use,
    time_axis_end,
    time_weighted_mean,
)
from batchsched.simulator.result import ClusterSeries, RunResult
from tests.lab.runs import GPU, START, played


def test_all_trials_share_a_clock_that_starts_at_the_first_event():
    early, late = played("a", seed=1), played("b", seed=2)
    first = min(gang.submitted for run in (early, late) for gang in run.gangs)
    runs = build_run_columns([early, late])
    assert min(float(run.submitted.min()) for run in runs) == 0
    assert runs[0].submitted[0] == early.gangs[0].submitted - first


def test_a_gang_that_never_started_has_no_wait_and_no_slowdown():
    run = played("a", gangs=3)
    waiting = replace(run.gangs[0], started=None, ended=None, placements=())
    run = build_run_columns([replace(run, gangs=(waiting, *run.gangs[1:]))])[0]
    assert np.isnan([run.wait[0], run.slowdown[0]]).all()
    assert not np.isnan(run.wait[1:]).any()


def test_gangs_are_measured_in_pods_if_none_requests_gpus():
    run = played("a", gangs=5)
    plain = replace(run, gangs=tuple(replace(gang, gpus=0, size=4) for gang in run.gangs))
    assert build_run_columns([run])[0].unit == GPUS
    assert build_run_columns([plain])[0].unit == PODS
    assert build_run_columns([plain])[0].units.tolist() == [4] * 5


def test_gpus_come_first_among_the_resources_and_unused_ones_are_left_out():
    assert resources_in_use(build_run_columns([played("a")])) == (GPU, "cpu")


def test_a_run_without_events_is_an_empty_trial():
    empty = RunResult("nothing", "a", (), ClusterSeries((), {}, {}, (), ()), sessions=0)
    run = build_run_columns([empty])[0]
    assert (run.end, len(run.units), START > 0) == (0.0, 0, True)


def test_a_mean_over_time_weights_each_value_by_its_duration():
    times, values = np.array([0.0, 10.0, 30.0]), np.array([0.0, 1.0, 0.5])
    assert time_weighted_mean(times, values, 30.0) == 20 / 30
    assert time_weighted_mean(times, values, 50.0) == 30 / 50
    assert time_weighted_mean(times, values, 5.0) == 0.0
    assert time_weighted_mean(times[:0], values[:0], 5.0) == 0.0


def test_a_gang_that_never_starts_extends_the_plot_to_the_whole_run():
    run = played("a", gangs=30)
    last = replace(run.gangs[-1], ended=(run.gangs[-1].started or 0) + 10_000_000)
    long = replace(run, gangs=(*run.gangs[:-1], last))
    assert time_axis_end(build_run_columns([long])) < 0.8 * build_run_columns([long])[0].end
    stuck = replace(long, gangs=(replace(run.gangs[0], started=None, ended=None), *long.gangs[1:]))
    assert time_axis_end(build_run_columns([stuck])) == build_run_columns([stuck])[0].end

import pytest

from batchsched.simulator.result import ClusterSeries, GangRecord, RunResult


def record(key="default/a", submitted=0, started=0, ended=10, runtime=10, queue="default"):
    return GangRecord(key, queue, 1, 0, submitted, started, ended, runtime, runtime)


def result(*gangs, series=None):
    return RunResult("w", "fcfs", gangs, series or ClusterSeries((), {}, {}, (), ()), sessions=1)


@pytest.mark.parametrize(
    "wait, runtime, expected", [(0, 100, 1.0), (100, 100, 2.0), (9, 1, 1.0), (99, 1, 10.0)]
)
def test_slowdown_is_bounded_below_by_one_and_short_runs_count_as_ten_seconds(wait, runtime, expected):
    assert record(started=wait, ended=wait + runtime, runtime=runtime).bounded_slowdown == expected


def test_means_and_worsts_are_over_gangs_that_finished():
    metrics = result(
        record("a", started=0), record("b", started=30, ended=40), record("c", started=5, ended=None)
    ).metrics()
    assert (metrics.gangs, metrics.unfinished) == (3, 1)
    assert (metrics.mean_wait, metrics.median_wait, metrics.worst_wait) == (15.0, 15.0, 30)
    assert (metrics.mean_slowdown, metrics.worst_slowdown) == (2.5, 4.0)
    assert metrics.makespan == 40


def test_the_median_of_an_odd_number_is_the_middle_one():
    waits = [record(str(wait), started=wait, ended=wait + 10) for wait in (1, 2, 90)]
    assert result(*waits).metrics().median_wait == 2.0


def test_a_run_without_gangs_has_figures_of_nothing():
    metrics = result().metrics()
    assert (metrics.mean_wait, metrics.mean_slowdown, metrics.makespan) == (0.0, 0.0, 0)


def test_utilisation_is_used_over_offered_in_time():
    series = ClusterSeries(
        (0, 10, 30),
        {"cpu": (4, 1, 0), "gpu": (0, 0, 0)},
        {"cpu": (4, 4, 4), "gpu": (0, 0, 0)},
        (0, 0, 0),
        (1, 1, 0),
    )
    assert result(record(ended=30), series=series).metrics().utilisation == {"cpu": 0.5, "gpu": 0.0}
    arriving = [record("a"), record("b", submitted=10), record("c", submitted=15)]
    assert result(*arriving, series=series).metrics().utilisation["cpu"] == 0.75


def test_the_measured_period_ends_with_the_last_arrival_or_after_a_backlog_with_the_last_end():
    arriving = [record("a"), record("b", submitted=5), record("c", submitted=7, ended=40)]
    assert result(*arriving).measured_period == (0, 7)
    backlog = [record("a"), record("b", ended=None), record("c", submitted=7, ended=40)]
    assert result(*backlog).measured_period == (0, 40)
    assert result(record(ended=None)).measured_period == (0, 0)
    assert result().measured_period == (0, 0)

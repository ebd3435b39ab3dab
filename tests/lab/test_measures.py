from dataclasses import replace

import pytest

from batchsched.errors import InvalidInput
from batchsched.lab.fairness import measure_queue_shares
from batchsched.lab.measures import MEASURES, measure_by_name, measure_run
from batchsched.simulator.result import ClusterSeries, QueueSeries, RunResult
from tests.lab.runs import GPU, START, played


def test_every_measure_has_a_value():
    result = played("fcfs")
    assert list(measure_run(result, measure_queue_shares(result, ()))) == [one.key for one in MEASURES]


def test_a_run_without_events_has_all_measures():
    empty = RunResult("w", "p", (), ClusterSeries((), {}, {}, (), ()), 0)
    assert measure_run(empty, measure_queue_shares(empty, ()))["jain"] == 1.0


def test_work_is_lost_in_device_hours_and_evicted_pods_are_counted():
    result = played("fcfs")
    spoilt = replace(result.gangs[0], gpus=4, lost=1800, evicted=2)
    numbers = measure_run(
        replace(result, gangs=(spoilt, *result.gangs[1:])), measure_queue_shares(result, ())
    )
    assert (numbers["lostHours"], numbers["evictions"]) == (2.0, 2.0)


def test_fairness_is_a_mean_over_the_time_in_which_gangs_arrive():
    gangs = played("fcfs").gangs[:2]
    gangs = (replace(gangs[0], submitted=START), replace(gangs[1], submitted=START + 100))
    told = QueueSeries(
        (GPU,),
        (START, START, START + 50, START + 100),
        ("a", "b", "a", "b"),
        ((8,), (0,), (4,), (0,)),
        ((8,),) * 4,
    )
    series = ClusterSeries((START,), {GPU: (0,)}, {GPU: (8,)}, (0,), (0,))
    result = RunResult("w", "p", gangs, series, 1, queues=told)
    numbers = measure_run(result, measure_queue_shares(result, ()))
    assert numbers["fairnessError"] == pytest.approx(0.5)
    assert numbers["jain"] == pytest.approx(0.5)


def test_an_unknown_measure_is_refused_with_the_nearest_name():
    assert measure_by_name("meanWait", "x").title == "Mean wait"
    with pytest.raises(InvalidInput, match="did you mean meanWait"):
        measure_by_name("meanWeight", "tune.objective")

from dataclasses import replace

from batchsched.api.crd.base import CustomMeta
from batchsched.api.crd.podgroup import PodGroup
from batchsched.simulator.cluster import SimulatedCluster
from batchsched.simulator.queue_series import QueueSeriesRecorder
from batchsched.simulator.result import QueueSeries
from batchsched.simulator.run import RunSettings, run
from batchsched.simulator.workload import Outage
from tests.simulator.clusters import FirstComeScheduler, gangs_of
from tests.simulator.test_cluster import evicting, started

ONE = {"cpu": 1000}


def rows(series):
    return list(zip(series.times, series.queues, series.held, series.wanted, strict=True))


def in_queues(workload, *queues):
    """The same gangs, each in the queue of its place."""

    def moved(arrival, queue):
        spec = arrival.group.spec.model_copy(update={"queue": queue})
        meta = CustomMeta.model_validate(arrival.group.metadata.model_dump())
        return replace(arrival, group=PodGroup(metadata=meta, spec=spec))

    arrivals = tuple(moved(*pair) for pair in zip(workload.arrivals, queues, strict=True))
    return replace(workload, arrivals=arrivals)


def test_a_queue_has_a_row_for_each_moment_in_which_it_changed_and_none_for_others():
    ledger = QueueSeriesRecorder(("cpu",))
    ledger.want("a", [ONE, ONE])
    ledger.sample(5)
    ledger.sample(6)
    ledger.hold("a", [ONE])
    ledger.want("b", [ONE])
    ledger.sample(7)
    assert rows(ledger.series()) == [
        (5, "a", (0,), (2000,)),
        (7, "a", (1000,), (2000,)),
        (7, "b", (0,), (1000,)),
    ]


def test_of_several_rows_of_one_second_the_last_stays():
    ledger = QueueSeriesRecorder(("cpu",))
    ledger.want("a", [ONE])
    ledger.sample(5)
    ledger.want("b", [ONE])
    ledger.hold("a", [ONE])
    ledger.sample(5)
    assert rows(ledger.series()) == [(5, "a", (1000,), (1000,)), (5, "b", (0,), (1000,))]


def test_an_empty_ledger_has_no_rows():
    assert QueueSeriesRecorder(("cpu",)).series() == QueueSeries(("cpu",))


def test_a_run_tells_what_each_queue_held_and_wanted():
    workload = in_queues(gangs_of([(0, 10, 3), (2, 10, 2)]), "a", "b")
    told = run(workload, FirstComeScheduler, RunSettings("fcfs")).queues
    assert told.resources == ("cpu",)
    assert rows(told) == [
        (0, "a", (3000,), (3000,)),
        (2, "b", (0,), (2000,)),
        (10, "a", (0,), (0,)),
        (10, "b", (2000,), (2000,)),
        (20, "b", (0,), (0,)),
    ]


def test_a_gang_on_a_node_that_fails_wants_what_it_no_longer_holds_and_its_work_is_lost():
    workload = gangs_of([(0, 10, 3)], slots=4, outages=[Outage("node-0", 4, 6)])
    result = run(workload, FirstComeScheduler, RunSettings("fcfs"))
    assert rows(result.queues)[-1][2:] == ((0,), (0,))
    assert (result.gangs[0].restarts, result.gangs[0].lost, result.gangs[0].evicted) == (1, 4, 0)


def test_evicted_members_and_those_that_go_with_them_are_counted():
    cluster = started([(0, 10, 3)])
    cluster.bind(evicting("g0-1"), 4)
    assert (cluster.lives[0].evicted, cluster.lives[0].lost) == (3, 4)
    assert held(cluster) == (0, 3000)


def test_surplus_that_is_evicted_costs_no_work_of_the_gang():
    cluster = started([(0, 10, 3)], minimum=2)
    cluster.bind(evicting("g0-1"), 4)
    assert (cluster.lives[0].evicted, cluster.lives[0].lost) == (1, 0)
    assert held(cluster) == (2000, 3000)


def held(cluster: SimulatedCluster) -> tuple[int, int]:
    cluster.ledger.sample(4)
    series = cluster.ledger.series()
    return series.held[-1][0], series.wanted[-1][0]

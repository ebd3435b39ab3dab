from dataclasses import replace

from batchsched.simulator.cluster import SimulatedPodBuilder
from batchsched.simulator.recorder import UsageRecorder
from batchsched.simulator.result import QueueSeries
from batchsched.simulator.run import RunSettings, simulate_workload
from batchsched.simulator.workload import (
    NodeOutage,
    TraceGang,
    create_nodes,
    create_pod_spec,
    create_rigid_arrival,
)
from tests.simulator.clusters import FirstComeScheduler, gangs_of

GPUS = {"cpu": "4", "nvidia.com/gpu": "2"}
CPU = create_pod_spec({"cpu": "1"})


def bound(spec, *places):
    arrival = create_rigid_arrival(TraceGang("g", ((spec, len(places)),), None), 0, 1)
    kubelet = SimulatedPodBuilder()
    return [kubelet.running_pod(pod, node, 0) for pod, node in zip(arrival.pods, places, strict=True)]


def rows(series):
    return list(zip(series.times, series.queues, series.held, series.requested, strict=True))


def test_units_are_devices_if_a_gang_requests_any():
    recorder = UsageRecorder(create_nodes(2, GPUS))
    pods = bound(create_pod_spec({"cpu": "1", "nvidia.com/gpu": "1"}), "node-0", "node-0", "node-1")
    assert recorder.gpus_or_pods_by_node(pods) == (("node-0", 2), ("node-1", 1))
    assert recorder.count_gpus(pods) == 3


def test_units_are_pods_if_a_gang_requests_no_device():
    recorder = UsageRecorder(create_nodes(2, GPUS))
    pods = bound(CPU, "node-1", "node-0")
    assert recorder.gpus_or_pods_by_node(pods) == (("node-1", 1), ("node-0", 1))
    assert recorder.count_gpus(pods) == 0


def test_the_last_row_of_a_second_replaces_earlier_ones():
    recorder = UsageRecorder(create_nodes(2, GPUS))
    recorder.add_cluster_usage(bound(CPU, "node-0"))
    recorder.record_sample(5, waiting=3, running=1)
    recorder.record_sample(5, waiting=2, running=2)
    recorder.record_sample(9, waiting=0, running=0)
    series = recorder.cluster_series()
    assert (series.times, series.waiting, series.running) == ((5, 9), (2, 0), (2, 0))
    assert series.used == {"cpu": (1000, 1000), "nvidia.com/gpu": (0, 0)}
    assert series.total == {"cpu": (8000, 8000), "nvidia.com/gpu": (4, 4)}


def test_removed_pods_are_subtracted_and_failed_nodes_offer_nothing():
    recorder = UsageRecorder(create_nodes(2, GPUS))
    pods = bound(CPU, "node-0", "node-1")
    recorder.add_cluster_usage(pods)
    recorder.add_cluster_usage(pods[:1], -1)
    recorder.set_nodes(create_nodes(1, GPUS))
    recorder.record_sample(0, 0, 0)
    assert recorder.cluster_series().used["cpu"] == (1000,)
    assert recorder.cluster_series().total["cpu"] == (4000,)


def test_a_recorder_without_samples_has_empty_series():
    recorder = UsageRecorder(create_nodes(1, GPUS))
    assert recorder.cluster_series().times == ()
    assert recorder.cluster_series().used == {"cpu": (), "nvidia.com/gpu": ()}
    assert recorder.queue_series() == QueueSeries(("cpu", "nvidia.com/gpu"))


def test_a_queue_has_a_row_for_each_second_in_which_it_changed():
    recorder = UsageRecorder(create_nodes(4, {"cpu": "1"}))
    recorder.add_queue_requests("a", bound(CPU, "", ""))
    recorder.record_sample(5, 0, 0)
    recorder.record_sample(6, 0, 0)
    recorder.add_queue_and_cluster_usage("a", bound(CPU, "node-0"))
    recorder.add_queue_requests("b", bound(CPU, ""))
    recorder.record_sample(7, 0, 0)
    recorder.add_queue_and_cluster_usage("b", bound(CPU, "node-1"))
    recorder.record_sample(7, 0, 0)
    assert rows(recorder.queue_series()) == [
        (5, "a", (0,), (2000,)),
        (7, "a", (1000,), (2000,)),
        (7, "b", (1000,), (1000,)),
    ]


def in_queues(workload, *queues):
    """The same gangs, each in the queue of its place."""
    pairs = zip(workload.arrivals, queues, strict=True)
    return replace(workload, arrivals=tuple(replace(arrival, queue=queue) for arrival, queue in pairs))


def test_a_run_records_what_each_queue_allocates_and_requests():
    workload = in_queues(gangs_of([(0, 10, 3), (2, 10, 2)]), "a", "b")
    queues = simulate_workload(workload, FirstComeScheduler, RunSettings("fcfs")).queues
    assert queues.resources == ("cpu",)
    assert rows(queues) == [
        (0, "a", (3000,), (3000,)),
        (2, "b", (0,), (2000,)),
        (10, "a", (0,), (0,)),
        (10, "b", (2000,), (2000,)),
        (20, "b", (0,), (0,)),
    ]


def test_a_gang_on_a_failed_node_loses_its_work_and_finishes_later():
    workload = gangs_of([(0, 10, 3)], slots=4, outages=[NodeOutage("node-0", 4, 6)])
    result = simulate_workload(workload, FirstComeScheduler, RunSettings("fcfs"))
    assert rows(result.queues)[-1][2:] == ((0,), (0,))
    assert (result.gangs[0].restarts, result.gangs[0].lost, result.gangs[0].evicted) == (1, 4, 0)

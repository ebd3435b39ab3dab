from batchsched.simulator.kubelet import Kubelet
from batchsched.simulator.utilization import UtilizationRecorder
from batchsched.simulator.workload import GangShape, nodes, pod_spec, rigid

GPUS = {"cpu": "4", "nvidia.com/gpu": "2"}


def bound(spec, *places):
    arrival = rigid(GangShape("g", ((spec, len(places)),), None), 0, 1)
    kubelet = Kubelet()
    return [kubelet.start(pod, node, 0) for pod, node in zip(arrival.pods, places, strict=True)]


def test_units_are_devices_where_a_gang_asks_for_any():
    meter = UtilizationRecorder(nodes(2, GPUS))
    pods = bound(pod_spec({"cpu": "1", "nvidia.com/gpu": "1"}), "node-0", "node-0", "node-1")
    assert meter.units(pods) == (("node-0", 2), ("node-1", 1))
    assert meter.gpus(pods) == 3


def test_units_are_pods_where_it_asks_for_none():
    meter = UtilizationRecorder(nodes(2, GPUS))
    pods = bound(pod_spec({"cpu": "1"}), "node-1", "node-0")
    assert meter.units(pods) == (("node-1", 1), ("node-0", 1))
    assert meter.gpus(pods) == 0


def test_of_several_rows_of_one_second_the_last_stays():
    meter = UtilizationRecorder(nodes(2, GPUS))
    meter.add(bound(pod_spec({"cpu": "1"}), "node-0"))
    meter.sample(5, waiting=3, running=1)
    meter.sample(5, waiting=2, running=2)
    meter.sample(9, waiting=0, running=0)
    series = meter.series()
    assert (series.times, series.waiting, series.running) == ((5, 9), (2, 0), (2, 0))
    assert series.used == {"cpu": (1000, 1000), "nvidia.com/gpu": (0, 0)}
    assert series.total == {"cpu": (8000, 8000), "nvidia.com/gpu": (4, 4)}


def test_pods_that_are_gone_are_taken_off_and_nodes_that_fail_offer_nothing():
    meter = UtilizationRecorder(nodes(2, GPUS))
    pods = bound(pod_spec({"cpu": "1"}), "node-0", "node-1")
    meter.add(pods)
    meter.add(pods[:1], -1)
    meter.offer(nodes(1, GPUS))
    meter.sample(0, 0, 0)
    assert meter.series().used["cpu"] == (1000,)
    assert meter.series().total["cpu"] == (4000,)


def test_a_run_of_nothing_has_empty_series():
    series = UtilizationRecorder(nodes(1, GPUS)).series()
    assert series.times == ()
    assert series.used == {"cpu": (), "nvidia.com/gpu": ()}

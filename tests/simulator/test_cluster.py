from dataclasses import replace

from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.crd.podgroup import PodGroup, PodGroupSpec
from batchsched.api.decision import Assignment, Decision, Eviction, Nomination
from batchsched.simulator.cluster import SimulatedCluster, SimulatedPodBuilder
from batchsched.simulator.workload import TraceGang, create_pod_spec, create_rigid_arrival
from tests.simulator.clusters import FirstComeScheduler, gangs_of


def evicting(*pods):
    return Decision(
        evictions=tuple(
            Eviction(namespace="default", pod=pod, pod_group="g0", for_="default/x", reason="Reclaimed")
            for pod in pods
        )
    )


def elastic(rows, minimum):
    """A workload of one gang that needs only `minimum` of its pods."""
    workload = gangs_of(rows)
    (first,) = workload.arrivals
    group = PodGroup(metadata=first.group.metadata, spec=PodGroupSpec(min_member=minimum))
    return replace(workload, arrivals=(replace(first, group=group),))


def started(rows, minimum=None):
    workload = gangs_of(rows) if minimum is None else elastic(rows, minimum)
    cluster = SimulatedCluster(workload, FirstComeScheduler)
    for gang in cluster.gangs:
        cluster.add_gang(gang, 0)
    cluster.apply_decision(cluster.scheduler.decide(0.0, 0), 0)
    return cluster


def usage_of_queue(cluster):
    """The CPU that the queue of the last row has allocated and requested."""
    cluster.recorder.record_sample(4, 0, 0)
    series = cluster.recorder.queue_series()
    return series.held[-1][0], series.requested[-1][0]


def test_a_gang_that_loses_a_member_is_killed_whole_and_waits_again():
    cluster = started([(0, 10, 3)])
    assert (cluster.running, cluster.waiting) == (1, 0)
    cluster.apply_decision(evicting("g0-1"), 4)
    gang = cluster.gangs[0]
    assert (cluster.running, cluster.waiting, gang.restarts) == (0, 1, 1)
    assert list(gang.pending) == ["default/g0-0", "default/g0-1", "default/g0-2"]
    assert all(not pod.node_name for pod in gang.pending.values())
    assert set(cluster.scheduler.free.values()) == {1}
    assert (gang.evicted, gang.lost) == (3, 4)
    assert usage_of_queue(cluster) == (0, 3000)


def test_a_gang_that_keeps_its_minimum_loses_that_pod_only_and_runs_on():
    cluster = started([(0, 10, 3)], minimum=2)
    cluster.apply_decision(evicting("g0-1"), 4)
    gang = cluster.gangs[0]
    assert (cluster.running, gang.restarts, gang.started) == (1, 0, 0)
    assert list(gang.pending) == ["default/g0-1"]
    assert cluster.has_pending_pods
    assert (gang.evicted, gang.lost) == (1, 0)
    assert usage_of_queue(cluster) == (2000, 3000)


def test_a_decision_without_evictions_changes_nothing():
    cluster = started([(0, 10, 3)])
    assert cluster.apply_decision(Decision(), 4) == []
    assert cluster.running == 1


def test_a_nomination_is_written_to_the_pod_and_removed_again():
    cluster = started([(0, 10, 3)])
    cluster.apply_decision(evicting("g0-1"), 4)
    kept = Nomination(namespace="default", pod="g0-1", node="n1")
    cluster.apply_decision(Decision(nominations=(kept,)), 5)
    gang = cluster.gangs[0]
    assert [pod.status.nominated_node_name for pod in gang.pending.values()] == ["", "n1", ""]
    cluster.apply_decision(Decision(), 6)
    assert [pod.status.nominated_node_name for pod in gang.pending.values()] == ["", "", ""]


def test_a_gang_runs_once_its_minimum_is_bound_and_surplus_joins_later():
    cluster = SimulatedCluster(elastic([(0, 10, 3)], 2), FirstComeScheduler)
    cluster.add_gang(cluster.gangs[0], 0)
    places = [Assignment(namespace="default", pod=f"g0-{at}", node=f"node-{at}") for at in range(3)]
    assert cluster.apply_decision(Decision(assignments=tuple(places[:2])), 1) == [cluster.gangs[0]]
    assert cluster.apply_decision(Decision(assignments=tuple(places[2:])), 5) == []
    assert cluster.gangs[0].started == 1
    assert cluster.gangs[0].placements == (("node-0", 1), ("node-1", 1), ("node-2", 1))


def test_a_node_that_fails_twice_fails_once():
    cluster = started([(0, 10, 3)])
    cluster.fail_node("node-0", 100)
    cluster.fail_node("node-0", 100)
    assert cluster.failures == 1
    cluster.repair_node("node-0")
    cluster.fail_node("node-0", 100)
    assert cluster.failures == 2


PODS = create_rigid_arrival(TraceGang("g", ((create_pod_spec({"cpu": "1"}), 2),), None), 0, 1).pods


def test_a_bound_pod_runs_on_its_node_since_now():
    pod = SimulatedPodBuilder().running_pod(PODS[0], "node-3", 1234)
    assert (pod.node_name, pod.key, pod.status.phase) == ("node-3", PODS[0].key, "Running")
    assert parse_timestamp(pod.status.start_time) == 1234.0


def test_equal_pods_on_one_node_share_their_spec():
    kubelet = SimulatedPodBuilder()
    first, second = (kubelet.running_pod(pod, "node-3", at) for at, pod in enumerate(PODS))
    assert first.spec is second.spec
    assert first.status != second.status


def test_a_recreated_pod_equals_the_original_pending_pod():
    kubelet = SimulatedPodBuilder()
    recreated = kubelet.recreated_pod(kubelet.running_pod(PODS[0], "node-3", 5))
    assert recreated == PODS[0]
    assert recreated.spec is PODS[0].spec


def test_a_pod_that_another_kubelet_started_is_recreated_without_its_node():
    started = SimulatedPodBuilder().running_pod(PODS[0], "node-3", 5)
    assert SimulatedPodBuilder().recreated_pod(started) == PODS[0]

from batchsched.api.crd.podgroup import PodGroup, PodGroupSpec
from batchsched.api.decision import Assignment, Decision, Eviction, Nomination
from batchsched.simulator.cluster import SimulatedCluster
from batchsched.simulator.workload import Arrival
from tests.simulator.clusters import FirstComeScheduler, gangs_of


def evicting(*pods):
    return Decision(
        evictions=tuple(
            Eviction(namespace="default", pod=pod, pod_group="g0", for_="default/x", reason="Reclaimed")
            for pod in pods
        )
    )


def started(rows, minimum=None):
    workload = gangs_of(rows)
    if minimum is not None:
        first = workload.arrivals[0]
        group = PodGroup(metadata=first.group.metadata, spec=PodGroupSpec(min_member=minimum))
        workload = type(workload)(
            "elastic", workload.cluster, (Arrival(first.at, first.runtime, group, first.pods),)
        )
    cluster = SimulatedCluster(workload, FirstComeScheduler)
    for life in cluster.lives:
        cluster.arrive(life, 0)
    cluster.bind(cluster.scheduler.decide(0.0, 0), 0)
    return cluster


def test_a_gang_that_loses_a_member_is_killed_whole_and_waits_again():
    cluster = started([(0, 10, 3)])
    assert (cluster.running, cluster.waiting) == (1, 0)
    cluster.bind(evicting("g0-1"), 4)
    life = cluster.lives[0]
    assert (cluster.running, cluster.waiting, life.restarts) == (0, 1, 1)
    assert list(life.pending) == ["default/g0-0", "default/g0-1", "default/g0-2"]
    assert all(not pod.node for pod in life.pending.values())
    assert set(cluster.scheduler.free.values()) == {1}


def test_a_gang_that_keeps_its_minimum_loses_that_pod_only_and_runs_on():
    cluster = started([(0, 10, 3)], minimum=2)
    cluster.bind(evicting("g0-1"), 4)
    life = cluster.lives[0]
    assert (cluster.running, life.restarts, life.started) == (1, 0, 0)
    assert list(life.pending) == ["default/g0-1"]
    assert cluster.has_pending_pods


def test_a_decision_without_evictions_disturbs_nobody():
    cluster = started([(0, 10, 3)])
    assert cluster.bind(Decision(), 4) == []
    assert cluster.running == 1


def test_room_that_is_kept_is_written_on_the_pod_and_taken_off_again():
    cluster = started([(0, 10, 3)])
    cluster.bind(evicting("g0-1"), 4)
    kept = Nomination(namespace="default", pod="g0-1", node="n1")
    cluster.bind(Decision(nominations=(kept,)), 5)
    life = cluster.lives[0]
    assert [pod.status.nominated_node_name for pod in life.pending.values()] == ["", "n1", ""]
    cluster.bind(Decision(), 6)
    assert [pod.status.nominated_node_name for pod in life.pending.values()] == ["", "", ""]


def test_a_gang_runs_once_its_minimum_is_bound_and_surplus_joins_later():
    workload = gangs_of([(0, 10, 3)])
    first = workload.arrivals[0]
    group = PodGroup(metadata=first.group.metadata, spec=PodGroupSpec(min_member=2))
    cluster = SimulatedCluster(
        type(workload)("elastic", workload.cluster, (Arrival(0, 10, group, first.pods),)), FirstComeScheduler
    )
    cluster.arrive(cluster.lives[0], 0)
    places = [Assignment(namespace="default", pod=f"g0-{at}", node=f"node-{at}") for at in range(3)]
    assert cluster.bind(Decision(assignments=tuple(places[:2])), 1) == [cluster.lives[0]]
    assert cluster.bind(Decision(assignments=tuple(places[2:])), 5) == []
    assert cluster.lives[0].started == 1
    assert cluster.lives[0].placements == (("node-0", 1), ("node-1", 1), ("node-2", 1))


def test_a_node_that_fails_twice_fails_once():
    cluster = started([(0, 10, 3)])
    cluster.fail("node-0", 100)
    cluster.fail("node-0", 100)
    assert cluster.failures == 1
    cluster.repair("node-0")
    cluster.fail("node-0", 100)
    assert cluster.failures == 2

"""Sessions end to end: what a cluster gets decided."""

import msgspec
import pytest

from batchsched.api.snapshot import Snapshot
from tests.session.scenario import (
    GPU,
    alone,
    bound,
    cluster,
    gang,
    group,
    node,
    nodes,
    placed,
    pod,
    priority_class,
    profile,
    queue,
    reasons,
    schedule,
    topology,
)

EVERY_WAY = [
    pytest.param({}, id="joint"),
    pytest.param({"selection": "ordered"}, id="ordered"),
    pytest.param({"selection": "ordered", "backfill": "easy"}, id="easy"),
    pytest.param({"solver": {"enabled": False}}, id="pod-by-pod"),
]


@pytest.mark.parametrize("settings", EVERY_WAY)
def test_gang_of_three_binds_nothing_on_two_free_nodes(settings):
    decision = schedule(cluster(nodes(2, gpu=1), gang("bert", 3)), profile(**settings))
    assert decision.assignments == ()
    assert set(reasons(decision)) == {"team/bert"}


@pytest.mark.parametrize("settings", EVERY_WAY)
def test_gang_of_three_binds_whole_on_three_free_nodes(settings):
    decision = schedule(cluster(nodes(3, gpu=1), gang("bert", 3)), profile(**settings))
    assert sorted(placed(decision).values()) == ["n0", "n1", "n2"]


@pytest.mark.parametrize("settings", EVERY_WAY)
def test_pods_of_2_3_3_and_8_cpus_share_two_nodes_of_8(settings):
    members = tuple(pod(f"p{at}", group="mixed", cpu=cpu) for at, cpu in enumerate([2, 3, 3, 8]))
    snapshot = cluster(nodes(2, cpu=8), Snapshot(pods=members, pod_groups=(group("mixed", 4),)))
    assert len(schedule(snapshot, profile(**settings)).assignments) == 4


def test_twenty_single_gpu_pods_and_an_eight_gpu_pod_that_arrive_together_are_all_placed():
    snapshot = cluster(nodes(4, gpu=8), alone(20, gpu=1), Snapshot(pods=(pod("large", gpu=8),)))
    assert len(schedule(snapshot).assignments) == 21


def test_an_eight_gpu_pod_is_placed_after_twenty_single_gpu_pods_of_an_earlier_session():
    early = cluster(nodes(4, gpu=8), alone(20, gpu=1))
    later = bound(early, schedule(early))
    assert sum(bool(one.node_name) for one in later.pods) == 20
    snapshot = cluster(later.nodes, Snapshot(pods=(*later.pods, pod("large", gpu=8))))
    assert "large" in placed(schedule(snapshot))


def test_heavier_gang_is_placed_first_within_a_priority():
    snapshot = cluster(nodes(4, gpu=1), gang("small", 2, age=100), gang("large", 4))
    assert {name.split("-")[0] for name in placed(schedule(snapshot))} == {"large"}


def test_ordered_selection_places_the_older_gang_before_a_heavier_one():
    snapshot = cluster(nodes(4, gpu=1), gang("large", 4), gang("small", 2, age=100))
    decision = schedule(snapshot, profile(selection="ordered", policy={"name": "fcfs"}))
    assert {name.split("-")[0] for name in placed(decision)} == {"small"}


def test_gang_of_higher_priority_is_placed_before_a_heavier_gang():
    snapshot = cluster(
        nodes(4, gpu=1),
        gang("heavy", 4),
        gang("urgent", 1, priorityClassName="high"),
        priority_classes=(priority_class("high", 100),),
    )
    decision = schedule(snapshot)
    assert set(placed(decision)) == {"urgent-0"}
    assert [tier.priority for tier in decision.solver.tiers] == [100, 0]


def test_elastic_surplus_is_placed_after_the_minimum_while_nodes_have_room():
    decision = schedule(cluster(nodes(3, gpu=1), gang("elastic", 5, 2)))
    assert len(decision.assignments) == 3
    assert reasons(decision) == {}


def test_members_with_a_required_rack_are_placed_in_one_rack():
    racks = [node(f"n{at}", {"rack": f"r{at // 2}"}, gpu=2) for at in range(4)]
    wide = gang("wide", 4, topology={"required": "rack"})
    decision = schedule(cluster(racks, wide, topologies=(topology("rack"),)))
    assert set(placed(decision).values()) in ({"n0", "n1"}, {"n2", "n3"})


def test_gang_larger_than_any_rack_is_refused_with_the_level_at_which_it_fits():
    racks = [node(f"n{at}", {"rack": f"r{at // 2}", "block": "b"}, gpu=1) for at in range(4)]
    wide = gang("wide", 3, topology={"required": "rack"})
    decision = schedule(cluster(racks, wide, topologies=(topology("block", "rack"),)))
    (refusal,) = decision.refusals
    assert refusal.reason == "InsufficientTopologyCapacity"
    assert refusal.relaxation == "fits at level block"


def test_gang_with_an_unknown_level_is_refused():
    wide = gang("wide", 1, topology={"required": "row"})
    decision = schedule(cluster(nodes(1, gpu=1), wide, topologies=(topology("rack"),)))
    (refusal,) = decision.refusals
    assert refusal.reason == "UnknownTopologyLevel"
    assert "its levels are: rack" in refusal.message


def test_pod_with_a_missing_pod_group_is_refused():
    snapshot = cluster(nodes(1, gpu=1), Snapshot(pods=(pod("lost", group="ghost", gpu=1),)), alone(1, gpu=1))
    decision = schedule(snapshot)
    assert reasons(decision) == {"team/ghost": "PodGroupNotFound"}
    assert set(placed(decision)) == {"solo-0"}


def test_pod_group_with_a_missing_queue_is_refused():
    decision = schedule(cluster(nodes(1, gpu=1), gang("lost", 1, queue="nowhere")))
    assert reasons(decision) == {"team/lost": "QueueNotFound"}


def test_pod_group_with_too_few_pods_is_refused():
    short = Snapshot(pods=(pod("a", group="short", gpu=1),), pod_groups=(group("short", 2),))
    decision = schedule(cluster(nodes(2, gpu=1), short))
    assert reasons(decision) == {"team/short": "NotEnoughPods"}
    assert "1 of the 2 pods" in decision.refusals[0].message


def test_pod_group_without_any_pod_is_refused():
    decision = schedule(cluster(nodes(2, gpu=1), Snapshot(pod_groups=(group("empty", 2),))))
    assert reasons(decision) == {"team/empty": "NotEnoughPods"}


def test_empty_cluster_refuses_everything():
    assert reasons(schedule(cluster((), gang("bert", 2)))) == {"team/bert": "NoNodes"}


def test_limit_of_a_parent_queue_binds_its_children():
    queues = (queue("org", limit={GPU: "3"}), queue("a", parent="org"), queue("b", parent="org"))
    snapshot = cluster(
        nodes(8, gpu=1), gang("one", 2, queue="a", age=10), gang("two", 2, queue="b"), queues=queues
    )
    decision = schedule(snapshot)
    assert len(decision.assignments) == 2
    (refusal,) = decision.refusals
    assert refusal.reason == "QueueLimit"
    assert "org" in refusal.message


def test_running_pods_count_against_their_queues_limit():
    queues = (queue("a", limit={GPU: "3"}),)
    running = Snapshot(
        pods=tuple(pod(f"r-{at}", group="run", on=f"n{at}", gpu=1) for at in range(2)),
        pod_groups=(group("run", 2, queue="a"),),
    )
    decision = schedule(cluster(nodes(8, gpu=1), running, gang("more", 2, queue="a"), queues=queues))
    assert reasons(decision) == {"team/more": "QueueLimit"}


def test_queue_runs_no_more_pod_groups_than_it_may():
    queues = (queue("a", maxRunningPodGroups=1),)
    snapshot = cluster(nodes(8, gpu=1), gang("one", 1, queue="a"), gang("two", 2, queue="a"), queues=queues)
    decision = schedule(snapshot)
    assert len({name.split("-")[0] for name in placed(decision)}) == 1
    assert list(reasons(decision).values()) == ["QueueLimit"]


def test_partially_bound_gang_is_completed_first():
    half = Snapshot(
        pods=(pod("h-0", group="half", on="n0", gpu=1), pod("h-1", group="half", gpu=1)),
        pod_groups=(group("half", 2),),
    )
    decision = schedule(cluster(nodes(2, gpu=1), half))
    assert placed(decision) == {"h-1": "n1"}


def test_head_reserves_its_start_and_short_gangs_run_before_it():
    running = Snapshot(
        pods=tuple(pod(f"r-{at}", group="run", on=f"n{at}", gpu=1) for at in range(2)),
        pod_groups=(group("run", 2, expectedRuntimeSeconds=100),),
    )
    started = tuple(_started(one) for one in running.pods)
    snapshot = cluster(
        nodes(3, gpu=1),
        Snapshot(pods=started, pod_groups=running.pod_groups),
        gang("head", 3, age=50, expectedRuntimeSeconds=100),
        gang("long", 1, age=40, expectedRuntimeSeconds=1000),
        gang("short", 1, age=30, expectedRuntimeSeconds=50),
    )
    easy = profile(selection="ordered", policy={"name": "fcfs"}, backfill="easy")
    decision = schedule(snapshot, easy)
    assert set(placed(decision)) == {"short-0"}
    assert [(one.pod_group, one.start) for one in decision.reservations] == [
        ("team/head", "2023-11-14T22:15:00Z")
    ]


def _started(one):
    return msgspec.structs.replace(
        one, status=msgspec.structs.replace(one.status, start_time="2023-11-14T22:13:20Z")
    )


def test_blocking_head_keeps_every_gang_behind_it_pending():
    snapshot = cluster(nodes(2, gpu=1), gang("run", 1, age=99), gang("head", 2, age=50), gang("late", 1))
    fifo = profile(selection="ordered", policy={"name": "fcfs"}, blocking=True)
    decision = schedule(snapshot, fifo)
    assert set(placed(decision)) == {"run-0"}
    assert reasons(decision)["team/late"] == "OutOfTurn"


def test_gang_larger_than_the_cluster_blocks_no_gang():
    snapshot = cluster(nodes(2, gpu=1), gang("giant", 9, age=50), gang("late", 1))
    fifo = profile(selection="ordered", policy={"name": "fcfs"}, blocking=True)
    assert set(placed(schedule(snapshot, fifo))) == {"late-0"}


def test_session_places_the_gangs_of_every_window():
    snapshot = cluster(nodes(4, gpu=8), alone(30, gpu=1))
    decision = schedule(snapshot, profile(sessionWindow=7))
    assert len(decision.assignments) == 30

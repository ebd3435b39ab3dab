"""Ordered selection: blocking heads, backfill, and gangs that the policy holds back."""

from dataclasses import replace

import msgspec
import pytest

from batchsched.api.core.pod import Pod, PodStatus
from batchsched.api.snapshot import Snapshot
from batchsched.framework.status import Code, PermitAnswer, Status
from batchsched.ports.cluster import ClusterChanges
from batchsched.session.session import Session
from tests.session.clusters import leaving, on
from tests.session.scenario import (
    NOW,
    cluster,
    gang,
    group,
    nodes,
    placed,
    pod,
    profile,
    queue,
    reasons,
    schedule,
)
from tests.session.test_permit import Recorder, decide_with


def ordered(policy: str = "fcfs", **more):
    args = more.pop("args", {})
    return profile(selection="ordered", policy={"name": policy, "args": args}, **more)


def names(decision) -> set[str]:
    return {name.split("-")[0] for name in placed(decision)}


def running(count: int, seconds: int | None) -> Snapshot:
    pods = tuple(on(pod(f"r-{at}", group="run", gpu=1), f"n{at}") for at in range(count))
    return Snapshot(pods=pods, pod_groups=(group("run", count, expectedRuntimeSeconds=seconds),))


def daemon_pod(node_name: str, scheduler_name: str = "default-scheduler") -> Pod:
    """A pod with 100 millicores that runs permanently, as those of DaemonSets."""
    daemon = on(pod(f"proxy-{node_name}", cpu="100m"), node_name)
    return msgspec.structs.replace(
        daemon, spec=msgspec.structs.replace(daemon.spec, scheduler_name=scheduler_name)
    )


def test_without_blocking_gangs_behind_the_head_start():
    snapshot = cluster(nodes(2, gpu=1), running(1, None), gang("head", 2, age=9), gang("late", 1))
    decision = schedule(snapshot, ordered())
    assert names(decision) == {"late"}
    assert reasons(decision) == {"team/head": "InsufficientResources"}


def test_head_refused_for_a_queue_limit_blocks_no_gang():
    snapshot = cluster(
        nodes(2, gpu=1),
        gang("head", 2, age=9, queue="a"),
        gang("late", 1),
        queues=(queue("a", maxRunningPodGroups=0),),
    )
    decision = schedule(snapshot, ordered(blocking=True))
    assert names(decision) == {"late"}
    assert reasons(decision) == {"team/head": "QueueLimit"}


def test_head_above_its_queue_limit_blocks_once_it_only_lacks_room():
    queues = (queue("a", limit={"nvidia.com/gpu": "2"}),)
    using = Snapshot(
        pods=(on(pod("use-0", group="use", gpu=1), "n0"),), pod_groups=(group("use", 1, queue="a"),)
    )
    snapshot = cluster(
        nodes(2, gpu=1), using, gang("head", 2, age=9, queue="a"), gang("late", 1), queues=queues
    )
    session = Session(snapshot, ordered(blocking=True))
    decision = session.decide(NOW, 0)
    assert names(decision) == {"late"}
    assert reasons(decision) == {"team/head": "QueueLimit"}
    present = running(1, None)
    session.apply_changes(
        ClusterChanges(
            pod_groups=present.pod_groups,
            removed_pods=using.pods,
            added_pods=present.pods,
            removed_pod_groups=("team/use",),
        )
    )
    decision = session.decide(NOW, 0)
    assert reasons(decision) == {"team/head": "InsufficientResources", "team/late": "OutOfTurn"}


def test_head_without_a_known_start_reserves_nothing_and_blocks_no_gang():
    snapshot = cluster(nodes(2, gpu=1), running(1, None), gang("head", 2, age=9), gang("late", 1))
    decision = schedule(snapshot, ordered(backfill="easy"))
    assert names(decision) == {"late"}
    assert decision.reservations == ()


def test_order_of_the_policy_applies_whatever_the_weight():
    snapshot = cluster(
        nodes(4, gpu=1),
        gang("long", 4, expectedRuntimeSeconds=500),
        gang("short", 1, expectedRuntimeSeconds=5),
    )
    assert names(schedule(snapshot, ordered("sjf"))) == {"short"}


def test_long_gang_is_held_back_until_it_leaves_headroom():
    args = {"share": 0.5, "longSeconds": 60}
    long = gang("long", 3, expectedRuntimeSeconds=1000)
    busy = cluster(nodes(5, gpu=1), running(1, None), long)
    decision = schedule(busy, ordered("headroom", args=args))
    assert reasons(decision) == {"team/long": "OutOfTurn"}
    assert "the policy holds it back" in decision.refusals[0].message
    soon = cluster(nodes(5, gpu=1), running(1, 100), long)
    assert names(schedule(soon, ordered("headroom", args=args | {"share": 0.4}))) == {"long"}
    single = cluster(nodes(2, gpu=1), running(1, None), gang("long", 1, expectedRuntimeSeconds=1000))
    assert reasons(schedule(single, ordered("headroom", args=args))) == {"team/long": "OutOfTurn"}
    idle = cluster(nodes(5, gpu=1), long)
    assert names(schedule(idle, ordered("headroom", args=args))) == {"long"}


@pytest.mark.parametrize("scheduler_name, started", [("default-scheduler", {"long"}), ("batchsched", set())])
@pytest.mark.parametrize("policy", ["headroom", "auto"])
def test_any_gang_starts_if_only_pods_of_other_schedulers_run(policy: str, scheduler_name: str, started):
    daemons = tuple(daemon_pod(f"n{at}", scheduler_name) for at in range(2))
    snapshot = cluster(nodes(2, gpu=8), gang("long", 16, expectedRuntimeSeconds=7200), pods=daemons)
    assert names(schedule(snapshot, ordered(policy, backfill="easy"))) == started


def test_idle_cluster_lets_only_the_first_gang_leave_no_headroom():
    first, second = (
        gang(name, 4, age=age, expectedRuntimeSeconds=7200) for name, age in (("a", 9), ("b", 1))
    )
    snapshot = cluster(nodes(2, gpu=4), first, second, pods=(daemon_pod("n0"),))
    decision = schedule(snapshot, ordered("headroom"))
    assert names(decision) == {"a"}
    assert reasons(decision) == {"team/b": "OutOfTurn"}


def test_gang_behind_pods_that_never_leave_blocks_no_gang():
    whole, late = gang("whole", 1, age=9, requests={"cpu": 8}), gang("late", 1, requests={"cpu": 1})
    snapshot = cluster(nodes(1, cpu=8), whole, late, pods=(daemon_pod("n0"),))
    assert names(schedule(snapshot, ordered(blocking=True))) == {"late"}
    leaves = cluster(nodes(1, cpu=8), whole, late, pods=(leaving(daemon_pod("n0")),))
    assert names(schedule(leaves, ordered(blocking=True))) == set()


def test_session_that_follows_the_cluster_sees_when_pods_that_never_leave_have_left():
    whole, late = gang("whole", 1, age=9, requests={"cpu": 8}), gang("late", 1, requests={"cpu": 1})
    busy = on(pod("busy", cpu=1), "n0")
    snapshot = cluster(nodes(1, cpu=8), whole, late, pods=(daemon_pod("n0"), busy))
    session = Session(snapshot, ordered(blocking=True))
    assert names(session.decide(NOW, 0)) == {"late"}
    session.apply_changes(ClusterChanges(removed_pods=(daemon_pod("n0"),)))
    assert names(session.decide(NOW, 0)) == set()


def test_gang_held_back_by_the_policy_is_not_a_head_and_shorter_gangs_start():
    snapshot = cluster(
        nodes(5, gpu=1),
        running(1, None),
        gang("long", 4, age=9, expectedRuntimeSeconds=1000),
        gang("short", 1, expectedRuntimeSeconds=10),
    )
    decision = schedule(
        snapshot, ordered("headroom", args={"share": 0.5, "longSeconds": 60}, backfill="easy")
    )
    assert names(decision) == {"short"}
    assert decision.reservations == ()


def test_gangs_outside_the_window_are_refused_with_that_reason():
    snapshot = cluster(nodes(4, gpu=1), *(gang(f"g{at}", 1, age=9 - at) for at in range(4)))
    decision = schedule(snapshot, ordered(sessionWindow=2))
    assert names(decision) == {"g0", "g1"}
    assert set(reasons(decision).values()) == {"OutsideWindow"}


def test_gang_that_permit_refuses_does_not_block():
    no = PermitAnswer(Status(Code.UNSCHEDULABLE, ("no licence",)))
    recorder = Recorder(lambda name: no if name == "head-0" else PermitAnswer())
    snapshot = cluster(nodes(2, gpu=1), gang("head", 2, age=9), gang("late", 2))
    decision, _ = decide_with(recorder, snapshot, selection="ordered", policy={"name": "fcfs"}, blocking=True)
    assert names(decision) == {"late"}
    assert reasons(decision) == {"team/head": "PermitRejected"}


def test_resting_gangs_do_not_count_in_the_window():
    too_large = [gang(f"large{at}", 5, age=9 - at) for at in range(3)]
    snapshot = cluster(nodes(4, gpu=1), *too_large, gang("late", 1))
    settings = ordered(blocking=True, sessionWindow=1)
    assert names(schedule(snapshot, settings)) == set()
    resting = replace(snapshot, resting=tuple(f"team/large{at}" for at in range(3)))
    decision = schedule(resting, settings)
    assert names(decision) == {"late"}
    assert reasons(decision) == {}


@pytest.mark.parametrize("nominated_node_name, started", [("n0", {"late"}), ("", set())])
def test_resting_gang_blocks_no_gang_if_its_room_is_kept(nominated_node_name: str, started: set[str]):
    head = gang("head", 1, age=9)
    status = PodStatus(nominated_node_name=nominated_node_name)
    kept = replace(head, pods=(msgspec.structs.replace(head.pods[0], status=status),))
    snapshot = cluster(nodes(2, gpu=1), running(1, None), kept, gang("late", 1), resting=("team/head",))
    assert names(schedule(snapshot, ordered(blocking=True))) == started


def test_missing_queue_is_reported_in_ordered_selection_too():
    decision = schedule(cluster(nodes(1, gpu=1), gang("lost", 1, queue="nowhere")), ordered())
    assert reasons(decision) == {"team/lost": "QueueNotFound"}


@pytest.mark.parametrize("settings", [ordered(), profile(solver={"enabled": False})])
def test_a_session_without_the_solver_reports_no_expired_guard(settings):
    decision = schedule(cluster(nodes(2, gpu=1), gang("bert", 2)), settings)
    assert not decision.solver.guard


def test_full_decision_has_a_refusal_for_every_gang_behind_the_head():
    late = [gang(f"late{number}", 2, age=5 - number) for number in range(3)]
    snapshot = cluster(nodes(2, gpu=1), running(1, 300), gang("head", 2, age=9), *late)
    settings = ordered(backfill="easy", plugins={"disabled": ["DefaultPreemption"]})
    decision = schedule(snapshot, settings)
    assert [one.pod_group for one in decision.reservations] == ["team/head"]
    behind = {f"team/late{number}": "OutOfTurn" for number in range(3)}
    assert reasons(decision) == {"team/head": "InsufficientResources"} | behind

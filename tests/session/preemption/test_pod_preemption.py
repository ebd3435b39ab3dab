"""Preemption without the solver: nominations, victims, and properties over random clusters."""

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typing_extensions import override

from batchsched.api.core.cluster_objects import PriorityClass
from batchsched.api.core.metadata import ObjectMeta, format_timestamp
from batchsched.api.core.pod import Pod, PodStatus
from batchsched.api.decision import Decision, to_json
from batchsched.api.snapshot import HeldGang, HeldGangPod, Snapshot
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import SUCCESS, Code, PermitAnswer, Status
from batchsched.session.session import Session
from tests.session.audit import overcommitted
from tests.session.preemption.running import budget, kept, lone
from tests.session.scenario import (
    NOW,
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
from tests.session.test_permit import Recorder, decide_with, wait

ALONE = profile(solver={"enabled": False})
FULL: dict[str, Any] = {"gpu": 1}


def with_status(one: Pod, **status: Any) -> Pod:
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, **status))


def nominated(name: str, where: str, priority: int = 10, **more: Any) -> Pod:
    return with_status(pod(name, priority=priority, **more), nominated_node_name=where)


def leaving(one: Pod) -> Pod:
    """The pod as it is while it makes room for another."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    status = msgspec.convert({"conditions": [condition]}, PodStatus)
    metadata = msgspec.structs.replace(one.metadata, deletion_timestamp=format_timestamp(NOW))
    return msgspec.structs.replace(one, metadata=metadata, status=status)


def holding(*pods: Pod, **more: Any) -> Snapshot:
    """Two nodes of one device each, and pods."""
    return cluster(more.pop("some", nodes(2, gpu=1)), pods=pods, **more)


def evicted(decision: Decision) -> dict[str, str]:
    return {one.pod: one.for_ for one in decision.evictions}


def test_a_pod_that_fits_on_no_node_is_nominated_and_its_victims_are_evicted():
    decision = schedule(
        holding(lone("a", "n0", 5, **FULL), lone("b", "n1", 1, **FULL), pod("high", priority=10, **FULL)),
        ALONE,
    )
    assert placed(decision) == {}
    (one,) = decision.evictions
    assert (one.namespace, one.pod, one.pod_group, one.for_, one.reason) == (
        "team",
        "b",
        "b",
        "team/high",
        "Preempted",
    )
    assert kept(decision) == {"high": "n1"}
    (refusal,) = decision.refusals
    assert refusal.message == (
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. "
        "preemption: found a potential placement for pod on node n1, preempting 1 victims"
    )


def test_refusal_of_1_36_does_not_name_the_nominated_node():
    cluster = holding(
        lone("a", "n0", 5, **FULL), lone("b", "n1", 1, **FULL), pod("high", priority=10, **FULL)
    )
    decision = schedule(cluster, profile(solver={"enabled": False}, kubernetesVersion="1.36"))
    assert kept(decision) == {"high": "n1"}
    assert [one.message for one in decision.refusals] == [
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    ]


def test_refusal_has_the_message_of_kube_scheduler_if_preemption_is_not_helpful():
    cluster = holding(lone("a", "n0", 10, **FULL), pod("equal", priority=10, gpu=2))
    decision = schedule(cluster, ALONE)
    assert (decision.evictions, decision.nominations) == ((), ())
    message = (
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    assert decision.refusals[0].message == message
    of_1_36 = schedule(cluster, profile(solver={"enabled": False}, kubernetesVersion="1.36"))
    assert of_1_36.refusals[0].message == message.replace(
        "preemption:", "no new claims to deallocate, preemption:"
    )


def test_a_pod_that_fits_evicts_no_pod():
    decision = schedule(holding(lone("a", "n0", 0, **FULL), pod("high", priority=10, **FULL)), ALONE)
    assert placed(decision) == {"high": "n1"}
    assert (decision.evictions, decision.nominations) == ((), ())


def test_a_pod_with_a_missing_claim_is_refused_without_evictions():
    volume = {
        "volumes": msgspec.convert([{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}], Any)
    }
    spec = msgspec.convert({"containers": [], **volume}, type(pod("x").spec))
    wish = pod("high", priority=10)
    wish = msgspec.structs.replace(wish, spec=msgspec.structs.replace(wish.spec, volumes=spec.volumes))
    decision = schedule(holding(lone("a", "n0", 0, **FULL), wish), ALONE)
    assert reasons(decision) == {"team/high": "NoFeasibleNode"}
    assert decision.refusals[0].message.endswith('persistentvolumeclaim "gone" not found. not found')
    assert decision.evictions == ()


def test_preemptors_of_one_session_share_cleared_room_without_overlap():
    there = [lone("a", "n0", 0, gpu=4), lone("b", "n1", 5, gpu=4)]
    wishes = [pod(f"w{at}", priority=10, age=9 - at, gpu=2) for at in range(3)]
    decision = schedule(holding(*there, *wishes, some=nodes(2, gpu=4)), ALONE)
    assert kept(decision) == {"w0": "n0", "w1": "n0", "w2": "n1"}
    assert evicted(decision) == {"a": "team/w0", "b": "team/w2"}


@pytest.mark.parametrize("priority, where", [(11, {"late": "n0"}), (10, {}), (9, {})])
def test_a_nominated_pod_keeps_its_room_from_pods_of_equal_or_lower_priority(priority, where):
    """The nominated pod cannot start yet: its victim still occupies the other device."""
    some = [node("n0", gpu=2)]
    first = nominated("first", "n0", 10, age=100, gpu=2)
    decision = schedule(
        holding(leaving(lone("x", "n0", 0, gpu=1)), first, pod("late", priority=priority, gpu=1), some=some),
        ALONE,
    )
    assert placed(decision) == where


def test_a_pod_goes_to_its_nominated_node_first():
    assert placed(schedule(holding(pod("free", gpu=1)), ALONE)) == {"free": "n0"}
    assert placed(schedule(holding(nominated("mine", "n1", gpu=1)), ALONE)) == {"mine": "n1"}


def test_nominations_of_lower_priority_on_the_node_are_cleared():
    some = [node("n0", gpu=2)]
    pods = (lone("x", "n0", 0, gpu=2), nominated("lower", "n0", 5, gpu=2), pod("high", priority=10, gpu=2))
    decision = schedule(holding(*pods, some=some), ALONE)
    assert kept(decision) == {"high": "n0"}
    assert evicted(decision) == {"x": "team/high"}


def test_a_pod_waits_for_its_victims_and_does_not_preempt_again():
    pods = (
        leaving(lone("x", "n0", 0, **FULL)),
        lone("y", "n1", 0, **FULL),
        nominated("high", "n0", **FULL),
    )
    decision = schedule(holding(*pods), ALONE)
    assert decision.evictions == ()
    assert kept(decision) == {"high": "n0"}
    assert decision.refusals[0].message.endswith(
        "preemption: not eligible due to a terminating pod on the nominated node."
    )


def test_a_nomination_that_no_longer_helps_is_cleared():
    decision = schedule(holding(lone("x", "n0", 10, **FULL), nominated("mine", "n0", gpu=2)), ALONE)
    assert decision.nominations == ()


def test_a_nominated_pod_refused_at_reserve_keeps_no_room_from_others():
    class Licences(Recorder):
        @override
        def reserve(self, pod, node, nodes, state):
            return Status(Code.UNSCHEDULABLE, ("no licence",)) if pod.name == "mine" else SUCCESS

    pods = (nominated("mine", "n0", 10, **FULL), pod("lower", priority=5, **FULL))
    snapshot = holding(*pods, some=nodes(1, gpu=1))
    decision, _ = decide_with(Licences(), snapshot, solver={"enabled": False})
    assert placed(decision) == {"lower": "n0"}
    assert decision.nominations == ()


@pytest.mark.parametrize("stated", ["pod", "class"])
def test_a_pod_with_preemption_policy_never_evicts_no_pod(stated):
    spec = {"preemption_policy": "Never"} if stated == "pod" else {"priority_class_name": "polite"}
    polite = PriorityClass(metadata=ObjectMeta(name="polite"), value=10, preemption_policy="Never")
    wish = pod("high", priority=10 if stated == "pod" else None, spec=spec, gpu=1)
    pods = (lone("x", "n0", 0, **FULL), lone("y", "n1", 0, **FULL), wish)
    decision = schedule(holding(*pods, priority_classes=(polite,)), ALONE)
    assert (decision.evictions, decision.nominations) == ((), ())
    assert "preemption: not eligible due to preemptionPolicy=Never." in decision.refusals[0].message


def test_a_gang_with_preemption_policy_never_evicts_no_pod():
    wish = gang("g", 1, priorityClassName="high", preemptionPolicy="Never")
    snapshot = cluster(
        nodes(1, gpu=1),
        wish,
        pods=(lone("x", "n0", 0, **FULL),),
        priority_classes=(priority_class("high", 9),),
    )
    assert schedule(snapshot, ALONE).evictions == ()


def test_budgets_are_respected_if_possible_and_count_evictions_of_the_session():
    there = [lone(f"a{at}", f"n{at}", 0, labels={"app": "db"}, gpu=1) for at in range(2)]
    there.append(lone("free", "n2", 1, gpu=1))
    wishes = [pod(f"w{at}", priority=10, age=9 - at, gpu=1) for at in range(2)]
    for allowed, expected in ((0, {"free", "a0"}), (1, {"a0", "free"}), (2, {"a0", "a1"})):
        snapshot = holding(
            *there, *wishes, some=nodes(3, gpu=1), pod_disruption_budgets=(budget(allowed, app="db"),)
        )
        decision = schedule(snapshot, ALONE)
        assert {name[0] for name in evicted(decision)} == {name[0] for name in expected}, allowed
        assert len(decision.evictions) == 2


def test_disruption_mode_decides_how_many_pods_of_a_gang_are_evicted():
    pods = [lone(f"g{at}", f"n{at}", 0, group="g", gpu=1) for at in range(2)]
    wish = pod("high", priority=10, gpu=1)
    for mode, least, gone in (("Gang", 1, 2), ("Elastic", 1, 1), ("Elastic", 2, 2)):
        groups = (group("g", least, disruptionMode=mode),)
        decision = schedule(replace(holding(*pods, wish), pod_groups=groups), ALONE)
        assert len(decision.evictions) == gone, (mode, least)
        assert {one.pod_group for one in decision.evictions} == {"g"}


@pytest.mark.parametrize(
    "spec, gone",
    [({}, 1), ({"preemptible": False}, 0), ({"minRuntimeSeconds": 7200}, 0), ({"minRuntimeSeconds": 60}, 1)],
)
def test_gang_not_preemptible_or_below_its_minimum_runtime_is_not_evicted(spec, gone):
    pods = (lone("g0", "n0", 0, group="g", gpu=1), pod("high", priority=10, gpu=1))
    snapshot = replace(holding(*pods, some=nodes(1, gpu=1)), pod_groups=(group("g", 1, **spec),))
    assert len(schedule(snapshot, ALONE).evictions) == gone


def test_priority_of_a_member_is_that_of_its_gang():
    classes = (priority_class("low", 5),)
    pods = (lone("g0", "n0", 100, group="g", gpu=1), pod("wish", priority=10, gpu=1))
    for name, gone in (("", 0), ("low", 1)):
        groups = (group("g", 1, priorityClassName=name),)
        snapshot = replace(holding(*pods, some=nodes(1, gpu=1)), pod_groups=groups, priority_classes=classes)
        assert len(schedule(snapshot, ALONE).evictions) == gone


def test_a_gang_that_lacks_more_than_one_pod_evicts_no_pod():
    there = [lone(f"x{at}", f"n{at}", 0, **FULL) for at in range(2)]
    wish = gang("g", 2, priorityClassName="high")
    snapshot = cluster(nodes(2, gpu=1), wish, pods=there, priority_classes=(priority_class("high", 9),))
    assert schedule(snapshot, ALONE).evictions == ()


def test_the_last_member_of_a_gang_preempts():
    there = [lone("x", "n1", 0, **FULL), lone("g0", "n0", 0, group="g", gpu=1)]
    pods = (*there, pod("g1", group="g", priority=9, gpu=1))
    snapshot = replace(holding(*pods), pod_groups=(group("g", 2),))
    decision = schedule(snapshot, ALONE)
    assert evicted(decision) == {"x": "team/g"}
    assert kept(decision) == {"g1": "n1"}


def test_victims_are_in_the_required_domain_of_the_gang_only():
    some = [node("n0", {"rack": "a"}, gpu=1), node("n1", {"rack": "b"}, gpu=2)]
    there = [
        lone("g0", "n1", 9, group="g", gpu=1),
        lone("x", "n0", 0, gpu=1),
        lone("y", "n1", 1, gpu=1),
    ]
    snapshot = replace(
        holding(*there, pod("g1", group="g", priority=9, gpu=1), some=some, topologies=(topology("rack"),)),
        pod_groups=(group("g", 2, topology={"required": "rack"}),),
    )
    assert evicted(schedule(snapshot, ALONE)) == {"y": "team/g"}


def test_limits_of_queues_apply_to_preemptors():
    there = [lone(f"x{at}", f"n{at}", 0, **FULL) for at in range(2)]
    label = {"scheduling.batchsched.dev/queue": "small"}
    wishes = [pod(f"w{at}", priority=10, age=9 - at, labels=label, gpu=1) for at in range(2)]
    queues = (queue("small", limit={"nvidia.com/gpu": "1"}),)
    decision = schedule(holding(*there, *wishes, queues=queues), ALONE)
    assert kept(decision).keys() == {"w0"}
    assert reasons(decision)["team/w1"] == "QueueLimit"


def test_a_victim_that_waits_at_permit_is_rejected_and_not_evicted():
    class Holding(Recorder):
        @override
        def permit(self, pod, node, nodes, state):
            return wait("") if pod.name == "low" else PermitAnswer()

    held = HeldGang("team/low", "Recorder", NOW + 60, (HeldGangPod("team/low", "n0"),))
    low = pod("low", priority=0, gpu=1)
    snapshot = holding(low, pod("high", priority=10, gpu=1), some=nodes(1, gpu=1), held=(held,))
    chosen = profile(plugins={"disabled": ["PrioritySort"]}, solver={"enabled": False})
    usual = standard_registry().create_pipeline(chosen)
    sessions = Session(snapshot, chosen, Pipeline((Holding(), *usual.plugins), usual.weights))
    decision = sessions.decide(NOW, 0)
    assert (decision.evictions, decision.waiting) == ((), ())
    assert kept(decision) == {"high": "n0"}
    assert reasons(decision) == {"team/low": "PermitRejected", "team/high": "NoFeasibleNode"}
    assert decision.refusals[1].message == "plugin DefaultPreemption: preempted; the gang was rolled back"
    assert not sessions.tables.node_table.requested.any()


# Random clusters of resources and priorities


def random_snapshot(seed: int) -> Snapshot:
    """A full cluster of pods alone, of all priorities, and pods that wait; some are nominated."""
    rng = random.Random(seed)
    some = [
        node(f"n{at}", cpu=rng.choice([2, 4]), gpu=rng.choice([0, 1, 2])) for at in range(rng.randint(1, 4))
    ]
    pods: list[Pod] = []
    for at in range(rng.randint(0, 8)):
        labels = {"app": rng.choice(["a", "b"])}
        shape: dict[str, Any] = {"cpu": rng.choice([1, 2]), "gpu": rng.choice([0, 0, 1])}
        where = rng.choice(some).name
        one = lone(f"r{at}", where, rng.randint(0, 3), rng.randint(0, 3), labels=labels, **shape)
        if not overcommitted(cluster(some, pods=(*pods, one)), {}):
            pods.append(leaving(one) if rng.random() < 0.1 else one)
    for at in range(rng.randint(1, 4)):
        wish: dict[str, Any] = {"cpu": rng.choice([1, 2, 3]), "gpu": rng.choice([0, 0, 1, 2])}
        one = pod(f"w{at}", priority=rng.randint(0, 4), age=rng.choice([0, 0, 5]), **wish)
        pods.append(
            with_status(one, nominated_node_name=rng.choice(some).name) if rng.random() < 0.2 else one
        )
    budgets = tuple(
        msgspec.structs.replace(
            budget(rng.randint(0, 2), app=app), metadata=ObjectMeta(name=app, namespace="team")
        )
        for app in ("a", "b")
        if rng.random() < 0.4
    )
    return cluster(some, pods=pods, pod_disruption_budgets=budgets)


snapshots = st.integers(0, 2**32 - 1).map(random_snapshot)


def after(snapshot: Snapshot, decision: Decision) -> Snapshot:
    """The cluster once the decision is carried out and the victims are gone."""
    gone = {one.pod_key for one in decision.evictions}
    there = {one.pod_key: one.node for one in decision.nominations}
    pods = tuple(
        with_status(one, nominated_node_name=there.get(one.key, "")) if not one.node_name else one
        for one in bound(snapshot, decision).pods
        if one.key not in gone
    )
    return replace(snapshot, pods=pods)


def taken_by_higher_priority(
    snapshot: Snapshot, decision: Decision, preemptor: str, later: dict[str, str]
) -> bool:
    """Whether a pod of higher priority, not nominated to the preemptor's node, takes this node later.

    This happens when that pod fits only once pods are gone that it may not preempt itself: pods that already
    terminate, or the victims of another preemptor. Nominations are counted only against pods of at most their priority.
    Source: PodEligibleToPreemptOthers and addNominatedPods of kube-scheduler.
    """
    priority = {each.name: each.spec.priority or 0 for each in snapshot.pods}
    nominated = kept(decision)
    node = nominated[preemptor]
    return any(
        place == node and nominated.get(name) != node and priority[name] > priority[preemptor]
        for name, place in later.items()
    )


@example(snapshot=random_snapshot(1241546))
@example(snapshot=random_snapshot(2855))
@example(snapshot=random_snapshot(1244003))
@given(snapshot=snapshots)
def test_a_preemptor_is_placed_on_its_node_once_its_victims_have_left(snapshot: Snapshot):
    decision = schedule(snapshot, ALONE)
    evicting = {one.for_.partition("/")[2] for one in decision.evictions}
    assert evicting <= kept(decision).keys()
    later = after(snapshot, decision)
    # Pods that were leaving already are gone by then.
    later = replace(later, pods=tuple(one for one in later.pods if not one.terminating))
    again = schedule(later, ALONE)
    places = kept(again) | placed(again)
    for name in evicting:
        on_its_node = placed(again).get(name) == kept(decision)[name]
        assert on_its_node or taken_by_higher_priority(snapshot, decision, name, places)
    assert overcommitted(later, {f"team/{name}": where for name, where in placed(again).items()}) == []


@given(snapshot=snapshots)
def test_victims_are_of_lower_priority_and_no_pod_is_lost(snapshot: Snapshot):
    decision = schedule(snapshot, ALONE)
    priority = {one.name: one.spec.priority or 0 for one in snapshot.pods}
    there = {one.name for one in snapshot.pods if one.node_name}
    for one in decision.evictions:
        assert priority[one.pod] < priority[one.for_.partition("/")[2]]
        assert one.pod in there
    waiting = {one.name for one in snapshot.pods if not one.node_name}
    refused = {key.partition("/")[2] for key in reasons(decision)}
    assert placed(decision).keys() | refused == waiting
    assert not placed(decision).keys() & refused
    assert kept(decision).keys() <= refused
    assert len(evicted(decision)) == len(decision.evictions)


@given(snapshot=snapshots)
def test_the_same_cluster_gets_the_same_bytes(snapshot: Snapshot):
    decision = to_json(schedule(snapshot, ALONE))
    assert to_json(schedule(snapshot, ALONE)) == decision


@given(snapshot=snapshots)
def test_budgets_are_violated_only_if_no_node_can_be_cleared_otherwise(snapshot: Snapshot):
    decision = schedule(snapshot, ALONE)
    if len({one.for_ for one in decision.evictions}) != 1:
        return  # with several, each was right when its turn came
    wish = decision.evictions[0].for_
    allowed = {one.metadata.name: one.status.disruptions_allowed for one in snapshot.pod_disruption_budgets}
    gone = [one for one in snapshot.pods if one.name in evicted(decision)]
    violated = [app for app in allowed if sum(one.labels.get("app") == app for one in gone) > allowed[app]]
    kept = tuple(_important(one) if one.labels.get("app") in violated else one for one in snapshot.pods)
    if violated:
        again = schedule(replace(snapshot, pods=kept), ALONE)
        assert wish not in {one.for_ for one in again.evictions}


def _important(one: Pod) -> Pod:
    spec = msgspec.structs.replace(one.spec, priority=9) if one.node_name else one.spec
    return msgspec.structs.replace(one, spec=spec)


def test_a_pod_without_a_nomination_does_not_wait_for_pods_that_leave_the_last_node():
    pods = (
        lone("low", "n0", 0, **FULL),
        leaving(lone("gone", "n1", 0, **FULL)),
        pod("high", priority=10, gpu=1),
    )
    decision = schedule(holding(*pods), ALONE)
    assert "not eligible" not in decision.refusals[0].message
    assert kept(decision).keys() == {"high"}

"""Gangs that are refused before any node is evaluated."""

import msgspec
from typing_extensions import override

from batchsched.api.core.pod import PodSchedulingGate
from batchsched.api.decision import SetAside
from batchsched.api.snapshot import Snapshot
from batchsched.session.gangs.gang_eligibility import GangEligibilityCheck
from tests.session.clusters import leaving, on
from tests.session.scenario import alone, cluster, gang, group, nodes, placed, pod, priority_class, reasons
from tests.session.scenario import schedule as decided
from tests.session.scenes import inside
from tests.session.test_permit import Recorder, decide_with

GATED = {"scheduling_gates": (PodSchedulingGate(name="later"),)}


def aside(kind: str) -> SetAside:
    return SetAside(file="x.yaml", object=kind, field="spec", message="broken")


def test_refusal_of_a_reference_to_a_set_aside_object_says_so():
    lost = Snapshot(pods=(pod("a", group="ghost", gpu=1),))
    queued = gang("queued", 1, queue="broken")
    snapshot = cluster(
        nodes(1, gpu=4), lost, queued, set_aside=(aside("PodGroup team/ghost"), aside("Queue broken"))
    )
    found = {one.pod_group: one for one in decided(snapshot).refusals}
    assert "exists (it was set aside); correct it, or " in found["team/ghost"].message
    assert "exists (it was set aside); correct it, or " in found["team/queued"].message


def test_eligibility_caches_the_answer_for_a_gang_and_a_new_object_does_not_reuse_it():
    snapshot = cluster(nodes(1, gpu=4), Snapshot(pods=(pod("a", group="ghost", gpu=1),)))
    scene = inside(snapshot)
    tables, levels = scene.sessions.tables, scene.inputs.levels
    lost = tables.gangs["team/ghost"]
    first = GangEligibilityCheck(tables, levels)
    answers = [first.eligible_gang_or_refusal(lost), first.eligible_gang_or_refusal(lost)]
    tables.names_of_set_aside_objects = frozenset({"PodGroup team/ghost"})
    answers.append(GangEligibilityCheck(tables, levels).eligible_gang_or_refusal(lost))
    assert answers[0] is answers[1]
    assert ["it was set aside" in str(answer) for answer in answers] == [False, False, True]


def test_gated_surplus_is_omitted_and_the_minimum_is_placed():
    members = (pod("a", group="g", gpu=1), pod("b", group="g", gpu=1, spec=GATED))
    snapshot = cluster(nodes(2, gpu=1), Snapshot(pods=members, pod_groups=(group("g", 1),)))
    assert set(placed(decided(snapshot))) == {"a"}


def test_gang_with_a_gated_member_that_it_needs_waits_for_the_gate():
    members = (pod("a", group="g", gpu=1), pod("b", group="g", gpu=1, spec=GATED))
    snapshot = cluster(nodes(2, gpu=1), Snapshot(pods=members, pod_groups=(group("g", 2),)))
    decision = decided(snapshot)
    assert reasons(decision) == {"team/g": "Gated"}
    assert "later" in decision.refusals[0].message


def test_gates_are_counted_by_subgroup():
    members = (
        pod("a", group="g", sub="x", gpu=1, spec=GATED),
        pod("b", group="g", sub="y", gpu=1),
        pod("c", group="g", sub="y", gpu=1),
    )
    subs = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}]
    snapshot = cluster(nodes(3, gpu=1), Snapshot(pods=members, pod_groups=(group("g", 2, subGroups=subs),)))
    assert reasons(decided(snapshot)) == {"team/g": "Gated"}


def test_subgroup_with_too_few_pods_is_named():
    members = tuple(pod(f"p{at}", group="g", sub="y", gpu=1) for at in range(3))
    subs = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}]
    snapshot = cluster(nodes(3, gpu=1), Snapshot(pods=members, pod_groups=(group("g", 2, subGroups=subs),)))
    decision = decided(snapshot)
    assert reasons(decision) == {"team/g": "NotEnoughPods"}
    assert "0 of 1 pod that subGroup x asks for" in decision.refusals[0].message


def test_running_gang_that_lost_a_subgroup_is_short_of_pods():
    members = tuple(on(pod(f"p{at}", group="g", sub="y", gpu=1), "n0") for at in range(2))
    subs = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}]
    snapshot = cluster(nodes(1, gpu=4), Snapshot(pods=members, pod_groups=(group("g", 2, subGroups=subs),)))
    decision = decided(snapshot)
    assert reasons(decision) == {"team/g": "NotEnoughPods"}
    assert "0 of 1 pod that subGroup x asks for exists" in decision.refusals[0].message


def test_terminating_pods_are_not_pending():
    members = (pod("a", group="g", gpu=1), leaving(pod("b", group="g", gpu=1)))
    single = leaving(pod("gone", gpu=1))
    snapshot = cluster(nodes(2, gpu=1), Snapshot(pods=(*members, single), pod_groups=(group("g", 2),)))
    decision = decided(snapshot)
    assert placed(decision) == {}
    assert reasons(decision) == {"team/g": "NotEnoughPods"}
    assert "1 of the 2 pods" in decision.refusals[0].message


def test_members_are_placed_by_priority_then_age():
    young = pod("young", group="g", gpu=1)
    old = pod("old", group="g", age=100, gpu=1)
    snapshot = cluster(nodes(1, gpu=1), Snapshot(pods=(young, old), pod_groups=(group("g", 1),)))
    assert set(placed(decided(snapshot))) == {"old"}


def test_members_are_placed_in_the_order_of_the_queue_sort_plugin():
    class YoungestFirst(Recorder):
        @override
        def sort_key(self, pod, priority, created):
            return -created

    members = tuple(pod(f"p{age}", group="g", age=age, gpu=1) for age in (100, 0, 50))
    snapshot = cluster(nodes(1, gpu=1), Snapshot(pods=members, pod_groups=(group("g", 1),)))
    assert set(placed(decide_with(YoungestFirst(), snapshot)[0])) == {"p0"}


def test_gang_without_a_class_has_the_highest_priority_of_its_pods():
    urgent = msgspec.structs.replace(pod("u", gpu=1).spec, priority_class_name="high")
    single = msgspec.structs.replace(pod("u", gpu=1), spec=urgent)
    snapshot = cluster(
        nodes(1, gpu=1),
        alone(1, gpu=1),
        Snapshot(pods=(single,)),
        priority_classes=(priority_class("high", 7),),
    )
    decision = decided(snapshot)
    assert set(placed(decision)) == {"u"}
    assert [tier.priority for tier in decision.solver.tiers] == [7, 0]

"""Pod-by-pod selection without the solver: gangs are placed completely, and limits and levels hold."""

from typing import Any

import pytest
from typing_extensions import override

from batchsched.api.snapshot import Snapshot
from batchsched.framework.runtime.registry import Registry
from batchsched.framework.status import SUCCESS, Code, Status
from batchsched.session.selection.pod_by_pod import AllowedDomains
from tests.session.clusters import on
from tests.session.scenario import (
    GPU,
    alone,
    cluster,
    gang,
    group,
    node,
    nodes,
    placed,
    pod,
    profile,
    queue,
    reasons,
    schedule,
    topology,
)
from tests.session.scenes import inside
from tests.session.test_permit import Recorder, decide_with

ALONE = profile(solver={"enabled": False})
OFF: dict[str, Any] = {"solver": {"enabled": False}}
RACKS = (topology("block", "rack"),)


def test_pod_goes_to_the_node_of_the_highest_score():
    snapshot = cluster([node("small", cpu=4), node("large", cpu=64)], gang("g", 1, requests={"cpu": 2}))
    assert placed(schedule(snapshot, ALONE)) == {"g-0": "large"}


def test_gang_that_does_not_fit_leaves_its_room_to_the_next_gang():
    snapshot = cluster(nodes(2, gpu=1), gang("first", 3, age=50), gang("second", 2))
    decision = schedule(snapshot, ALONE)
    assert set(placed(decision)) == {"second-0", "second-1"}
    assert reasons(decision) == {"team/first": "NoFeasibleNode"}
    assert "0/2 nodes are available" in decision.refusals[0].message


def test_surplus_is_placed_while_nodes_have_room():
    assert len(placed(schedule(cluster(nodes(3, gpu=1), gang("g", 5, 2)), ALONE))) == 3


def test_gang_tries_other_domains_if_the_one_of_its_first_pod_is_too_small():
    racks = [
        node("lonely", {"rack": "a"}, gpu=2, cpu=64),
        node("n1", {"rack": "b"}, gpu=2, cpu=8),
        node("n2", {"rack": "b"}, gpu=2, cpu=8),
    ]
    wide = gang("wide", 2, requests={"gpu": 2, "cpu": 1}, topology={"required": "rack"})
    decision = schedule(cluster(racks, wide, topologies=RACKS), ALONE)
    assert set(placed(decision).values()) == {"n1", "n2"}


def test_gang_that_fits_in_no_domain_is_refused_for_its_level():
    racks = [node(f"n{at}", {"rack": f"r{at}"}, gpu=2) for at in range(2)]
    wide = gang("wide", 3, topology={"required": "rack"})
    assert reasons(schedule(cluster(racks, wide, topologies=RACKS), ALONE)) == {
        "team/wide": "InsufficientTopologyCapacity"
    }


def test_pending_members_are_placed_in_the_domain_of_running_ones():
    racks = [node(f"n{at}", {"rack": f"r{at}"}, gpu=2, cpu=64 - 60 * (at == 0)) for at in range(2)]
    members = (on(pod("a", group="g", gpu=1), "n0"), pod("b", group="g", gpu=1))
    half = Snapshot(pods=members, pod_groups=(group("g", 2, topology={"required": "rack"}),))
    assert placed(schedule(cluster(racks, half, topologies=RACKS), ALONE)) == {"b": "n0"}


def test_each_subgroup_is_placed_in_a_domain_of_its_own():
    racks = [node(f"n{at}", {"rack": f"r{at}"}, gpu=2) for at in range(2)]
    members = tuple(pod(f"{sub}{at}", group="g", sub=sub, gpu=1) for sub in "xy" for at in range(2))
    subs = [{"name": sub, "minMember": 2, "topology": {"required": "rack"}} for sub in "xy"]
    snapshot = cluster(
        racks, Snapshot(pods=members, pod_groups=(group("g", subGroups=subs),)), topologies=RACKS
    )
    where = placed(schedule(snapshot, ALONE))
    assert where["x0"] == where["x1"] != where["y0"] == where["y1"]


@pytest.mark.parametrize("limit", [{"limit": {GPU: "1"}}, {"maxRunningPodGroups": 0}])
def test_limit_of_an_ancestor_refuses_the_gang(limit):
    queues = (queue("org", **limit), queue("a", parent="org"))
    decision = schedule(cluster(nodes(4, gpu=1), gang("g", 2, queue="a"), queues=queues), ALONE)
    assert placed(decision) == {}
    assert reasons(decision) == {"team/g": "QueueLimit"}
    assert "queue org" in decision.refusals[0].message


def test_surplus_stops_at_the_limit_of_its_queue_including_earlier_gangs():
    snapshot = cluster(
        nodes(8, gpu=1),
        gang("first", 2, age=9, queue="a"),
        gang("second", 5, 1, queue="a"),
        queues=(queue("a", limit={GPU: "4"}),),
    )
    assert len(placed(schedule(snapshot, ALONE))) == 4


def test_fault_of_a_plugin_on_surplus_leaves_the_minimum_placed():
    class Fragile(Recorder):
        name = "Fragile"

        @override
        def reserve(self, pod, node, nodes, state):
            if pod.name == "g-2":
                raise RuntimeError("once too often")
            return SUCCESS

    decision, sessions = decide_with(Fragile(), cluster(nodes(3, gpu=1), gang("g", 3, 2)), **OFF)
    assert set(placed(decision)) == {"g-0", "g-1"}
    assert reasons(decision) == {}
    assert not sessions.tables.node_table.requested.any()


def test_refusal_at_reserve_refuses_the_gang():
    class Full(Recorder):
        name = "Full"

        @override
        def reserve(self, pod, node, nodes, state):
            return Status(Code.UNSCHEDULABLE, ("no licence",))

    decision, _ = decide_with(Full(), cluster(nodes(3, gpu=1), gang("g", 2)), **OFF)
    assert reasons(decision) == {"team/g": "PermitRejected"}


def test_without_plugins_pods_are_placed_on_any_node():
    snapshot = cluster(nodes(1, gpu=1), gang("g", 2))
    settings = profile(plugins={"disabled": ["*"]}, **OFF)
    assert len(placed(schedule(snapshot, settings))) == 2
    assert Registry((), (), {}).create_pipeline(settings).plugins == ()


def test_percentage_of_nodes_to_score_selects_the_best_of_the_sampled_nodes():
    """The best node is the last one: a search over 100 of 300 nodes includes it only for some seeds."""
    some = [*nodes(299, cpu=8), node("best", cpu=64)]
    snapshot = cluster(some, alone(4, cpu=1))
    share = profile(solver={"enabled": False}, percentageOfNodesToScore=1)
    assert set(placed(schedule(snapshot, ALONE)).values()) == {"best"}
    found = [placed(schedule(snapshot, share, seed=seed)) for seed in range(8)]
    assert found == [placed(schedule(snapshot, share, seed=seed)) for seed in range(8)]
    assert len({tuple(one.items()) for one in found}) > 1
    # Each search continues where the previous one ended: of three in a row, one includes the best node.
    assert all(1 <= list(one.values()).count("best") <= 2 for one in found)


def test_the_solver_evaluates_all_nodes_whatever_percentage_of_nodes_to_score():
    snapshot = cluster([*nodes(150, cpu=8), node("best", cpu=64)], alone(1, cpu=1))
    assert placed(schedule(snapshot, profile(percentageOfNodesToScore=1))) == placed(schedule(snapshot))


def test_sampling_does_not_skip_the_only_node_of_a_domain():
    racks = [
        node(f"n{at}", {"rack": "a" if at == 120 else "b"}, cpu=8, gpu=int(at == 120)) for at in range(200)
    ]
    wish = gang("g", 1, topology={"required": "rack"})
    share = profile(solver={"enabled": False}, percentageOfNodesToScore=0)
    for seed in range(4):
        assert placed(schedule(cluster(racks, wish, topologies=(topology("rack"),)), share, seed=seed)) == {
            "g-0": "n120"
        }


def test_refusal_without_nodes_has_the_message_of_kube_scheduler():
    decision = schedule(cluster((), alone(1, cpu=1)), ALONE)
    assert [(one.reason, one.message) for one in decision.refusals] == [
        ("NoNodes", "no nodes available to schedule pods")
    ]


NODES = [
    node("n0", {"zone": "a", "rack": "r0"}),
    node("n1", {"zone": "a", "rack": "r1"}),
    node("n2", {"zone": "b", "rack": "r2"}),
    node("n3"),
]


def fence(*parts: Snapshot, key: str = "team/g") -> AllowedDomains:
    there = inside(cluster(NODES, *parts, topologies=(topology("zone", "rack"),)))
    return AllowedDomains.from_gang(there.inputs, there.gang(key))


def allowed(one: AllowedDomains, subgroup: int = -1) -> list[int]:
    nodes = one.allowed_nodes(subgroup)
    return [0, 1, 2, 3] if nodes is None else [at for at in range(4) if nodes[at]]


def test_gang_without_levels_may_go_anywhere():
    found = fence(gang("g", 1))
    assert found.allowed_nodes(-1) is None
    assert list(found.iterate_next_domain_choices()) == []
    found.restrict_to_domains_of_node(-1, 0)
    assert allowed(found) == [0, 1, 2, 3]


def test_first_pod_fixes_the_domain_and_nodes_without_the_label_are_excluded():
    found = fence(gang("g", 2, topology={"required": "zone"}))
    assert allowed(found) == [0, 1, 2]
    found.restrict_to_domains_of_node(-1, 1)
    assert allowed(found) == [0, 1]


def test_alternatives_have_one_fence_for_each_domain_and_leave_the_first_open():
    found = fence(gang("g", 2, topology={"required": "zone"}))
    assert [allowed(one) for one in found.iterate_next_domain_choices()] == [[0, 1], [2]]
    assert allowed(found) == [0, 1, 2]


def test_running_members_fix_the_domain():
    members = (on(pod("a", group="g", cpu=1), "n2"), pod("b", group="g", cpu=1))
    found = fence(Snapshot(pods=members, pod_groups=(group("g", 2, topology={"required": "zone"}),)))
    assert allowed(found) == [2]
    assert list(found.iterate_next_domain_choices()) == []


def test_subgroups_keep_to_their_own_level_inside_that_of_the_gang():
    members = tuple(pod(f"p{sub}", group="g", sub=sub, cpu=1) for sub in "xy")
    subs = [{"name": "x", "minMember": 1, "topology": {"required": "rack"}}, {"name": "y", "minMember": 1}]
    made = group("g", 2, topology={"required": "zone"}, subGroups=subs)
    found = fence(Snapshot(pods=members, pod_groups=(made,)))
    found.restrict_to_domains_of_node(0, 0)
    assert allowed(found, 0) == [0]
    assert allowed(found, 1) == [0, 1]

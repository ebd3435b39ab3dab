"""The status page: pending gangs first, queues as a tree, nodes by their topology."""

from html import escape

from msgspec.structs import replace

from batchsched.api.core.pod import QUEUE_LABEL
from batchsched.api.decision import Refusal, refusal_text
from batchsched.observability.activity_recorder import ActivityRecorder
from batchsched.observability.http.status_page import (
    MAX_GANGS,
    PendingGangRow,
    ResourceUse,
    StatusPage,
    bound_and_total_pods_by_gang,
    build_cluster_view,
    build_pending_gang_rows,
)
from batchsched.state.cluster_state import ClusterState
from tests.service.town import Town, service_of
from tests.session.scenario import alone, cluster, gang, node, nodes, pod, queue, topology


def seen(snapshot, waits=None):
    state = ClusterState(["batchsched"])
    for found in (*snapshot.pod_groups, *snapshot.pods):
        state.put(found)
    return build_cluster_view(
        snapshot,
        waits or {},
        state.queue_usage.usage_and_demand_by_queue_and_resource(),
        bound_and_total_pods_by_gang(state.gangs),
    )


async def test_pending_gangs_are_first_and_have_their_reason():
    town = Town(cluster(nodes(1, gpu=2), gang("a", 2), gang("big", 3)))
    await town.turns(2)
    refusals = {one.pod_group: one for one in town.decisions[-1].refusals}
    found = seen(town.cache.snapshot(), build_pending_gang_rows([town.profile_scheduler], refusals))
    first, second = found.gangs
    assert (first.key, first.placed, first.pods, first.least) == ("team/big", 0, 3, 3)
    assert first.waiting is not None
    assert first.waiting.refusal is not None
    assert first.waiting.refusal.reason == "InsufficientResources"
    assert (second.key, second.placed, second.waiting) == ("team/a", 2, None)


async def test_page_shows_the_text_of_refusals_that_commands_print():
    town = Town(cluster(nodes(1, gpu=2), gang("big", 3)))
    await town.turn()
    (refusal,) = town.decisions[-1].refusals
    service = service_of(town)
    observation = ActivityRecorder(town.clock, 0)
    for shown in (refusal, replace(refusal, relaxation="1 more node like n0", verified=True)):
        observation.refusals = {shown.pod_group: shown}
        page = await StatusPage(service, observation).render()
        assert f"<b>InsufficientResources</b>: {escape(refusal_text(shown))}" in page


async def test_pod_alone_is_shown_while_it_waits():
    town = Town(cluster(nodes(1, gpu=1), alone(2, gpu=1)))
    await town.turns(2)
    found = seen(town.cache.snapshot(), build_pending_gang_rows([town.profile_scheduler], {}))
    assert [(one.key, one.pods) for one in found.gangs] == [("team/solo-1", 1)]


def test_queues_are_below_their_parents_with_what_they_use():
    queues = (
        queue("b", parent="a"),
        queue("a", limit={"cpu": "64"}),
        queue("c", parent="b"),
        queue("gone", parent="no"),
    )
    snapshot = cluster(nodes(1), pods=(pod("x", on="n0", cpu="1500m"),), queues=queues)
    found = {one.name: one for one in seen(snapshot).queues}
    assert [(one.name, one.depth) for one in seen(snapshot).queues] == [
        ("a", 0),
        ("b", 1),
        ("c", 2),
        ("default", 0),
        ("gone", 0),
    ]
    assert found["a"].limit == "64 cpu"
    assert found["default"].allocated == "1.5 cpu, 1 pods"


def test_row_of_a_parent_queue_includes_its_descendants_as_its_status_does():
    queues = (queue("a"), queue("b", parent="a"), queue("c", parent="b"))
    running = [pod(f"x-{name}", on="n0", cpu="1500m", labels={QUEUE_LABEL: name}) for name in ("a", "b", "c")]
    pending = gang("waiting", 2, requests={"cpu": "1"}, queue="c")
    snapshot = cluster(nodes(1), pending, pods=running, queues=queues)
    wait = PendingGangRow("team/waiting", "Active", "2026-01-01T00:00:00Z", 1, "", None)
    rows = {row.name: row for row in seen(snapshot, {wait.key: wait}).queues}
    assert [rows[name].allocated for name in "abc"] == ["4.5 cpu, 3 pods", "3 cpu, 2 pods", "1.5 cpu, 1 pods"]
    assert {row.pending for row in rows.values()} == {"2 cpu, 2 pods"}
    assert {row.gangs for row in rows.values()} == {1}


def test_nodes_are_together_by_the_levels_of_each_topology():
    some = [node(f"n{at}", {"block": f"b{at // 2}", "rack": f"r{at}"}, gpu=8) for at in range(4)]
    snapshot = cluster(
        some,
        pods=(pod("x", on="n1", gpu=4),),
        topologies=(topology("block", "rack"), topology("block", name="wide")),
    )
    narrow, wide = seen(snapshot).topologies
    assert [one.name for one in narrow.domains] == ["b0 / r0", "b0 / r1", "b1 / r2", "b1 / r3"]
    first, second = wide.domains
    gpus = seen(snapshot).resources.index("nvidia.com/gpu")
    assert (first.nodes, first.pods, first.shares[gpus]) == (2, 1, ResourceUse("4", "16", 0.25))
    assert second.shares[gpus].fraction == 0


def test_without_a_topology_all_nodes_are_one_row():
    (places,) = seen(cluster(nodes(3))).topologies
    assert [(one.name, one.nodes) for one in places.domains] == [("all nodes", 3)]


def test_rows_that_are_left_out_are_counted():
    waits = {
        f"team/g{at:04d}": PendingGangRow(
            f"team/g{at:04d}", "Unschedulable", "", 1, "", Refusal("", "NoNodes", "")
        )
        for at in range(MAX_GANGS + 5)
    }
    found = seen(cluster(()), waits)
    assert (len(found.gangs), found.left_out) == (MAX_GANGS, 5)

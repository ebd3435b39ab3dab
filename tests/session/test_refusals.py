"""What refusals say, in names and numbers."""

import msgspec
import pytest

from batchsched.api.core.pod import Affinity
from batchsched.api.snapshot import Snapshot
from batchsched.session.refusals import RefusalMessageWriter
from batchsched.solver.relaxation.changes import AddedNodes, AddedPods, CombinedChange, RaisedQuota
from tests.session.clusters import on
from tests.session.scenario import (
    GPU,
    cluster,
    gang,
    group,
    node,
    nodes,
    pod,
    profile,
    queue,
    schedule,
    topology,
)
from tests.session.scenes import inside

RACKS = [node(f"n{at}", {"rack": f"r{at // 2}", "block": "b"}, gpu=2) for at in range(4)]
BOTH = (topology("block", "rack"),)


def refusal(snapshot: Snapshot, **settings):
    (found,) = schedule(snapshot, profile(**settings)).refusals
    return found


def test_refusal_for_capacity_names_the_missing_amount_and_sufficient_nodes():
    found = refusal(cluster(nodes(1, gpu=2), gang("g", 4)))
    assert found.reason == "InsufficientResources"
    assert found.message == "2 of the 4 pods it needs fit; missing: nvidia.com/gpu 2"
    assert found.missing == {GPU: 2}
    assert found.relaxation == "1 more node like n0 (cpu 64, memory 256Gi, nvidia.com/gpu 2)"


def test_refusal_of_a_pod_larger_than_any_node_suggests_a_larger_node():
    found = refusal(cluster(nodes(1, gpu=2), gang("g", 1, requests={"gpu": 8})))
    assert found.reason == "NoFeasibleNode"
    assert found.message.startswith("a pod asks for more than any node")
    assert "like n0 but larger (cpu 64, memory 256Gi, nvidia.com/gpu 8)" in found.relaxation


def test_refusal_for_a_level_names_the_best_domain_and_a_sufficient_level():
    found = refusal(cluster(RACKS, gang("g", 5, topology={"required": "rack"}), topologies=BOTH))
    assert found.reason == "InsufficientTopologyCapacity"
    assert found.message.startswith("4 of the 5 pods it needs fit in rack r0, the best of its level")
    assert found.relaxation == "fits at level block"


def test_refusal_for_the_level_of_a_subgroup_names_the_subgroup():
    pods = tuple(pod(f"g-{at}", group="g", sub="workers", gpu=1) for at in range(5))
    subs = [{"name": "workers", "minMember": 5, "topology": {"required": "rack"}}]
    snapshot = cluster(RACKS, Snapshot(pods=pods, pod_groups=(group("g", subGroups=subs),)), topologies=BOTH)
    assert refusal(snapshot).relaxation == "fits at level block for its subGroup workers"


def test_refusal_for_a_level_suggests_nodes_in_a_domain():
    found = refusal(cluster(RACKS, gang("g", 9, topology={"required": "block"}), topologies=BOTH))
    assert found.relaxation.endswith(" in block b")


def test_refusal_for_capacity_in_a_required_level_names_the_best_domain_and_what_is_missing_there():
    """Eight of the nine pods fit in both racks together, and four in the best rack."""
    found = refusal(cluster(RACKS, gang("g", 9, topology={"required": "rack"}), topologies=BOTH))
    assert found.message == (
        "4 of the 9 pods it needs fit in rack r0, the best of its level; missing there: nvidia.com/gpu 5"
    )
    assert found.missing == {GPU: 5}


def test_refusal_for_a_level_without_nodes_names_the_level():
    bare = [node("n0", gpu=2)]
    found = refusal(cluster(bare, gang("g", 1, topology={"required": "rack"}), topologies=BOTH))
    assert found.message == "no node lies in any rack: none has the level's label"
    assert found.relaxation == "fits without a required level"


def test_suggested_nodes_may_form_a_new_domain():
    there = inside(cluster(RACKS, gang("g", 1), topologies=BOTH))
    wording = RefusalMessageWriter(there.inputs, there.joint())
    change = AddedNodes(2, like=0, level=1, domain=2, extra=(0, 1000, 0, 0, 0))
    assert wording.smallest_change_message(change) == (
        "2 more nodes like n0 but larger (cpu 65, memory 256Gi, nvidia.com/gpu 2) in a new rack"
    )


def test_combined_changes_are_joined_without_empty_parts():
    there = inside(cluster(nodes(1, gpu=2), gang("g", 1), queues=(queue("a", limit={GPU: "3"}),)))
    wording = RefusalMessageWriter(there.inputs, there.joint())
    nothing = RaisedQuota(0, (0, 0, 0, 0, 0), 3)
    both = CombinedChange((nothing, AddedPods(0, 2), AddedNodes(1, like=0)))
    assert wording.smallest_change_message(both) == (
        "2 more pods and 1 more node like n0 (cpu 64, memory 256Gi, nvidia.com/gpu 2)"
    )
    assert wording.smallest_change_message(None) == ""


def test_refusal_for_a_limit_names_the_queue_and_the_missing_amount():
    found = refusal(cluster(nodes(4, gpu=2), gang("g", 4, queue="a"), queues=(queue("a", limit={GPU: "3"}),)))
    assert found.reason == "QueueLimit"
    assert found.message == "the limit of queue a is short of nvidia.com/gpu 1"
    assert found.relaxation == "waits for queue limit: a would need nvidia.com/gpu 1 more"


def test_refusal_names_guarantee_and_borrowing_limit_if_they_restrict_the_queue():
    restricted = queue("a", guarantee={GPU: "1"}, borrowing_limit={GPU: "2"}, limit={GPU: "8"})
    found = refusal(cluster(nodes(4, gpu=2), gang("g", 4, queue="a"), queues=(restricted,)))
    assert found.message == "the guarantee plus borrowingLimit of queue a is short of nvidia.com/gpu 1"


def test_missing_amount_of_an_exceeded_limit_includes_the_excess():
    running = tuple(on(pod(f"r-{at}", group="run", gpu=1), f"n{at}") for at in range(4))
    snapshot = cluster(
        nodes(4, gpu=2),
        Snapshot(pods=running, pod_groups=(group("run", 4, queue="a"),)),
        gang("g", 1, queue="a"),
        queues=(queue("a", limit={GPU: "2"}),),
    )
    assert refusal(snapshot).relaxation == "waits for queue limit: a would need nvidia.com/gpu 3 more"


def test_refusal_for_max_running_pod_groups_differs_from_that_for_a_limit():
    found = refusal(
        cluster(nodes(4, gpu=2), gang("g", 1, queue="a"), queues=(queue("a", maxRunningPodGroups=0),))
    )
    assert found.message == "queue a runs as many PodGroups as maxRunningPodGroups allows"
    assert found.relaxation == "waits until queue a may run 1 more PodGroup (maxRunningPodGroups)"


def test_refusal_of_filters_has_the_message_of_kube_scheduler_and_suggests_a_node():
    picky = gang("g", 1, requests={"gpu": 1})
    chosen = tuple(
        pod(one.name, group="g", gpu=1, spec={"node_selector": {"disk": "ssd"}}) for one in picky.pods
    )
    found = refusal(cluster(nodes(2, gpu=1), Snapshot(pods=chosen, pod_groups=picky.pod_groups)))
    assert found.reason == "NoFeasibleNode"
    assert "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector." in found.message
    assert (
        found.relaxation
        == "1 more node like n0 and open to its pods (cpu 64, memory 256Gi, nvidia.com/gpu 1)"
    )


def test_refusal_of_an_outbid_gang_says_so():
    decision = schedule(cluster(nodes(4, gpu=1), gang("small", 2, age=10), gang("large", 4)))
    (found,) = decision.refusals
    assert found.message.endswith("gangs that go first took the room")


def test_refusal_for_fragmentation_differs_from_that_for_missing_capacity():
    snapshot = cluster(nodes(2, gpu=3), gang("g", 2, requests={"gpu": 2}), gang("h", 1, requests={"gpu": 2}))
    (found,) = schedule(snapshot).refusals
    assert "enough is free in sum, and too little of it together on one node" in found.message


@pytest.mark.parametrize("settings", [{}, {"selection": "ordered"}])
def test_refusal_for_a_plugin_constraint_names_the_plugin(settings):
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
    lonely = tuple(pod(f"g-{at}", group="g", labels={"app": "a"}, spec=apart(term), cpu=1) for at in range(2))
    found = refusal(cluster(nodes(1), Snapshot(pods=lonely, pod_groups=(group("g", 2),))), **settings)
    assert found.reason == "PluginConstraint"
    assert "InterPodAffinity" in found.message


def apart(term):
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"affinity": msgspec.convert(rule, Affinity)}

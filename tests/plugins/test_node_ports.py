import numpy as np

from batchsched.framework.constrain import EVERY_NODE, CandidatePods, CandidateSet
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.node_ports import NodePorts
from tests.plugins.cluster import class_of, filtered, land, node, pod, refusals, table, with_ports

REASON = ("node(s) didn't have free ports for the requested pod ports",)


def batch(made, *pods, count=2):
    return CandidateSet(
        [CandidatePods(at, class_of(made, one), at, count, True) for at, one in enumerate(pods)]
    )


def rows_of(made, *pods, count=2):
    found = NodePorts().constrain(batch(made, *pods, count=count), made.all_nodes_view())
    assert all(row.partition == EVERY_NODE and row.plugin == "NodePorts" for row in found)
    return {tuple(row.classes.tolist()): row.right.tolist() for row in found}


def test_a_used_port_refuses_the_node_and_eviction_may_help():
    made = table([node("a"), node("b")], {"a": [with_ports("p", {"hostPort": 80})]})
    assert refusals(NodePorts(), with_ports("x", {"hostPort": 80}), made) == {"a": REASON}
    assert not filtered(NodePorts(), with_ports("x", {"hostPort": 80}), made).unresolvable.any()


def test_another_protocol_or_address_is_another_port():
    made = table([node("a")], {"a": [with_ports("p", {"hostPort": 80, "hostIP": "10.0.0.1"})]})
    assert refusals(NodePorts(), with_ports("x", {"hostPort": 80, "hostIP": "10.0.0.2"}), made) == {}
    assert refusals(NodePorts(), with_ports("x", {"hostPort": 80, "protocol": "UDP"}), made) == {}
    assert list(refusals(NodePorts(), with_ports("x", {"hostPort": 80, "hostIP": "10.0.0.1"}), made)) == ["a"]


def test_the_wildcard_address_conflicts_with_every_address():
    made = table([node("a")], {"a": [with_ports("p", {"hostPort": 80, "hostIP": "10.0.0.1"})]})
    assert list(refusals(NodePorts(), with_ports("x", {"hostPort": 80}), made)) == ["a"]


def test_container_ports_without_a_host_port_skip_the_filter():
    made = table([node("a")])
    state = CycleState()
    answer = NodePorts().prefilter(class_of(made, with_ports("x", {})), made.all_nodes_view(), state)
    assert answer.status.code is Code.SKIP


def test_the_port_is_free_again_after_its_pod_is_removed():
    holder = with_ports("p", {"hostPort": 80})
    made = table([node("a")], {"a": [holder]})
    made.remove_pods([holder])
    assert refusals(NodePorts(), with_ports("x", {"hostPort": 80}), made) == {}


def test_the_filter_of_one_node_sees_a_pod_that_was_just_placed():
    made = table([node("a"), node("b")])
    plugin, state, wish = NodePorts(), CycleState(), with_ports("x", {"hostPort": 80})
    plugin.prefilter(class_of(made, wish), made.all_nodes_view(), state)
    land(made, with_ports("p", {"hostPort": 80}), "b")
    assert plugin.filter(class_of(made, wish), made.node_view(0), state).feasible_mask[0]
    assert plugin.filter(class_of(made, wish), made.node_view(1), state).reasons_at(0) == REASON


def test_two_equal_pods_are_not_admitted_on_one_node():
    made = table([node("a"), node("b")])
    wish, both = class_of(made, with_ports("x", {"hostPort": 80})), np.asarray([0, 1], np.int32)
    assert NodePorts().allows_bulk_placement(wish, made, both, np.asarray([1, 1], np.int32))
    assert not NodePorts().allows_bulk_placement(wish, made, both, np.asarray([1, 2], np.int32))
    assert NodePorts().allows_bulk_placement(class_of(made, pod()), made, both, np.asarray([9, 9], np.int32))


def test_pods_with_the_same_port_share_one_row_and_used_nodes_have_no_room():
    made = table([node("a"), node("b")], {"a": [with_ports("p", {"hostPort": 80})]})
    first, second = with_ports("x", {"hostPort": 80}), with_ports("y", {"hostPort": 80}, {"hostPort": 81})
    assert rows_of(made, first, second, pod()) == {(0, 1): [0, 1], (1,): [1, 1]}


def test_ports_on_two_addresses_conflict_only_with_the_wildcard_address():
    made = table([node("a")])
    pods = [
        with_ports(name, {"hostPort": 80, "hostIP": ip})
        for name, ip in (("x", "10.0.0.1"), ("y", "10.0.0.2"))
    ]
    everywhere = with_ports("z", {"hostPort": 80})
    assert set(rows_of(made, *pods, everywhere)) == {(0, 2), (1, 2), (2,)}


def test_a_single_pod_needs_no_row():
    made = table([node("a")])
    assert rows_of(made, with_ports("x", {"hostPort": 80}), count=1) == {}

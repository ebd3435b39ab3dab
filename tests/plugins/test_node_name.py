from batchsched.framework.cycle_state import CycleState
from batchsched.plugins.node_name import NodeName
from tests.plugins.cluster import class_of, filtered, node, pod, refusals, table

REASON = ("node(s) didn't match the requested node name",)


def test_a_pod_with_a_node_name_fits_only_on_that_node():
    made = table([node("a"), node("b")])
    assert refusals(NodeName(), pod(nodeName="b"), made) == {"a": REASON}
    assert filtered(NodeName(), pod(nodeName="b"), made).unresolvable.tolist() == [True, False]


def test_a_pod_with_the_name_of_a_missing_node_fits_on_no_node():
    assert refusals(NodeName(), pod(nodeName="c"), table([node("a")])) == {"a": REASON}


def test_a_pod_without_a_node_name_fits_on_every_node():
    assert refusals(NodeName(), pod(), table([node("a")])) == {}


def test_the_prefilter_of_1_37_leaves_only_the_named_node():
    made = table([node("a"), node("b")], version="1.37")
    named, free = class_of(made, pod(nodeName="b")), class_of(made, pod())
    assert NodeName().prefilter(named, made.all_nodes_view(), CycleState()).nodes == frozenset({"b"})
    assert NodeName().prefilter(free, made.all_nodes_view(), CycleState()).nodes is None


def test_the_prefilter_of_1_36_leaves_all_nodes():
    made = table([node("a"), node("b")], version="1.36")
    named = class_of(made, pod(nodeName="b"))
    assert NodeName().prefilter(named, made.all_nodes_view(), CycleState()).nodes is None

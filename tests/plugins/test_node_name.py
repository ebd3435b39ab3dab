from batchsched.plugins.node_name import NodeName
from tests.plugins.cluster import filtered, node, pod, refusals, table

REASON = ("node(s) didn't match the requested node name",)


def test_a_pod_that_names_a_node_fits_there_alone():
    made = table([node("a"), node("b")])
    assert refusals(NodeName(), pod(nodeName="b"), made) == {"a": REASON}
    assert filtered(NodeName(), pod(nodeName="b"), made).unresolvable.tolist() == [True, False]


def test_a_pod_that_names_a_missing_node_fits_nowhere():
    assert refusals(NodeName(), pod(nodeName="c"), table([node("a")])) == {"a": REASON}


def test_a_pod_that_names_none_fits_everywhere():
    assert refusals(NodeName(), pod(), table([node("a")])) == {}

from batchsched.plugins.node_unschedulable import NodeUnschedulable
from tests.plugins.cluster import filtered, node, pod, refusals, table


def test_a_cordoned_node_takes_no_pods():
    made = table([node("open"), node("cordoned", unschedulable=True)])
    assert refusals(NodeUnschedulable(), pod(), made) == {"cordoned": ("node(s) were unschedulable",)}
    assert filtered(NodeUnschedulable(), pod(), made).unresolvable.tolist() == [False, True]


def test_a_pod_that_tolerates_the_cordon_is_accepted():
    made = table([node("cordoned", unschedulable=True)])
    wish = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert refusals(NodeUnschedulable(), wish, made) == {}

from batchsched.api.core.pod import Toleration
from batchsched.framework.plugin_support.taints import taint_groups, untolerated
from tests.plugins.cluster import node, table

HARD = {"key": "k", "value": "v", "effect": "NoSchedule"}
SOFT = {"key": "k", "value": "v", "effect": "PreferNoSchedule"}


def test_nodes_with_equal_taints_are_one_group():
    made = table([node("a", taints=[HARD]), node("b"), node("c", taints=[HARD])])
    codes, groups = taint_groups(made)
    assert codes.tolist() == [0, 1, 0]
    assert [len(taints) for taints in groups] == [1, 0]


def test_only_taints_of_the_effects_that_nobody_tolerates_are_counted():
    made = table([node("a", taints=[HARD, SOFT, {**SOFT, "key": "other"}]), node("b")])
    soft = frozenset({"PreferNoSchedule"})
    assert untolerated(made, (), soft).tolist() == [2, 0]
    assert untolerated(made, (Toleration(key="k", operator="Exists"),), soft).tolist() == [1, 0]
    assert untolerated(made, (), frozenset({"NoExecute"})).tolist() == [0, 0]

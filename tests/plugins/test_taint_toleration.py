import pytest

from batchsched.plugins.taint_toleration import TaintToleration
from tests.plugins.cluster import filtered, node, pod, refusals, scores, table


def taint(effect, key="dedicated", value="ml"):
    return {"key": key, "value": value, "effect": effect}


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_an_untolerated_taint_is_an_unresolvable_refusal(effect):
    made = table([node("plain"), node("tainted", taints=[taint(effect)])])
    assert refusals(TaintToleration(), pod(), made) == {"tainted": ("node(s) had untolerated taint(s)",)}
    assert filtered(TaintToleration(), pod(), made).unresolvable.tolist() == [False, True]


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "dedicated", "operator": "Exists"},
        {"key": "dedicated", "value": "ml"},
        {"operator": "Exists"},
        {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
    ],
)
def test_a_toleration_opens_the_node(toleration):
    made = table([node("tainted", taints=[taint("NoSchedule")])])
    assert refusals(TaintToleration(), pod(tolerations=[toleration]), made) == {}


def test_a_toleration_of_another_effect_opens_nothing():
    made = table([node("tainted", taints=[taint("NoSchedule")])])
    wish = pod(tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    assert list(refusals(TaintToleration(), wish, made)) == ["tainted"]


def test_prefer_no_schedule_taints_lower_the_score_and_refuse_no_pod():
    soft = taint("PreferNoSchedule")
    made = table([node("none"), node("one", taints=[soft]), node("two", taints=[soft, {**soft, "key": "b"}])])
    assert refusals(TaintToleration(), pod(), made) == {}
    assert scores(TaintToleration(), pod(), made) == [100, 50, 0]


def test_nodes_without_prefer_no_schedule_taints_have_the_highest_score():
    assert scores(TaintToleration(), pod(), table([node("a"), node("b")])) == [100, 100]

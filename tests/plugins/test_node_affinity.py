import pytest
from pydantic import ValidationError

from batchsched.api.crd.validation import field_errors
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.node_affinity import NodeAffinity, NodeAffinityArgs
from tests.plugins.cluster import class_of, node, pod, refusals, scores, table

NOT_MATCHED = ("node(s) didn't match Pod's node affinity/selector",)


def expression(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


def required(*terms):
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}


def preferring(*weighted):
    listed = [{"weight": weight, "preference": term} for weight, term in weighted]
    return {"preferredDuringSchedulingIgnoredDuringExecution": listed}


def named(*names):
    return {"matchFields": [expression("metadata.name", "In", *names)]}


def having(*expressions):
    return {"matchExpressions": list(expressions)}


def wanting(affinity):
    return pod(affinity={"nodeAffinity": affinity})


def prefilter(wish, made, plugin=None):
    return (plugin or NodeAffinity()).prefilter(class_of(made, wish), made.all_nodes_view(), CycleState())


ZONES = [
    node("a", labels={"zone": "z1", "gen": "3"}),
    node("b", labels={"zone": "z2", "gen": "10"}),
    node("c"),
]


@pytest.mark.parametrize(
    "terms, fitting",
    [
        ([having(expression("zone", "In", "z1"))], "a"),
        ([having(expression("zone", "NotIn", "z1"))], "bc"),
        ([having(expression("zone", "Exists"))], "ab"),
        ([having(expression("zone", "DoesNotExist"))], "c"),
        ([having(expression("gen", "Gt", "9"))], "b"),
        ([having(expression("gen", "Lt", "9"))], "a"),
        ([having(expression("zone", "In", "z1")), having(expression("zone", "In", "z2"))], "ab"),
        ([having(expression("zone", "Exists"), expression("gen", "In", "10"))], "b"),
        ([{}], ""),
        ([named("a", "c", "elsewhere")], "ac"),
        ([{**having(expression("zone", "Exists")), **named("a", "c")}], "a"),
        ([{"matchFields": [expression("metadata.name", "NotIn", "a")]}], "bc"),
    ],
)
def test_required_terms_pick_nodes(terms, fitting):
    made = table(ZONES)
    refused = refusals(NodeAffinity(), wanting(required(*terms)), made)
    assert refused == {name: NOT_MATCHED for name in "abc" if name not in fitting}


def test_node_selector_and_affinity_must_both_hold():
    made = table([node("a", labels={"zone": "z1"}), node("b", labels={"zone": "z1", "disk": "ssd"})])
    wish = pod(
        nodeSelector={"disk": "ssd"},
        affinity={"nodeAffinity": required(having(expression("zone", "In", "z1")))},
    )
    assert refusals(NodeAffinity(), wish, made) == {"a": NOT_MATCHED}


def test_match_fields_narrow_the_search_if_every_term_has_some():
    made = table(ZONES)
    assert prefilter(wanting(required(named("a"), named("b"))), made).nodes == {"a", "b"}
    both = wanting(required(named("a"), having(expression("zone", "Exists"))))
    assert prefilter(both, made).nodes is None


def test_contradictory_terms_refuse_the_pod_on_every_node():
    term = {"matchFields": [expression("metadata.name", "In", name) for name in ("a", "b")]}
    status = prefilter(wanting(required(term)), table(ZONES)).status
    assert (status.code, status.reasons) == (Code.UNRESOLVABLE, ("pod affinity terms conflict",))


def test_a_pod_without_affinity_skips_the_filter_and_the_score():
    made = table(ZONES)
    assert prefilter(pod(), made).status.code is Code.SKIP
    assert (
        NodeAffinity().prescore(class_of(made, pod()), made.all_nodes_view(), CycleState()).code is Code.SKIP
    )


def test_the_added_affinity_applies_to_every_pod_and_has_its_own_message():
    added = required(having(expression("zone", "In", "z1")))
    plugin = NodeAffinity(NodeAffinityArgs.model_validate({"addedAffinity": added}))
    reason = ("node(s) didn't match scheduler-enforced node affinity",)
    assert refusals(plugin, pod(), table(ZONES)) == {"b": reason, "c": reason}
    assert refusals(plugin, pod(nodeSelector={"gen": "10"}), table(ZONES)) == {
        "a": NOT_MATCHED,
        "b": reason,
        "c": reason,
    }


def test_preferences_are_summed_and_normalised():
    wish = wanting(
        preferring(
            (20, having(expression("zone", "Exists"))), (60, having(expression("gen", "Gt", "5"))), (9, {})
        )
    )
    assert scores(NodeAffinity(), wish, table(ZONES)) == [25, 100, 0]


def test_added_preferences_count_for_pods_without_their_own():
    added = preferring((5, having(expression("zone", "In", "z2"))))
    plugin = NodeAffinity(NodeAffinityArgs.model_validate({"addedAffinity": added}))
    assert scores(plugin, pod(), table(ZONES)) == [0, 100, 0]


def test_an_invalid_added_affinity_is_refused():
    with pytest.raises(ValidationError, match="addedAffinity"):
        NodeAffinityArgs.model_validate({"addedAffinity": 5})


def test_message_about_an_invalid_added_affinity_names_the_field_in_it():
    with pytest.raises(ValidationError) as caught:
        NodeAffinityArgs.model_validate(
            {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": "zone"}}
        )
    (error,) = field_errors(caught.value, NodeAffinityArgs)
    assert str(error) == (
        "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution: expected a mapping, found text"
    )

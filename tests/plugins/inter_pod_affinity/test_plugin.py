"""InterPodAffinity at its points."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.pod import Pod
from batchsched.config.kubernetes_release import RELEASES
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.inter_pod_affinity import InterPodAffinity
from batchsched.plugins.inter_pod_affinity.plugin import (
    AFFINITY_MISMATCH,
    ANTI_AFFINITY_MATCH,
    EXISTING_ANTI_AFFINITY,
)
from tests.plugins import neighbours as nb
from tests.plugins.cluster import class_of, filtered

PLUGIN = InterPodAffinity()
NODES = [
    nb.node("n0", {nb.ZONE: "x"}),
    nb.node("n1", {nb.ZONE: "x"}),
    nb.node("n2", {nb.ZONE: "y"}),
    nb.node("n3"),
]


def apart(app: str, other: str, key: str = nb.ZONE, name: str = "w") -> Pod:
    return nb.pod(name, {"app": app}, affinity=nb.required(apart=[nb.near(key, app=other)]))


def together(app: str, other: str, key: str = nb.ZONE) -> Pod:
    return nb.pod("w", {"app": app}, affinity=nb.required(together=[nb.near(key, app=other)]))


def plain(app: str, name: str = "e", **fields) -> Pod:
    return nb.pod(name, {"app": app}, **fields)


def scores(table, pod, plugin=PLUGIN) -> list[int] | None:
    one, state = class_of(table, pod), CycleState()
    if plugin.prescore(one, table.all_nodes_view(), state).code is Code.SKIP:
        return None
    raw = plugin.score(one, table.all_nodes_view(), state)
    return [int(points) for points in plugin.normalize(raw, one, table.all_nodes_view(), state)]


def test_required_anti_affinity_excludes_the_zone_of_a_matching_pod():
    answer = filtered(PLUGIN, apart("a", "b"), nb.table_of(NODES, [(plain("b"), 0)]))
    assert answer.feasible_mask.tolist() == [False, False, True, True]
    assert answer.reasons_at(1) == (ANTI_AFFINITY_MATCH,)
    assert not answer.unresolvable[1]


def test_required_anti_affinity_of_an_existing_pod_excludes_its_zone():
    answer = filtered(PLUGIN, plain("a"), nb.table_of(NODES, [(apart("b", "a"), 2)]))
    assert answer.feasible_mask.tolist() == [True, True, False, True]
    assert answer.reasons_at(2) == (EXISTING_ANTI_AFFINITY,)


def test_required_affinity_allows_only_zones_with_a_matching_pod():
    answer = filtered(PLUGIN, together("a", "b"), nb.table_of(NODES, [(plain("b"), 2)]))
    assert answer.feasible_mask.tolist() == [False, False, True, False]
    assert answer.reasons_at(3) == (AFFINITY_MISMATCH,)
    assert answer.unresolvable[[0, 1, 3]].all()


def test_all_terms_must_match_one_and_the_same_pod():
    both = nb.required(together=[nb.near(nb.ZONE, app="b"), nb.near(nb.HOST, tier="front")])
    one = nb.pod("w", affinity=both)
    split = [(nb.pod("e", {"app": "b"}), 0), (nb.pod("f", {"tier": "front"}), 0)]
    assert nb.fits(PLUGIN, nb.table_of(NODES, split), one) == []
    whole = [(nb.pod("e", {"app": "b", "tier": "front"}), 0)]
    assert nb.fits(PLUGIN, nb.table_of(NODES, whole), one) == ["n0"]


@pytest.mark.parametrize("names", [("other", "default"), ("default", "other"), ("other", None)])
def test_a_pod_in_the_namespace_of_one_term_alone_does_not_match_all_terms(names):
    terms = [
        nb.near(key, app="b") | ({"namespaces": [name]} if name else {})
        for key, name in zip((nb.ZONE, nb.HOST), names, strict=True)
    ]
    waiting = nb.pod("w", affinity=nb.required(together=terms))
    for namespace in ("default", "other"):
        friend = nb.pod("e", {"app": "b"}, namespace=namespace)
        assert nb.fits(PLUGIN, nb.table_of(NODES, [(friend, 0)]), waiting) == []


def test_the_first_pod_that_matches_its_own_affinity_may_go_wherever_the_label_exists():
    assert nb.fits(PLUGIN, nb.table_of(NODES), together("a", "a")) == ["n0", "n1", "n2"]
    assert nb.fits(PLUGIN, nb.table_of(NODES), together("a", "b")) == []
    assert nb.fits(PLUGIN, nb.table_of(NODES, [(plain("a"), 2)]), together("a", "a")) == ["n2"]


def test_terminating_pods_count():
    gone = plain("b", terminating=True)
    assert nb.fits(PLUGIN, nb.table_of(NODES, [(gone, 0)]), apart("a", "b")) == ["n2", "n3"]


def test_terms_select_the_namespace_of_the_pod_unless_they_name_others():
    other = nb.pod("e", {"app": "b"}, namespace="other")
    table = nb.table_of(NODES, [(other, 2)])
    assert nb.fits(PLUGIN, table, apart("a", "b")) == ["n0", "n1", "n2", "n3"]
    extras: list[dict[str, object]] = [{"namespaces": ["other"]}, {"namespaceSelector": {}}]
    for extra in extras:
        one = nb.pod("w", affinity=nb.required(apart=[nb.near(nb.ZONE, app="b") | extra]))
        assert nb.fits(PLUGIN, table, one) == ["n0", "n1", "n3"]


@pytest.mark.parametrize(
    "version, fitting", [("1.36", ["n0", "n1", "n3"]), ("1.37", ["n0", "n1", "n2", "n3"])]
)
def test_a_namespace_selector_that_matches_no_labels_selects_all_namespaces_until_1_36(version, fitting):
    # `mergeAffinityTermNamespacesIfNotEmpty` keeps the selector in v1.36.3, and replaces it in v1.37.2.
    namespaces = [msgspec.convert({"metadata": {"name": "other", "labels": {"env": "x"}}}, Namespace)]
    table = nb.table_of(NODES, [(nb.pod("e", {"app": "b"}, namespace="other"), 2)], namespaces)
    table.release = RELEASES[version]
    selector = {"namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}}
    one = nb.pod("w", affinity=nb.required(apart=[nb.near(nb.ZONE, app="b") | selector]))
    assert nb.fits(PLUGIN, table, one) == fitting
    everywhere = nb.pod(
        "w", affinity=nb.required(apart=[nb.near(nb.ZONE, app="b") | {"namespaceSelector": {}}])
    )
    assert nb.fits(PLUGIN, table, everywhere) == ["n0", "n1", "n3"]


def test_a_pod_without_relevant_terms_skips_the_filter():
    table = nb.table_of(NODES, [(apart("b", "c"), 0)])
    assert (
        PLUGIN.prefilter(class_of(table, plain("a")), table.all_nodes_view(), CycleState()).status.code
        is Code.SKIP
    )


def test_preferred_terms_raise_and_lower_scores():
    table = nb.table_of(NODES, [(plain("b"), 0), (plain("c", "f"), 2)])
    pulled = nb.pod("w", affinity=nb.preferred(together=[(10, nb.near(nb.ZONE, app="b"))]))
    assert scores(table, pulled) == [100, 100, 0, 0]
    pushed = nb.pod("w", affinity=nb.preferred(apart=[(10, nb.near(nb.ZONE, app="b"))]))
    assert scores(table, pushed) == [0, 0, 100, 100]
    assert scores(table, plain("x")) is None


def test_preferred_terms_of_existing_pods_count_and_may_be_ignored():
    fond = nb.pod("e", affinity=nb.preferred(together=[(10, nb.near(nb.ZONE, app="a"))]))
    bound = nb.pod("f", affinity=nb.required(together=[nb.near(nb.HOST, app="a")]))
    table = nb.table_of(NODES, [(fond, 0), (bound, 2)])
    assert scores(table, plain("a")) == [100, 100, 10, 0]
    heavy = InterPodAffinity(InterPodAffinity.Args(hard_pod_affinity_weight=20))
    assert scores(table, plain("a"), heavy) == [50, 50, 100, 0]
    none = InterPodAffinity(InterPodAffinity.Args(hard_pod_affinity_weight=0))
    assert scores(table, plain("a"), none) == [100, 100, 0, 0]
    deaf = InterPodAffinity(InterPodAffinity.Args(ignore_preferred_terms_of_existing_pods=True))
    assert scores(table, plain("a"), deaf) is None


@pytest.mark.parametrize(
    "args", [{"hardPodAffinityWeight": 101}, {"hardPodAffinityWeight": -1}, {"weight": 1}]
)
def test_invalid_arguments_are_refused(args):
    with pytest.raises(ValidationError):
        InterPodAffinity.Args.model_validate(args)


@pytest.mark.properties
@given(nb.worlds("interpod"), st.data())
def test_filtering_all_nodes_equals_filtering_each_node(world, data):
    nb.judged_as_one_by_one(PLUGIN, world, data)


@pytest.mark.properties
@given(nb.worlds("interpod"), st.randoms(use_true_random=False))
def test_state_updated_for_added_and_removed_pods_equals_a_new_count(world, random):
    table = world.table()
    pod, one, state = nb.asking(PLUGIN, world, table)
    for _ in nb.come_and_go(PLUGIN, world, table, one, state, random):
        kept, afresh = PLUGIN.filter(one, table.all_nodes_view(), state), filtered(PLUGIN, pod, table)
        assert kept.feasible_mask.tolist() == afresh.feasible_mask.tolist()


def test_signature_contains_the_terms_and_label_keys_those_of_the_selectors():
    assert PLUGIN.signature(apart("a", "b")) == PLUGIN.signature(apart("c", "b"))
    assert PLUGIN.signature(apart("a", "b")) != PLUGIN.signature(together("a", "b"))
    assert PLUGIN.signature(plain("a")) == ()
    assert PLUGIN.selector_label_keys(apart("a", "b")) == {"app"}
    assert PLUGIN.selector_label_keys(
        nb.pod("w", affinity=nb.preferred(apart=[(1, nb.near(nb.ZONE, tier="x"))]))
    ) == {"tier"}

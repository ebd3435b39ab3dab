"""PodTopologySpread at its points."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchsched.api.core.pod import Pod
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.pod_topology_spread import PodTopologySpread
from batchsched.plugins.pod_topology_spread.plugin import NO_LABEL, NOT_SPREAD, SPREADS
from tests.plugins import neighbours as nb
from tests.plugins.cluster import class_of, filtered

PLUGIN = PodTopologySpread()


def zones(*names: str) -> list:
    return [nb.node(f"n{at}", {nb.ZONE: name}) for at, name in enumerate(names)]


def wants(**fields) -> Pod:
    return nb.pod("w", {"app": "a"}, topologySpreadConstraints=[nb.spread(nb.ZONE, "a", **fields)])


def existing(*places: int) -> list[tuple[Pod, int]]:
    return [(nb.pod(f"e{number}", {"app": "a"}), at) for number, at in enumerate(places)]


def test_a_zone_that_would_exceed_the_maximum_skew_is_refused():
    table = nb.table_of(zones("x", "y", "y"), existing(0))
    assert nb.fits(PLUGIN, table, wants()) == ["n1", "n2"]
    answer = filtered(PLUGIN, wants(), table)
    assert answer.reasons_at(0) == (NOT_SPREAD,)
    assert not answer.unresolvable[0]


def test_a_node_without_the_topology_label_is_unresolvable():
    table = nb.table_of([*zones("x"), nb.node("bare")])
    answer = filtered(PLUGIN, wants(), table)
    assert answer.reasons_at(1) == (NO_LABEL,)
    assert answer.unresolvable.tolist() == [False, True]


def test_a_larger_max_skew_allows_more_pods_in_a_zone():
    table = nb.table_of(zones("x", "y"), existing(0, 0))
    assert nb.fits(PLUGIN, table, wants(skew=2)) == ["n1"]
    assert nb.fits(PLUGIN, table, wants(skew=3)) == ["n0", "n1"]


def test_fewer_domains_than_min_domains_count_a_minimum_of_zero():
    table = nb.table_of(zones("x", "y"), existing(0, 1))
    assert nb.fits(PLUGIN, table, wants()) == ["n0", "n1"]
    assert nb.fits(PLUGIN, table, wants(minDomains=3)) == []


def test_terminating_pods_and_pods_of_other_namespaces_do_not_count():
    gone = nb.pod("gone", {"app": "a"}, terminating=True)
    other = nb.pod("other", {"app": "a"}, namespace="other")
    table = nb.table_of(zones("x", "y"), [(gone, 0), (other, 0)])
    assert nb.fits(PLUGIN, table, wants()) == ["n0", "n1"]


def test_an_empty_selector_counts_no_pod_and_a_missing_one_matches_none():
    table = nb.table_of(zones("x", "y"), existing(0, 0, 0))
    assert nb.fits(PLUGIN, table, wants(labelSelector={})) == ["n0", "n1"]
    assert nb.fits(PLUGIN, table, wants(labelSelector=None)) == ["n0", "n1"]


def test_match_label_keys_spread_each_revision_by_itself():
    old = nb.pod("old", {"app": "a", "rev": "1"})
    new = nb.pod(
        "new",
        {"app": "a", "rev": "2"},
        topologySpreadConstraints=[nb.spread(nb.ZONE, "a", matchLabelKeys=["rev"])],
    )
    assert nb.fits(PLUGIN, nb.table_of(zones("x", "y"), [(old, 0)]), new) == ["n0", "n1"]


def test_node_inclusion_policies_select_the_counted_nodes():
    nodes = [
        nb.node("n0", {nb.ZONE: "x", "disk": "ssd"}),
        nb.node("n1", {nb.ZONE: "y"}),
        nb.node("n2", {nb.ZONE: "z", "disk": "ssd"}, [{"key": "own", "effect": "NoSchedule"}]),
    ]
    table = nb.table_of(nodes, existing(0))

    def placed(**policies) -> list[str]:
        constraints = [nb.spread(nb.ZONE, "a", **policies)]
        one = nb.pod("w", {"app": "a"}, nodeSelector={"disk": "ssd"}, topologySpreadConstraints=constraints)
        return nb.fits(PLUGIN, table, one)

    assert placed() == ["n1", "n2"]
    assert placed(nodeTaintsPolicy="Honor") == ["n0", "n1", "n2"]
    assert placed(nodeTaintsPolicy="Honor", nodeAffinityPolicy="Ignore") == ["n1", "n2"]


def test_soft_constraints_skip_the_filter_and_hard_ones_the_score():
    table = nb.table_of(zones("x"))
    state = CycleState()
    soft = class_of(table, wants(whenUnsatisfiable="ScheduleAnyway"))
    assert PLUGIN.prefilter(soft, table.all_nodes_view(), state).status.code is Code.SKIP
    assert PLUGIN.prescore(soft, table.all_nodes_view(), state).code is Code.SUCCESS
    assert PLUGIN.prescore(class_of(table, wants()), table.all_nodes_view(), state).code is Code.SKIP


def test_the_emptiest_zone_scores_highest_and_unlabelled_nodes_nothing():
    table = nb.table_of([*zones("x", "y"), nb.node("bare")], existing(0, 0, 1))
    one, state = class_of(table, wants(whenUnsatisfiable="ScheduleAnyway")), CycleState()
    PLUGIN.prescore(one, table.all_nodes_view(), state)
    scores = PLUGIN.normalize(
        PLUGIN.score(one, table.all_nodes_view(), state), one, table.all_nodes_view(), state
    )
    assert scores.tolist() == [33, 100, 0]


@pytest.mark.properties
@given(nb.worlds("spread"), st.data())
def test_filtering_all_nodes_equals_filtering_each_node(world, data):
    nb.judged_as_one_by_one(PLUGIN, world, data)


@pytest.mark.properties
@given(nb.worlds("spread"), st.randoms(use_true_random=False))
def test_state_updated_for_added_and_removed_pods_equals_a_new_count(world, random):
    table = world.table()
    pod, one, state = nb.asking(PLUGIN, world, table)
    # Where kube-scheduler counts otherwise than at first: the selector `{}`, and pods that are being deleted.
    assume(not any(spread.constraint.selection.selects_whole_namespaces for spread in state.read(SPREADS)))
    staying = replace(world, bound=tuple(place for place in world.bound if not place[0].terminating))
    for _ in nb.come_and_go(PLUGIN, staying, table, one, state, random):
        kept, afresh = PLUGIN.filter(one, table.all_nodes_view(), state), filtered(PLUGIN, pod, table)
        assert kept.refused.tolist() == afresh.refused.tolist()


def test_quirk_a_terminating_pod_is_subtracted_though_it_was_never_counted():
    gone = nb.pod("gone", {"app": "a"}, terminating=True)
    table = nb.table_of(zones("x", "y"), [(gone, 0)])
    one, state = class_of(table, wants()), CycleState()
    PLUGIN.prefilter(one, table.all_nodes_view(), state)
    PLUGIN.remove_pod(one, gone, 0, table, state)
    assert PLUGIN.filter(one, table.all_nodes_view(), state).feasible_mask.tolist() == [True, False]


def test_signature_contains_only_what_the_constraints_read():
    assert PLUGIN.signature(wants()) == PLUGIN.signature(
        nb.pod("x", topologySpreadConstraints=[nb.spread(nb.ZONE, "a")])
    )
    assert PLUGIN.signature(wants()) != PLUGIN.signature(wants(skew=2))
    assert PLUGIN.signature(wants()) != PLUGIN.signature(nb.pod("x"))
    assert hash(PLUGIN.signature(wants(nodeAffinityPolicy="Ignore"))) is not None


def test_label_keys_are_those_of_the_constraints():
    one = wants(
        matchLabelKeys=["rev"], labelSelector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    )
    assert PLUGIN.selector_label_keys(one) == {"app", "rev"}

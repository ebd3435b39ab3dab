"""Nominated pods, trials of a node, and the chain of PostFilters."""

from typing import Any

import msgspec
import numpy as np
import pytest

from batchsched.errors import PluginError
from batchsched.framework.preemption import (
    EvictionLimits,
    Nominations,
    PreemptionHandle,
    joined_reasons,
    run_postfilters,
    spec_priority,
)
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import SKIP, Code, PostFilterAnswer, PreFilterAnswer, Status, Verdict
from batchsched.framework.traits import PlacementEffect, PluginTraits, ResultScope
from batchsched.plugins.inter_pod_affinity import InterPodAffinity
from batchsched.plugins.node_affinity import NodeAffinity
from batchsched.plugins.node_ports import NodePorts
from batchsched.plugins.node_resources_fit import NodeResourcesFit
from batchsched.plugins.pod_topology_spread import PodTopologySpread
from batchsched.plugins.taint_toleration import TaintToleration
from tests.plugins.cluster import class_of, judged, land, node, pod, table, with_ports
from tests.plugins.neighbours import near, required
from tests.plugins.storage import ZONE

NOT_NOW = Status(Code.UNSCHEDULABLE, ("not now",))


class Answers:
    """A PostFilter with a configured answer."""

    def __init__(self, name, answer):
        self.name = name
        self.answer = answer
        self.asked = 0

    def postfilter(self, pod, scan, handle):
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def chain(*plugins):
    made, pipeline = table([node("a")]), Pipeline(plugins)
    wish = class_of(made, pod())
    return run_postfilters(
        PreemptionHandle(
            pipeline, wish, made, pipeline.find_nodes_that_pass_filters(wish, made), Nominations({})
        )
    )


def waiting(one, name, priority=0):
    """The pod, nominated for a node."""
    return msgspec.structs.replace(
        one,
        spec=msgspec.structs.replace(one.spec, priority=priority),
        status=msgspec.structs.replace(one.status, nominated_node_name=name),
    )


def scanned(made, one, *nominated, plugins=(NodeResourcesFit,)):
    pipeline = Pipeline([kind() for kind in plugins])
    return judged(pipeline, class_of(made, one), made, Nominations.from_pods(nominated, made)).scan


def test_the_first_success_is_returned_and_later_plugins_are_not_called():
    last = Answers("c", PostFilterAnswer(NOT_NOW))
    plugins = (Answers("a", PostFilterAnswer(NOT_NOW)), Answers("b", PostFilterAnswer(node="a")), last)
    assert chain(*plugins) == PostFilterAnswer(Status(plugin="b"), "a")
    assert not last.asked


def test_refusals_are_combined_under_the_name_of_the_first_plugin():
    other = PostFilterAnswer(Status(Code.UNSCHEDULABLE, ("nor then",)))
    answer = chain(Answers("a", PostFilterAnswer(NOT_NOW)), Answers("b", other))
    assert answer.status == Status(Code.UNSCHEDULABLE, ("not now", "nor then"), "a")
    assert joined_reasons(answer.status) == "not now, nor then"


def test_an_unresolvable_refusal_ends_the_chain():
    last = Answers("b", PostFilterAnswer(node="a"))
    never = Status(Code.UNRESOLVABLE, ("never",))
    assert chain(Answers("a", PostFilterAnswer(never)), last).status == Status(never.code, never.reasons, "a")
    assert not last.asked


def test_an_error_status_ends_the_chain():
    last = Answers("b", PostFilterAnswer(node="a"))
    status = Status(Code.ERROR, ("not found",))
    assert chain(Answers("a", PostFilterAnswer(status)), last).status == Status(
        Code.ERROR, ("not found",), "a"
    )
    assert not last.asked


def test_a_pending_status_is_combined_with_the_refusals():
    later = PostFilterAnswer(Status(Code.PENDING, ("wait",)))
    answer = chain(Answers("a", later), Answers("b", PostFilterAnswer(NOT_NOW)))
    assert answer.status == Status(Code.UNSCHEDULABLE, ("wait", "not now"), "a")


def test_a_refusal_may_clear_the_nomination_or_keep_it():
    silent, cleared = PostFilterAnswer(NOT_NOW), PostFilterAnswer(NOT_NOW, node="")
    assert chain(Answers("a", silent)).node is None
    assert chain(Answers("a", cleared), Answers("b", silent)).node == ""


@pytest.mark.parametrize(
    "answer",
    [
        PostFilterAnswer(SKIP),
        ValueError("x"),
        None,
        PostFilterAnswer(node="atlantis"),
        PostFilterAnswer(node=7),  # type: ignore[arg-type]
        PostFilterAnswer(node="a", victims=("default/stranger",)),
        PostFilterAnswer(victims=("default/stranger",)),
        PostFilterAnswer(node="a", victims="all"),  # type: ignore[arg-type]
    ],
    ids=["skip", "raises", "none", "unknown node", "number", "stranger", "victims nowhere", "text"],
)
def test_any_other_answer_is_an_error_with_the_name_of_the_plugin(answer):
    with pytest.raises(PluginError) as caught:
        chain(Answers("a", answer))
    assert (caught.value.plugin, caught.value.point) == ("a", "PostFilter")


def test_chain_without_postfilters_refuses_without_a_reason():
    assert chain() == PostFilterAnswer(Status(Code.UNSCHEDULABLE))


@pytest.mark.parametrize("priority, fits", [(6, False), (5, False), (4, True)])
def test_a_nominated_pod_of_equal_or_higher_priority_keeps_its_room(priority, fits):
    made = table([node("a", {"cpu": "2"}), node("b", {"cpu": "2"})])
    rival = waiting(pod("rival", {"cpu": "2"}), "a", priority)
    one = waiting(pod("one", {"cpu": "1"}), "", 5)
    wish = class_of(made, one)
    wish = type(wish).from_pod(one, wish.requests, tuple(wish.nonzero), 5)
    pipeline = Pipeline([NodeResourcesFit()])
    scan = judged(pipeline, wish, made, Nominations.from_pods([rival], made, spec_priority)).scan
    assert scan.fits.tolist() == [fits, True]
    assert scan.reasons_at(0) == (() if fits else ("Insufficient cpu",))
    assert len(made.pod_table) == 0
    assert not made.requested.any()


def test_the_nomination_of_a_pod_does_not_block_the_pod_itself():
    made = table([node("a", {"cpu": "2"}), node("b")])
    own = waiting(pod("one", {"cpu": "2"}), "a")
    scan = scanned(made, own, own)
    assert scan.fits.tolist() == [True, False]


def test_the_nominated_node_is_the_only_choice_while_it_fits():
    made = table([node("a", {"cpu": "1"}), node("b")])
    assert scanned(made, waiting(pod("one", {"cpu": "2"}), "a")).fits.tolist() == [False, True]
    assert scanned(made, waiting(pod("one", {"cpu": "1"}), "a")).fits.tolist() == [True, False]
    assert scanned(made, waiting(pod("one"), "gone")).fits.tolist() == [True, True]


def test_filters_evaluate_the_nominated_node_although_prefilter_excluded_it():
    # schedule_one.go, `evaluateNominatedNode` comes before the nodes are narrowed: its refusal is reported.
    named = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}
                ]
            }
        }
    }
    made = table([node("a"), node("b"), node("c", {"cpu": "1"})])
    wish = waiting(pod("one", {"cpu": "2"}, affinity=named), "a")
    scan = scanned(made, wish, plugins=(NodeAffinity, NodeResourcesFit))
    assert scan.fit_error_message() == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_a_placed_nominated_pod_counts_only_on_its_node():
    made = table([node("a", {"cpu": "2"}), node("b")])
    rival = waiting(pod("rival", {"cpu": "2"}), "a")
    land(made, rival, "b")
    assert scanned(made, pod("one", {"cpu": "1"}), rival).fits.tolist() == [True, True]


def test_protected_pods_are_not_candidates_for_eviction():
    there = [pod("p"), pod("q"), pod("r", priority=9)]
    made = table([node("a")], {"a": there})
    wish, pipeline = class_of(made, pod()), Pipeline(())
    wish = type(wish).from_pod(wish.pod, wish.requests, (0, 0), 9)
    spared = EvictionLimits(spares=lambda one: one.name == "q")
    handle = PreemptionHandle(
        pipeline, wish, made, pipeline.find_nodes_that_pass_filters(wish, made), Nominations({}), spared
    )
    assert [one.name for one in handle.potential_victims(0)] == ["p"]


def test_a_pod_must_fit_without_the_nominated_pods_too():
    """Affinity to a pod that is only nominated does not make a node feasible."""
    affinity = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    made = table([node("a")])
    base = waiting(pod("db"), "a")
    friend = msgspec.structs.replace(
        base, metadata=msgspec.structs.replace(base.metadata, labels={"app": "db"})
    )
    scan = scanned(made, pod("one", affinity=affinity), friend, plugins=(InterPodAffinity,))
    assert scan.reasons_at(0) == ("node(s) didn't match pod affinity rules",)


def test_a_trial_restores_the_table_and_the_state():
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
    }
    there = [with_ports("p", {"hostPort": 80}), pod("q", {"cpu": "1"})]
    made = table([node("a"), node("b")], {"a": there})
    one = pod("one", topologySpreadConstraints=[{**spread, "labelSelector": {"matchLabels": {}}}])
    pipeline = Pipeline([NodePorts(), NodeResourcesFit(), PodTopologySpread(), InterPodAffinity()])
    wish = class_of(made, one)
    handle = PreemptionHandle(
        pipeline, wish, made, pipeline.find_nodes_that_pass_filters(wish, made), Nominations({})
    )
    before = made.requested.copy()
    with handle.start_node_dry_run(0) as trial:
        trial.remove_pod(there[0])
        trial.remove_pod(there[1])
        trial.add_pod(there[1])
        assert trial.run_filters().ok
        assert len(made.pod_table) == 1
    assert (made.requested == before).all()
    assert {each.key for each in made.pod_table.pods_on(0)} == {each.key for each in there}
    assert made.pod_table.ports_on[0][there[0].key]
    again = pipeline.find_nodes_that_pass_filters(wish, made)
    assert again.fits.tolist() == handle.scan.fits.tolist()


def test_a_port_that_two_pods_hold_is_free_once_one_has_left_as_in_the_original():
    there = [with_ports("p", {"hostPort": 80}), with_ports("q", {"hostPort": 80})]
    made = table([node("a")], {"a": there})
    pipeline, wish = Pipeline([NodePorts()]), class_of(made, with_ports("one", {"hostPort": 80}))
    handle = PreemptionHandle(
        pipeline, wish, made, pipeline.find_nodes_that_pass_filters(wish, made), Nominations({})
    )
    with handle.start_node_dry_run(0) as trial:
        assert not trial.run_filters().ok
        trial.remove_pod(there[0])
        assert trial.run_filters().ok
    assert not pipeline.find_nodes_that_pass_filters(wish, made).fits.any()


TAINT = {"key": "a", "effect": "NoSchedule"}


def handle_of(one, *plugins, nominated=()):
    bound = {f"n{at}": [pod(f"p{at}", {"cpu": "3"}), pod(f"q{at}", {"cpu": "1"})] for at in range(3)}
    nodes = [node(f"n{at}", {"cpu": "4"}, taints=[TAINT] if at == 2 else []) for at in range(3)]
    made = table(nodes, bound)
    pipeline = Pipeline(plugins)
    wish = class_of(made, one)
    nominations = Nominations.from_pods(nominated, made)
    return PreemptionHandle(
        pipeline, wish, made, pipeline.find_nodes_that_pass_filters(wish, made), nominations
    ), bound


def rows(*some):
    return np.asarray(some, np.int32)


def test_invalid_filter_answer_in_a_dry_run_is_an_error_with_the_name_of_the_plugin():
    class Careless:
        name = "Careless"
        answer: Any = Verdict.accept(3)

        def filter(self, pod, nodes, state):
            return self.answer

    careless = Careless()
    handle, _ = handle_of(pod("x"), careless)
    careless.answer = True
    with handle.start_node_dry_run(0) as trial, pytest.raises(PluginError) as caught:
        trial.run_filters()
    assert (caught.value.plugin, caught.value.point) == ("Careless", "Filter")


def test_trials_remove_and_add_pods_without_changing_the_table():
    handle, bound = handle_of(pod("x", {"cpu": "2"}), NodeResourcesFit(), TaintToleration())
    before = handle.node_table.requested.copy()
    trials = handle.start_candidate_nodes_dry_run([0, 1, 2])
    everyone = [one for some in bound.values() for one in some]
    trials.remove_pods(rows(0, 0, 1, 1, 2, 2), everyone)
    assert [one.ok for one in trials.run_filters()] == [True, True, False]
    trials.add_pods(rows(0, 1), [bound["n0"][0], bound["n1"][1]])
    assert trials.mask_where_pending_pod_still_fits(rows(0, 1)).tolist() == [False, True]
    assert (handle.node_table.requested == before).all()


def test_each_row_of_trials_equals_a_single_trial():
    handle, bound = handle_of(pod("x", {"cpu": "5"}), NodeResourcesFit(), TaintToleration())
    trials = handle.start_candidate_nodes_dry_run([0, 2])
    trials.remove_pods(rows(0, 1), [bound["n0"][0], bound["n2"][0]])
    for at, status in zip((0, 2), trials.run_filters(), strict=True):
        with handle.start_node_dry_run(at) as trial:
            trial.remove_pod(bound[f"n{at}"][0])
            assert trial.run_filters() == status


def test_node_with_a_nominated_pod_is_tried_alone():
    handle, _ = handle_of(pod("x", {"cpu": "5"}), NodeResourcesFit())
    nominated = pod("y", {"cpu": "1"}, priority=1)
    handle = PreemptionHandle(
        handle.pipeline, handle.pod, handle.node_table, handle.scan, Nominations({1: (nominated,)})
    )
    assert handle.start_candidate_nodes_dry_run([0, 1, 2]).node_indexes == (0, 2)


class Counted:
    """Declares that it depends on counts only, and returns an invalid verdict."""

    name = "Counted"
    traits = PluginTraits(
        placement_effect=PlacementEffect.USES_CAPACITY, result_scope=ResultScope.NODE_AND_ITS_PODS
    )

    def signature(self, pod):
        return None

    def filter(self, pod, nodes, state):
        return Verdict.accept(len(nodes) + 1) if len(nodes) == 1 else Verdict.accept(len(nodes))


def test_invalid_verdict_in_a_trial_names_the_plugin():
    handle, _ = handle_of(pod("x", {"cpu": "5"}), Counted())
    with pytest.raises(PluginError, match="plugin Counted failed in Filter"):
        handle.start_candidate_nodes_dry_run([0]).run_filters()


class Unknown:
    """Declares no result scope."""

    name = "Unknown"

    def prefilter(self, pod, nodes, state):
        return PreFilterAnswer()

    def filter(self, pod, nodes, state):
        return Verdict.accept(len(nodes))


@pytest.mark.parametrize(
    "one, plugin, together",
    [
        (pod("x"), NodeResourcesFit(), True),
        (pod("x"), TaintToleration(), True),
        (pod("x"), NodePorts(), True),
        (with_ports("x", {"hostPort": 80}), NodePorts(), False),
        (pod("x"), InterPodAffinity(), True),
        (pod("x", affinity=required(apart=[near(ZONE, app="a")])), InterPodAffinity(), False),
        (pod("x"), Unknown(), False),
    ],
    ids=["fit", "taints", "no ports", "ports", "alone", "apart", "unknown"],
)
def test_nodes_are_tried_together_if_no_plugin_reads_individual_pods(one, plugin, together):
    handle, _ = handle_of(one, plugin)
    assert handle.start_candidate_nodes_dry_run([0, 1]).node_indexes == ((0, 1) if together else ())

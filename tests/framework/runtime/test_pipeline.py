"""The pipeline: the order of calls, the effect of each answer, and invalid answers."""

from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from batchsched.errors import PluginError
from batchsched.framework.constrain import CandidateSet, ConstraintRow
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.runtime.pipeline import Pipeline, plugin_names
from batchsched.framework.status import SKIP, SUCCESS, Code, PermitAnswer, PreFilterAnswer, Status, Verdict
from batchsched.framework.traits import PlacementEffect, PluginTraits
from tests.plugins.cluster import class_of, node, pod, table

NO = Status(Code.UNSCHEDULABLE, ("not now",))
NEVER = Status(Code.UNRESOLVABLE, ("never",))
Calls = list[tuple[str, str]]


class Named:
    """A plugin with a configured answer that records its calls; subclasses add extension points."""

    def __init__(self, name: str, calls: Calls | None = None, answer: Any = None) -> None:
        self.name = name
        self.calls = calls if calls is not None else []
        self.answer = answer

    def say(self, point: str, default: Any) -> Any:
        self.calls.append((point, self.name))
        if isinstance(self.answer, Exception):
            raise self.answer
        return default if self.answer is None else self.answer

    def signature(self, pod):
        return self.name


class PreEnqueues(Named):
    def preenqueue(self, pod):
        return self.say("PreEnqueue", SUCCESS)


class PreFilters(Named):
    def prefilter(self, pod, nodes, state):
        return self.say("PreFilter", PreFilterAnswer())


class Filters(Named):
    traits = PluginTraits(placement_effect=PlacementEffect.NONE)

    def filter(self, pod, nodes, state):
        return self.say("Filter", Verdict.accept(len(nodes)))


class Both(PreFilters, Filters):
    @override
    def filter(self, pod, nodes, state):
        self.calls.append(("Filter", self.name))
        return Verdict.accept(len(nodes))


class Scores(Named):
    def score(self, pod, nodes, state):
        return np.asarray(self.say("Score", np.zeros(len(nodes), np.int64)))


class PreScores(Scores):
    def prescore(self, pod, nodes, state):
        return self.say("PreScore", SUCCESS)

    @override
    def score(self, pod, nodes, state):
        self.calls.append(("Score", self.name))
        return np.full(len(nodes), 100, np.int64)


class Reserves(Named):
    def reserve(self, pod, node, nodes, state):
        return self.say("Reserve", SUCCESS)

    def unreserve(self, pod, node, nodes, state):
        self.calls.append(("Unreserve", self.name))


class Permits(Named):
    def permit(self, pod, node, nodes, state):
        return self.say("Permit", PermitAnswer())


def three() -> NodeTable:
    return table([node("n0"), node("n1"), node("n2")])


def refuse(*marked: bool) -> Verdict:
    return Verdict.refuse(np.array(marked), "marked", unresolvable=False)


def scan(*plugins: Named):
    made = three()
    return Pipeline(plugins).find_nodes_that_pass_filters(class_of(made, pod()), made)


def test_first_refusal_of_preenqueue_is_returned_and_later_plugins_are_not_called():
    calls: Calls = []
    plugins = [PreEnqueues("a", calls), PreEnqueues("b", calls, NO), PreEnqueues("c", calls)]
    assert Pipeline(plugins).preenqueue(pod()) == Status(NO.code, NO.reasons, "b")
    assert calls == [("PreEnqueue", "a"), ("PreEnqueue", "b")]
    assert Pipeline(plugins[:1]).preenqueue(pod()) is SUCCESS


def test_prefilters_run_before_filters_in_the_order_of_the_profile():
    calls: Calls = []
    found = scan(Both("a", calls), Filters("b", calls), Both("c", calls))
    assert calls == [(p, n) for p, ns in (("PreFilter", "ac"), ("Filter", "abc")) for n in ns]
    assert found.fits.all()
    assert found.plugins == ("a", "b", "c")


def test_unresolvable_prefilter_ends_the_cycle():
    calls: Calls = []
    found = scan(
        Both("a", calls), Both("b", calls, PreFilterAnswer(NEVER)), Both("c", calls), Filters("d", calls)
    )
    assert calls == [("PreFilter", "a"), ("PreFilter", "b")]
    assert (found.status.code, found.status.plugin) == (Code.UNRESOLVABLE, "b")
    assert not found.fits.any()


def test_later_prefilters_run_after_an_unschedulable_one_and_the_first_refusal_is_returned():
    calls: Calls = []
    later = PreFilterAnswer(Status(Code.UNSCHEDULABLE, ("later",)))
    found = scan(Both("a", calls, PreFilterAnswer(NO)), Both("b", calls, later), Filters("c", calls))
    assert calls == [("PreFilter", "a"), ("PreFilter", "b")]
    assert (found.status.reasons, found.status.plugin) == (("not now",), "a")


def test_unresolvable_refusal_replaces_an_earlier_unschedulable_one():
    found = scan(Both("a", answer=PreFilterAnswer(NO)), Both("b", answer=PreFilterAnswer(NEVER)))
    assert (found.status.code, found.status.plugin) == (Code.UNRESOLVABLE, "b")


def test_prefilter_that_skips_skips_only_its_own_filter():
    calls: Calls = []
    found = scan(Both("a", calls, PreFilterAnswer(SKIP)), Both("b", calls))
    assert calls == [("PreFilter", "a"), ("PreFilter", "b"), ("Filter", "b")]
    assert found.plugins == ("b",)


def test_prefilters_narrow_the_nodes_together():
    found = scan(
        Both("a", answer=PreFilterAnswer(nodes=frozenset({"n0", "n1"}))),
        Both("b", answer=PreFilterAnswer(nodes=frozenset({"n1", "n2", "n9"}))),
    )
    assert found.fits.tolist() == [False, True, False]
    assert found.narrowed_by == ("a", "b")
    assert found.code_at(0) is Code.UNRESOLVABLE
    assert found.code_at(1) is Code.SUCCESS


def test_first_plugin_that_refuses_a_node_gives_its_reason():
    other = Verdict.refuse(np.array([True, True, False]), "other", unresolvable=True)
    found = scan(Filters("a", answer=refuse(True, False, False)), Filters("b", answer=other))
    assert found.fits.tolist() == [False, False, True]
    assert [found.reasons_at(at) for at in range(3)] == [("marked",), ("other",), ()]
    assert [found.code_at(at) for at in range(3)] == [Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.SUCCESS]


@pytest.mark.parametrize("answer", [None, refuse(True), "yes"])
def test_verdict_of_the_wrong_shape_is_an_error(answer):
    class Odd(Filters):
        @override
        def filter(self, pod, nodes, state):
            return answer

    with pytest.raises(PluginError, match="plugin odd failed in Filter: expected a Verdict over 3 nodes"):
        scan(Odd("odd"))


class Refuses(Named):
    """A Filter that refuses the configured nodes."""

    def filter(self, pod, nodes, state):
        return Verdict.refuse(np.isin(nodes.node_indexes, self.answer), "no", unresolvable=False)


class Breaks(Named):
    """A Filter that raises for the configured nodes."""

    def filter(self, pod, nodes, state):
        if np.isin(nodes.node_indexes, self.answer).any():
            raise KeyError("x")
        return Verdict.refuse(nodes.node_indexes == 2, "odd", unresolvable=True)


def test_error_of_a_filter_on_already_refused_nodes_is_ignored():
    # runtime/framework.go, `RunFilterPlugins` ends at the first refusal of a node.
    found = scan(Refuses("a", answer=[0]), Breaks("b", answer=[0]))
    assert [found.reasons_at(at) for at in range(3)] == [("no",), (), ("odd",)]
    assert not scan(Refuses("a", answer=[0, 1, 2]), Breaks("b", answer=[0])).fits.any()
    with pytest.raises(PluginError, match="plugin b failed in Filter: KeyError: 'x'"):
        scan(Refuses("a", answer=[0]), Breaks("b", answer=[1]))


def test_error_names_the_plugin_and_its_point_and_keeps_the_cause():
    with pytest.raises(PluginError, match="plugin a failed in PreFilter: KeyError: 'x'") as caught:
        scan(PreFilters("a", answer=KeyError("x")))
    assert isinstance(caught.value.__cause__, KeyError)


def total(plugins: list[Named], weights: dict[str, int] | None = None) -> list[int]:
    made = three()
    some = np.array([0, 2], np.int32)
    scored = Pipeline(plugins, weights).score(class_of(made, pod()), some, made, CycleState())
    return list(scored.tolist())


def test_scores_of_feasible_nodes_are_weighted_and_summed():
    plugins: list[Named] = [Scores("a", answer=[1, 2]), Scores("b", answer=[100, 0])]
    assert total(plugins, {"a": 10}) == [110, 20]


def test_scores_are_normalized_before_they_are_weighted():
    class Normalizing(Scores):
        def normalize(self, scores, pod, nodes, state):
            return 100 - scores // 10

    assert total([Normalizing("a", answer=[1000, 0])], {"a": 2}) == [0, 200]


def test_prescore_that_skips_skips_only_its_own_score():
    calls: Calls = []
    assert total([PreScores("a", calls, SKIP), PreScores("b", calls)]) == [100, 100]
    assert calls == [("PreScore", "a"), ("PreScore", "b"), ("Score", "b")]


@pytest.mark.parametrize("answer", [[101, 0], [0, -1], [1], 7])
def test_scores_out_of_range_or_of_the_wrong_length_are_an_error(answer):
    with pytest.raises(PluginError, match="plugin a failed in Score: expected 2 whole numbers from 0 to 100"):
        total([Scores("a", answer=answer)])


def reserving(*plugins: Named) -> Status:
    made = three()
    return Pipeline(plugins).reserve(pod(), 0, made, CycleState())


def test_refused_reserve_unreserves_all_plugins_in_reverse_order():
    calls: Calls = []
    status = reserving(Reserves("a", calls), Reserves("b", calls, NO), Reserves("c", calls))
    assert status.plugin == "b"
    assert [name for point, name in calls if point == "Reserve"] == ["a", "b"]
    assert [name for point, name in calls if point == "Unreserve"] == ["c", "b", "a"]


def test_reserve_that_raises_unreserves_all_plugins_too():
    calls: Calls = []
    with pytest.raises(PluginError, match="plugin b failed in Reserve"):
        reserving(Reserves("a", calls), Reserves("b", calls, ValueError("no")))
    assert [name for point, name in calls if point == "Unreserve"] == ["b", "a"]


class Spares(Reserves):
    """Reserves nothing for pods with the name `plain`."""

    def reserves_nothing(self, pod, nodes):
        return self.answer if self.answer is not None else pod.pod.name == "plain"


@pytest.mark.parametrize("name, asked", [("plain", ["b"]), ("other", ["a", "b"])])
def test_reserve_is_not_called_for_a_class_for_which_it_reserves_nothing(name, asked):
    calls: Calls = []
    made, one = three(), pod(name)
    pipeline = Pipeline([Spares("a", calls), Reserves("b", calls)])
    keeping = pipeline.stateful_reserve_plugins(class_of(made, one), made)
    assert pipeline.reserve(one, 0, made, CycleState(), keeping).ok
    assert calls == [("Reserve", name) for name in asked]
    pipeline.unreserve(one, 0, made, CycleState())
    assert [name for point, name in calls if point == "Unreserve"] == ["b", "a"]


def test_reserves_nothing_must_return_a_boolean():
    made = three()
    with pytest.raises(PluginError, match="plugin a failed in Reserve: expected True or False"):
        Pipeline([Spares("a", answer="no")]).stateful_reserve_plugins(class_of(made, pod()), made)


def test_unreserve_of_all_plugins_is_called_although_one_raises():
    class Broken(Reserves):
        @override
        def unreserve(self, pod, node, nodes, state):
            super().unreserve(pod, node, nodes, state)
            raise RuntimeError(self.name)

    calls: Calls = []
    made = three()
    plugins = [Broken("a", calls), Reserves("b", calls), Broken("c", calls)]
    with pytest.raises(PluginError, match="plugin c failed in Unreserve"):
        Pipeline(plugins).unreserve(pod(), 0, made, CycleState())
    assert [name for _, name in calls] == ["c", "b", "a"]


def permitting(*plugins: Named) -> tuple[PermitAnswer, ...]:
    return Pipeline(plugins).permit(pod(), 0, three(), CycleState())


def test_permit_collects_all_plugins_that_answer_wait():
    wait = PermitAnswer(Status(Code.WAIT), 5.0)
    answers = permitting(Permits("a", answer=wait), Permits("b"), Permits("c", answer=wait))
    assert [(one.status.plugin, one.timeout_seconds) for one in answers] == [("a", 5.0), ("c", 5.0)]


def test_refusal_at_permit_discards_earlier_waits():
    calls: Calls = []
    wait = PermitAnswer(Status(Code.WAIT), 5.0)
    answers = permitting(
        Permits("a", calls, wait), Permits("b", calls, PermitAnswer(NO)), Permits("c", calls)
    )
    assert [one.status.plugin for one in answers] == ["b"]
    assert calls == [("Permit", "a"), ("Permit", "b")]


def test_filters_that_placed_pods_do_not_affect_are_not_called_again():
    calls: Calls = []

    class Shifting(Filters):
        traits = PluginTraits(placement_effect=PlacementEffect.ANY)

    made = three()
    shifting = Shifting("b", calls, Verdict.refuse(np.array([True]), "full", unresolvable=True))
    pipeline = Pipeline([Filters("a", calls), shifting])
    pod_class = class_of(made, pod())
    status = pipeline.recheck_node(pod_class, 1, made, CycleState())
    assert (status.code, status.reasons, status.plugin) == (Code.UNRESOLVABLE, ("full",), "b")
    assert calls == [("Filter", "b")]
    state = CycleState()
    state.skip_filter.add("b")
    assert pipeline.recheck_node(pod_class, 1, made, state) is SUCCESS


def test_name_of_a_plugin_is_its_attribute_or_its_class_name():
    class Strange:
        pass

    assert plugin_names([Filters("a"), Strange()]) == ("a", "Strange")


def test_admits_is_called_only_if_every_affected_filter_implements_it():
    class Counting(Filters):
        traits = PluginTraits(placement_effect=PlacementEffect.TIGHTENS)

        def allows_bulk_placement(self, pod, table, nodes, counts):
            return bool(counts.max() < 3)

    class Slow(Filters):
        traits = PluginTraits(placement_effect=PlacementEffect.ANY)

    made = three()
    pod_class = class_of(made, pod())

    def asked(count: int, *plugins: Named) -> bool | None:
        nodes, counts = np.array([1], np.int32), np.array([count], np.int32)
        return Pipeline(plugins).allows_bulk_placement(pod_class, made, nodes, counts, CycleState())

    assert asked(2, Counting("a"), Filters("b")) is True
    assert asked(3, Counting("a")) is False
    assert asked(2, Counting("a"), Slow("b")) is None


def test_add_pod_is_called_on_stateful_plugins_that_did_not_skip():
    calls: Calls = []

    class Keeping(PreFilters):
        def add_pod(self, pod, added, node, nodes, state):
            self.calls.append(("AddPod", self.name))

        def remove_pod(self, pod, removed, node, nodes, state):
            raise AssertionError

    made = three()
    pipeline = Pipeline([Keeping("a", calls), Keeping("b", calls), PreFilters("c", calls)])
    state = CycleState()
    state.skip_filter.add("b")
    pipeline.run_add_pod(class_of(made, pod()), pod("other"), 0, made, state)
    assert calls == [("AddPod", "a")]


def test_run_prefilters_calls_no_filter():
    calls: Calls = []
    made = three()
    state, status = Pipeline([Both("a", calls, PreFilterAnswer(SKIP))]).run_prefilters(
        class_of(made, pod()), made
    )
    assert calls == [("PreFilter", "a")]
    assert status.ok
    assert state.skip_filter == {"a"}


def test_rows_of_all_plugins_are_collected_in_order():
    class Constrains(Named):
        def constrain(self, batch, nodes):
            return self.say("Constrain", None)

    empty = np.zeros(0, np.int32)
    rows = [
        ConstraintRow(-1, empty, empty.astype(np.int64), np.zeros(1, np.int64), plugin=name) for name in "abc"
    ]
    pipeline = Pipeline([Constrains("a", answer=rows[:2]), Constrains("b", answer=rows[2:])])
    assert pipeline.constrain(CandidateSet(()), three()) == tuple(rows)


def test_signature_combines_those_of_the_plugins_or_is_the_whole_pod_if_one_has_none():
    one, other = pod("one", {"cpu": "1"}), pod("other", {"cpu": "2"})
    signed = Pipeline([Filters("a")])
    assert signed.signature(one) == signed.signature(pod("other", {"cpu": "1"}))
    assert signed.signature(one) != signed.signature(other), "pods of one class have equal requests"
    assert not signed.reads_all

    class Bare:
        name = "bare"

        def filter(self, pod, nodes, state):
            return Verdict.accept(len(nodes))

    bare = Pipeline([Filters("a"), Bare()])
    assert bare.reads_all
    assert bare.signature(one) != bare.signature(other)
    assert bare.signature(one) == bare.signature(pod("third", {"cpu": "1"}))


def test_label_keys_are_the_union_of_those_of_the_plugins():
    class Reads(Named):
        def selector_label_keys(self, pod):
            return frozenset(self.say("Signature", None))

    assert Pipeline([Reads("a", answer={"x"}), Reads("b", answer={"y"})]).selector_label_keys(pod(), []) == {
        "x",
        "y",
    }

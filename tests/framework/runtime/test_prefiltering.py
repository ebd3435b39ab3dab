"""A PreFilter with an answer that lasts for a class is not called for it again."""

import pytest

from batchsched.framework.cycle_state import StateKey
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.result_cache import PodClassResults
from batchsched.framework.status import (
    LASTING_SKIP_FILTER,
    SKIP,
    SUCCESS,
    Code,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import PluginTraits, ResultScope
from tests.plugins.cluster import class_of, land, node, pod, table

SEEN = StateKey[int]("Counting/seen")


class Counting:
    """Counts its PreFilter calls, and passes the count to its Filter."""

    name = "Counting"

    def __init__(self, far, answer=None):
        self.traits = PluginTraits(result_scope=far)
        self.answer = answer or PreFilterAnswer()
        self.asked = 0

    def signature(self, pod):
        return None

    def prefilter(self, pod, nodes, state):
        self.asked += 1
        state.write(SEEN, self.asked)
        return self.answer

    def filter(self, pod, nodes, state):
        assert state.read(SEEN) == self.asked
        return Verdict.accept(len(nodes))


class Following(Counting):
    """Updates its state as pods are added and removed."""

    def add_pod(self, pod, added, node, nodes, state):
        """Count nothing."""

    def remove_pod(self, pod, removed, node, nodes, state):
        """Count nothing."""


class Silent:
    """Has no signature."""

    name = "Silent"
    traits = PluginTraits(result_scope=ResultScope.ALL_NODE_OBJECTS)
    asked = 0

    def prefilter(self, pod, nodes, state):
        self.asked += 1
        return PreFilterAnswer(SKIP)


def asked_twice(plugin):
    """The calls of a plugin in two scans with a placement in between; the second scan equals one without a cache."""
    made, pipeline, standing = table([node("n0"), node("n1")]), Pipeline([plugin]), PodClassResults()
    wish = class_of(made, pod())
    pipeline.find_nodes_that_pass_filters(wish, made, standing)
    land(made, pod("p"), "n1")
    second = pipeline.find_nodes_that_pass_filters(wish, made, standing)
    asked = plugin.asked
    fresh = pipeline.find_nodes_that_pass_filters(wish, made)
    assert (second.status, second.fits.tolist(), second.state.skip_filter) == (
        fresh.status,
        fresh.fits.tolist(),
        fresh.state.skip_filter,
    )
    return asked


@pytest.mark.parametrize("far", [ResultScope.ALL_NODE_OBJECTS, ResultScope.NODE_AND_ITS_PODS])
@pytest.mark.parametrize("answer", [SUCCESS, SKIP], ids=["success", "skip"])
def test_prefilter_that_placed_pods_do_not_affect_is_called_once(far, answer):
    assert asked_twice(Counting(far, PreFilterAnswer(answer))) == 1


@pytest.mark.parametrize("kind", [Counting, Following])
def test_prefilter_with_a_lasting_skip_is_called_once(kind):
    assert asked_twice(kind(ResultScope.CLUSTER, LASTING_SKIP_FILTER)) == 1


def test_prefilter_with_a_lasting_skip_is_called_again_after_a_node_changed():
    made, plugin, standing = (
        table([node("n0")]),
        Counting(ResultScope.CLUSTER, LASTING_SKIP_FILTER),
        PodClassResults(),
    )
    wish = class_of(made, pod())
    Pipeline([plugin]).find_nodes_that_pass_filters(wish, made, standing)
    made.replace_all_nodes([node("n0", labels={"zone": "a"})])
    Pipeline([plugin]).find_nodes_that_pass_filters(wish, made, standing)
    assert plugin.asked == 2


@pytest.mark.parametrize(
    "plugin",
    [
        Counting(ResultScope.CLUSTER),
        Counting(ResultScope.CLUSTER, PreFilterAnswer(SKIP)),
        Following(ResultScope.NODE_AND_ITS_PODS),
        Silent(),
    ],
    ids=["cluster", "skips", "follows", "unsigned"],
)
def test_prefilter_that_placed_pods_may_affect_is_called_each_time(plugin):
    assert asked_twice(plugin) == 2


@pytest.mark.parametrize(
    "answer",
    [
        PreFilterAnswer(Status(Code.UNSCHEDULABLE, ("no",))),
        PreFilterAnswer(Status(Code.UNRESOLVABLE, ("never",))),
        PreFilterAnswer(nodes=frozenset({"n1"})),
    ],
    ids=["unschedulable", "unresolvable", "narrows"],
)
def test_prefilter_that_refuses_or_narrows_is_called_each_time(answer):
    assert asked_twice(Counting(ResultScope.ALL_NODE_OBJECTS, answer)) == 2

"""PreScore plugins with a permanent result for the same nodes are not called again."""

import numpy as np
import pytest

from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.result_cache import PodClassResults
from batchsched.framework.status import LASTING_SKIP, SKIP, SUCCESS
from batchsched.framework.traits import PluginTraits, ResultScope
from tests.plugins.cluster import class_of, node, pod, table

BEST = StateKey[int]("Counting/best")


class Counting:
    """Counts its PreScore calls; its score is the value that PreScore wrote."""

    name = "Counting"

    def __init__(self, far, answer=SUCCESS):
        self.traits = PluginTraits(result_scope=far)
        self.answer = answer
        self.asked = 0

    def signature(self, pod):
        return None

    def prescore(self, pod, nodes, state):
        self.asked += 1
        state.write(BEST, len(nodes))
        return self.answer

    def score(self, pod, nodes, state):
        return np.full(len(nodes), state.read(BEST), np.int64)


def totals(plugin, *feasible):
    made, pipeline, standing = (
        table([node(f"n{at}") for at in range(4)]),
        Pipeline([plugin]),
        PodClassResults(),
    )
    wish = class_of(made, pod())
    return [
        pipeline.score(
            wish, standing.feasible_node_indexes(np.isin(np.arange(4), some)), made, CycleState(), standing
        ).tolist()
        for some in feasible
    ]


@pytest.mark.parametrize("far", [ResultScope.ALL_NODE_OBJECTS, ResultScope.NODE_AND_ITS_PODS])
def test_prescore_is_called_once_for_the_same_nodes(far):
    plugin = Counting(far)
    assert totals(plugin, [0, 1, 3], [0, 1, 3]) == [[3, 3, 3], [3, 3, 3]]
    assert plugin.asked == 1


def test_prescore_is_called_again_if_other_nodes_are_feasible():
    plugin = Counting(ResultScope.ALL_NODE_OBJECTS)
    totals(plugin, [0, 1, 3], [0, 1], [0, 1])
    assert plugin.asked == 2


def test_prescore_with_cluster_scope_is_called_each_time():
    plugin = Counting(ResultScope.CLUSTER)
    assert totals(plugin, [0, 1], [0, 1]) == [[2, 2], [2, 2]]
    assert plugin.asked == 2


def test_skip_of_prescore_is_cached_too():
    plugin = Counting(ResultScope.ALL_NODE_OBJECTS, SKIP)
    assert totals(plugin, [0, 1], [0, 1]) == [[0, 0], [0, 0]]
    assert plugin.asked == 1


def test_prescore_with_a_lasting_skip_is_called_once_for_the_same_nodes():
    plugin = Counting(ResultScope.CLUSTER, LASTING_SKIP)
    assert totals(plugin, [0, 1], [0, 1], [0, 1, 2]) == [[0, 0], [0, 0], [0, 0, 0]]
    assert plugin.asked == 2

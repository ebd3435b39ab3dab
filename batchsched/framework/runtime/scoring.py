"""PreScore and Score: calls the plugins that rank nodes, reuses valid results, and adds up the scores."""

from collections.abc import Callable, Sequence

from batchsched.framework import interface as points
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.runtime.plugin_call import name_of
from batchsched.framework.runtime.result_cache import ClassResults
from batchsched.framework.runtime.scorer import PluginScorer, Scorer
from batchsched.framework.status import Code, IndexArray, IntArray
from batchsched.framework.traits import ResultScope


class Scoring:
    """The PreScore and Score plugins of a pipeline.

    Args:
      prescores: PreScore plugins in the order of their calls.
      scorers: the Score plugins in the order of their calls.
      lasting: returns True if a PreScore's state may be reused for the same nodes until a Node object changes.
    """

    def __init__(
        self,
        prescores: Sequence[points.PreScorePlugin],
        scorers: Sequence[Scorer],
        lasting: Callable[[object], bool],
    ) -> None:
        self._prescores = tuple((one, name_of(one), lasting(one)) for one in prescores)
        self._fleeting = tuple(one for one in self._prescores if not one[2])
        self._scorers = tuple(scorers)

    def total(
        self, asking: PluginScorer, feasible: IndexArray, table: NodeTable, results: ClassResults
    ) -> IntArray:
        """[n] Return Σ weight · normalised score of the feasible nodes, in ascending order of nodes.

        Raises:
          PluginError: a plugin failed, or its score is outside 0..100 after NormalizeScore.
        """
        nodes = table.these(feasible)
        self._prescore(asking, feasible, nodes, results)
        skipped = asking.state.skip_score
        scorers = [one for one in self._scorers if one.name not in skipped]
        near = tuple(one for one in scorers if one.scope is not ResultScope.CLUSTER)
        total = results.total_scores(near, asking, feasible, table)
        # Results with scope CLUSTER are never cached: a pod on any node may change them.
        for scorer in scorers:
            if scorer.scope is ResultScope.CLUSTER:
                total += scorer.weight * asking.normal(scorer, asking.raw(scorer, nodes), nodes)
        return total

    def _prescore(
        self, asking: PluginScorer, feasible: IndexArray, nodes: Nodes, results: ClassResults
    ) -> None:
        """Call the PreScores; those with a valid cached state for these nodes are not called again."""
        state, stored = asking.state, results.prescore_state(nodes.table, feasible)
        if stored is not None:
            state.take(stored)
            self._ask(self._fleeting, asking, nodes, state)
            return
        # The state below lets a PreScore read what PreFilters wrote, without copying it into the cache.
        lasting = CycleState(state)
        self._ask(self._prescores, asking, nodes, lasting)
        state.take(lasting)
        # Cache the PreScores' own values only: values from below belong to one pod.
        kept = CycleState()
        kept.take(lasting)
        results.keep_prescore_state(nodes.table, feasible, kept)

    def _ask(
        self,
        prescores: Sequence[tuple[points.PreScorePlugin, str, bool]],
        asking: PluginScorer,
        nodes: Nodes,
        lasting: CycleState,
    ) -> None:
        for plugin, name, lasts in prescores:
            state = lasting if lasts else asking.state
            answer = asking.timings.ask(plugin, "PreScore", plugin.prescore, asking.pod, nodes, state)
            if answers.status(plugin, "PreScore", answer).code is Code.SKIP:
                state.skip_score.add(name)

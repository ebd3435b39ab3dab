"""Score and NormalizeScore of one plugin about one pod, called and validated."""

from collections.abc import Mapping
from dataclasses import dataclass

from batchsched.framework import interface as points
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.runtime.plugin_call import name_of
from batchsched.framework.runtime.timing import PluginTimings
from batchsched.framework.status import IntArray
from batchsched.framework.traits import ResultScope


@dataclass(frozen=True, slots=True, eq=False)
class Scorer:
    """A Score plugin of a pipeline.

    Args:
      plugin: the plugin.
      name: the plugin's name.
      scope: the part of the cluster on which its raw scores depend.
      weight: the factor of its score in the total.
      normalizing: the plugin again if it has NormalizeScore; None if its raw scores are in 0..100.
    """

    plugin: points.ScorePlugin
    name: str
    scope: ResultScope
    weight: int
    normalizing: points.NormalizeScorePlugin | None

    @classmethod
    def of(cls, plugin: points.ScorePlugin, scope: ResultScope, weights: Mapping[str, int]) -> "Scorer":
        """Create the scorer of a plugin, with weight 1 if `weights` has none for its name."""
        normalizing = plugin if isinstance(plugin, points.NormalizeScorePlugin) else None
        name = name_of(plugin)
        return cls(plugin, name, scope, weights.get(name, 1), normalizing)


@dataclass(slots=True, eq=False)
class PluginScorer:
    """Calls Score plugins about one pod.

    Args:
      timings: measures the calls.
      pod: the class of the pod.
      state: the cycle state of the pod.
    """

    timings: PluginTimings
    pod: PodClass
    state: CycleState

    def raw(self, scorer: Scorer, nodes: Nodes) -> IntArray:
        """[n] Return the scores of n nodes. They are final if the plugin has no NormalizeScore.

        Raises:
          PluginError: the plugin raised an exception or returned an invalid answer.
        """
        scores = self.timings.ask(scorer.plugin, "Score", scorer.plugin.score, self.pod, nodes, self.state)
        if scorer.normalizing is None:
            return answers.scores(scorer.plugin, "Score", scores, len(nodes))
        return answers.raw_scores(scorer.plugin, scores, len(nodes))

    def normal(self, scorer: Scorer, scores: IntArray, nodes: Nodes) -> IntArray:
        """[n] Return raw scores of n nodes mapped to 0..100; unchanged if the plugin has no NormalizeScore.

        Raises:
          PluginError: the plugin raised an exception or returned an invalid answer.
        """
        if scorer.normalizing is None:
            return scores
        normalized = self.timings.ask(
            scorer.plugin, "NormalizeScore", scorer.normalizing.normalize, scores, self.pod, nodes, self.state
        )
        return answers.scores(scorer.plugin, "NormalizeScore", normalized, len(nodes))

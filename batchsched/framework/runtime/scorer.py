"""Score and NormalizeScore of one plugin for one pod, asked and checked."""

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
      name: its name.
      scope: the part of the cluster that determines its raw scores.
      weight: of its score in the total.
      normalizing: the plugin again, where it brings raw scores into 0..100; None where they are that already.
    """

    plugin: points.ScorePlugin
    name: str
    scope: ResultScope
    weight: int
    normalizing: points.NormalizeScorePlugin | None

    @classmethod
    def of(cls, plugin: points.ScorePlugin, scope: ResultScope, weights: Mapping[str, int]) -> "Scorer":
        """Make one of a plugin; its weight is 1 where none is stated."""
        normalizing = plugin if isinstance(plugin, points.NormalizeScorePlugin) else None
        name = name_of(plugin)
        return cls(plugin, name, scope, weights.get(name, 1), normalizing)


@dataclass(slots=True, eq=False)
class PluginScorer:
    """One pod's questions to the Score plugins."""

    timings: PluginTimings
    pod: PodClass
    state: CycleState

    def raw(self, one: Scorer, nodes: Nodes) -> IntArray:
        """[n] Ask for the scores of n nodes; final where no NormalizeScore follows.

        Raises:
          PluginError: the plugin broke, or answered nonsense.
        """
        scores = self.timings.ask(one.plugin, "Score", one.plugin.score, self.pod, nodes, self.state)
        if one.normalizing is None:
            return answers.scores(one.plugin, "Score", scores, len(nodes))
        return answers.raw_scores(one.plugin, scores, len(nodes))

    def normal(self, one: Scorer, scores: IntArray, nodes: Nodes) -> IntArray:
        """[n] Bring scores of n nodes into 0..100; as they are where no NormalizeScore follows.

        Raises:
          PluginError: the plugin broke, or answered nonsense.
        """
        if one.normalizing is None:
            return scores
        made = self.timings.ask(
            one.plugin, "NormalizeScore", one.normalizing.normalize, scores, self.pod, nodes, self.state
        )
        return answers.scores(one.plugin, "NormalizeScore", made, len(nodes))

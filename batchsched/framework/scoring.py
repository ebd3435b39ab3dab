"""Score and NormalizeScore of one plugin, asked and checked: what a `Scorer` calls."""

from batchsched.framework import answers, points
from batchsched.framework.nodes import Nodes
from batchsched.framework.podclass import PodClass
from batchsched.framework.state import CycleState
from batchsched.framework.status import IntArray
from batchsched.framework.timing import Timings


def raw(
    timings: Timings,
    plugin: points.ScorePlugin,
    pod: PodClass,
    state: CycleState,
    final: bool,
    nodes: Nodes,
) -> IntArray:
    """[n] Ask for the scores of n nodes; final where no NormalizeScore follows.

    Raises:
      PluginError: the plugin broke, or answered nonsense.
    """
    scores = timings.ask(plugin, "Score", plugin.score, pod, nodes, state)
    if final:
        return answers.scores(plugin, "Score", scores, len(nodes))
    return answers.raw_scores(plugin, scores, len(nodes))


def normal(
    timings: Timings,
    plugin: points.NormalizeScorePlugin,
    pod: PodClass,
    state: CycleState,
    scores: IntArray,
    nodes: Nodes,
) -> IntArray:
    """[n] Bring scores of n nodes into 0..100.

    Raises:
      PluginError: the plugin broke, or answered nonsense.
    """
    made = timings.ask(plugin, "NormalizeScore", plugin.normalize, scores, pod, nodes, state)
    return answers.scores(plugin, "NormalizeScore", made, len(nodes))

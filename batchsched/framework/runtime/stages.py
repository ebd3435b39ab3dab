"""The stages of the pipeline that write cycle state for a pod class: PreFilter, and PreScore with Score.

Each stage calls its plugins, validates and combines their answers, and reuses cycle state that is still valid.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from batchsched.framework import interface as points
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.runtime.plugin_call import PluginCallSampler, plugin_name
from batchsched.framework.runtime.result_cache import PodClassResults, PodClassScorer, WeightedScorePlugin
from batchsched.framework.status import SUCCESS, BoolArray, Code, IndexArray, IntArray, Status
from batchsched.framework.traits import ResultScope


class PreFilterOutcome(NamedTuple):
    """The combined answer of the PreFilter plugins for a pod class.

    Args:
      state: the cycle state with what the plugins wrote.
      status: the refusal, or Success.
      allowed: [N] nodes that the plugins permit, None for all.
      narrowed_by: the plugins that restrict the nodes.
    """

    state: CycleState
    status: Status
    allowed: BoolArray | None = None
    narrowed_by: tuple[str, ...] = ()


class PreFilterStage:
    """The stage of the pipeline that calls the PreFilter plugins of a profile, and combines their answers.

    Args:
      plugins: in the order of their calls.
      lasting: returns True if a plugin's state for a class may be reused until a Node object changes.
    """

    def __init__(self, plugins: Sequence[points.PreFilterPlugin], lasting: Callable[[object], bool]) -> None:
        self._plugins = tuple((one, plugin_name(one), lasting(one)) for one in plugins)
        self._fleeting = tuple(one for one in self._plugins if not one[2])

    def run_prefilters(
        self, pod: PodClass, nodes: Nodes, results: PodClassResults, timings: PluginCallSampler
    ) -> PreFilterOutcome:
        """Call the PreFilter plugins for a pod class, and return their combined answer and cycle state.

        Plugins with a valid cached state or with a lasting Skip are not called.

        The state is cached only if no PreFilter refuses or restricts nodes, because a refusal may depend on pods.

        Raises:
          PluginError: a plugin failed.
        """
        timings.begin_cycle()
        state = CycleState()
        stored = results.prefilter_state(nodes.table)
        if stored is not None:
            state.copy_values_from(stored)
            # The cached state is shared by all pods of the class, so plugins may not change its values. The skips in it
            # are lasting.
            called_again = [one for one in self._fleeting if one[1] not in stored.skip_filter]
            return self._ask(called_again, pod, nodes, (state, state), timings)
        # Two states: one to be cached, one for this pod only. A plugin writes to one of them.
        lasting = CycleState()
        answer = self._ask(self._plugins, pod, nodes, (state, lasting), timings)
        state.copy_values_from(lasting)
        if answer.status.ok and answer.allowed is None:
            results.store_prefilter_state(nodes.table, lasting)
        return answer

    def _ask(
        self,
        plugins: Sequence[tuple[points.PreFilterPlugin, str, bool]],
        pod: PodClass,
        nodes: Nodes,
        states: tuple[CycleState, CycleState],
        timings: PluginCallSampler,
    ) -> PreFilterOutcome:
        """Call plugins in order. Unresolvable ends the chain.

        After Unschedulable it continues, and the first refusal counts.
        """
        refusal: Status | None = None
        names: frozenset[str] | None = None
        narrowing: list[str] = []
        for plugin, name, lasts in plugins:
            state = states[lasts]
            answer = answers.checked_prefilter_answer(
                plugin, timings.ask(plugin, "PreFilter", plugin.prefilter, pod, nodes, state)
            )
            # A plugin with Skip may still restrict the nodes.
            if answer.status.code is Code.SKIP:
                states[lasts or answer.status.lasting].skip_filter.add(name)
            elif answer.status.code is Code.UNRESOLVABLE:
                return PreFilterOutcome(states[0], answers.status_with_plugin_name(answer.status, plugin))
            elif not answer.status.ok:
                refusal = refusal or answers.status_with_plugin_name(answer.status, plugin)
            if answer.nodes is not None:
                narrowing.append(name)
                names = answer.nodes if names is None else names & answer.nodes
        if refusal is not None:
            return PreFilterOutcome(states[0], refusal)
        if names is None:
            return PreFilterOutcome(states[0], SUCCESS)
        # Names of unknown nodes permit no node; they are no error, as in kube-scheduler.
        allowed = np.fromiter((name in names for name in nodes.table.names), np.bool_, len(nodes))
        return PreFilterOutcome(states[0], SUCCESS, allowed, tuple(narrowing))


class ScoreStage:
    """The stage of the pipeline that calls the PreScore and Score plugins, and adds up the weighted scores.

    Args:
      prescores: PreScore plugins in the order of their calls.
      scorers: the Score plugins in the order of their calls.
      lasting: returns True if a PreScore's state may be reused for the same nodes until a Node object changes.
    """

    def __init__(
        self,
        prescores: Sequence[points.PreScorePlugin],
        scorers: Sequence[WeightedScorePlugin],
        lasting: Callable[[object], bool],
    ) -> None:
        self._prescores = tuple((one, plugin_name(one), lasting(one)) for one in prescores)
        self._fleeting = tuple(one for one in self._prescores if not one[2])
        self._scorers = tuple(scorers)

    def total_scores(
        self, pod_scorer: PodClassScorer, feasible: IndexArray, table: NodeTable, results: PodClassResults
    ) -> IntArray:
        """Return for each feasible node [n] its total score, the weighted sum of the normalized scores.

        The nodes are in ascending order.

        Raises:
          PluginError: a plugin failed, or its score is outside 0..100 after NormalizeScore.
        """
        nodes = table.ascending_nodes_view(feasible)
        self._prescore(pod_scorer, feasible, nodes, results)
        skipped = pod_scorer.state.skip_score
        scorers = [one for one in self._scorers if one.name not in skipped]
        near = tuple(one for one in scorers if one.scope is not ResultScope.CLUSTER)
        total = results.total_scores(near, pod_scorer, feasible, table)
        # Results with scope CLUSTER are never cached: a pod on any node may change them.
        for scorer in scorers:
            if scorer.scope is ResultScope.CLUSTER:
                total += scorer.weight * pod_scorer.normalized_scores(
                    scorer, pod_scorer.raw_scores(scorer, nodes), nodes
                )
        return total

    def _prescore(
        self, pod_scorer: PodClassScorer, feasible: IndexArray, nodes: Nodes, results: PodClassResults
    ) -> None:
        """Call the PreScores. Those with a valid state or a lasting Skip for these nodes are not called again."""
        state, stored = pod_scorer.state, results.prescore_state(nodes.table, feasible)
        if stored is not None:
            state.copy_values_from(stored)
            called_again = [one for one in self._fleeting if one[1] not in stored.skip_score]
            self._ask(called_again, pod_scorer, nodes, state)
            return
        # The state below lets a PreScore read what PreFilters wrote, without copying it into the cache.
        lasting = CycleState(state)
        self._ask(self._prescores, pod_scorer, nodes, lasting)
        state.copy_values_from(lasting)
        # Cache the PreScores' own values only: values from below belong to one pod.
        kept = CycleState()
        kept.copy_values_from(lasting)
        results.store_prescore_state(nodes.table, feasible, kept)

    def _ask(
        self,
        prescores: Sequence[tuple[points.PreScorePlugin, str, bool]],
        pod_scorer: PodClassScorer,
        nodes: Nodes,
        lasting: CycleState,
    ) -> None:
        for plugin, name, lasts in prescores:
            state = lasting if lasts else pod_scorer.state
            answer = pod_scorer.timings.ask(plugin, "PreScore", plugin.prescore, pod_scorer.pod, nodes, state)
            if answers.checked_status(plugin, "PreScore", answer).code is Code.SKIP:
                (lasting if answer.lasting else state).skip_score.add(name)

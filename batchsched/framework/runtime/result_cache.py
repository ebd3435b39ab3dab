"""A cache of plugin results: a plugin is called again only for nodes on which its result may have changed.

The session asks the same questions about a class of equal pods from pod to pod and from session to session. With the
cache it gets the same answers as without, and pays only for the nodes that changed. `ResultCache` documents the rule.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.framework import interface as points
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.interface import ScorePlugin
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.device_counts import record_changed_device_use
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.runtime.plugin_call import PluginCallSampler, plugin_name
from batchsched.framework.status import BoolArray, IndexArray, IntArray, Verdict
from batchsched.framework.traits import ResultScope


@dataclass(frozen=True, slots=True, eq=False)
class WeightedScorePlugin:
    """A Score plugin with its weight and with the part of the cluster on which its scores depend.

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
    def from_plugin(
        cls, plugin: points.ScorePlugin, scope: ResultScope, weights: Mapping[str, int]
    ) -> "WeightedScorePlugin":
        """Return a Score plugin with its weight and with the part of the cluster on which its scores depend.

        The weight is 1 if `weights` has none for the plugin's name.
        """
        normalizing = plugin if isinstance(plugin, points.NormalizeScorePlugin) else None
        name = plugin_name(plugin)
        return cls(plugin, name, scope, weights.get(name, 1), normalizing)


@dataclass(slots=True, eq=False)
class PodClassScorer:
    """The component that calls the Score and NormalizeScore plugins for one pod.

    Args:
      timings: measures the calls.
      pod: the class of the pod.
      state: the cycle state of the pod.
    """

    timings: PluginCallSampler
    pod: PodClass
    state: CycleState

    def raw_scores(self, scorer: WeightedScorePlugin, nodes: Nodes) -> IntArray:
        """Call a Score plugin for n nodes, and return its raw scores [n].

        They are final if the plugin has no NormalizeScore.

        Raises:
          PluginError: the plugin raised an exception or returned an invalid answer.
        """
        scores = self.timings.ask(scorer.plugin, "Score", scorer.plugin.score, self.pod, nodes, self.state)
        if scorer.normalizing is None:
            return answers.checked_scores(scorer.plugin, "Score", scores, len(nodes))
        return answers.checked_raw_scores(scorer.plugin, scores, len(nodes))

    def normalized_scores(self, scorer: WeightedScorePlugin, scores: IntArray, nodes: Nodes) -> IntArray:
        """Return a plugin's raw scores [n] mapped to 0..100. They are unchanged if the plugin has no NormalizeScore.

        Raises:
          PluginError: the plugin raised an exception or returned an invalid answer.
        """
        if scorer.normalizing is None:
            return scores
        normalized = self.timings.ask(
            scorer.plugin, "NormalizeScore", scorer.normalizing.normalize, scores, self.pod, nodes, self.state
        )
        return answers.checked_scores(scorer.plugin, "NormalizeScore", normalized, len(nodes))


FULL_SHARE: Final = 2
"""If more than half of the nodes are outdated, the plugin is called about all nodes: one long call is cheaper."""
BYTES_PER_NODE: Final = 96
"""Approximate memory of one class's arrays for each node."""


def node_change_generation(scope: ResultScope, table: NodeTable) -> int:
    """Return the generation number of the latest node change that may affect results of a result scope."""
    if scope is not ResultScope.NODE_AND_ITS_PODS:
        return table.changes.generation
    record_changed_device_use(table)
    return table.moves.generation


def outdated_nodes(scope: ResultScope, since: int, table: NodeTable) -> IndexArray:
    """Return the nodes for which a stored plugin result may be outdated, as ascending indexes.

    `since` is the generation at which the result was correct. This function is the only rule of invalidation;
    `ResultCache` describes it.
    """
    if scope is ResultScope.NODE_AND_ITS_PODS:
        record_changed_device_use(table)
        return table.moves.nodes_changed_since(since)
    if scope is ResultScope.NODE_OBJECT or since == table.changes.generation:
        return table.changes.nodes_changed_since(since)
    return np.arange(len(table.nodes), dtype=np.int32)


@dataclass(slots=True, eq=False)
class CachedVerdict:
    """The cached verdict of a Filter about all N nodes.

    Args:
      verdict: the plugin's answer, from one call or pieced together from several.
      fits: [N] nodes that the plugin does not refuse.
      fits_all: the plugin refuses no node.
      since: the generation of the plugin's scope at which the verdict was correct.
    """

    verdict: Verdict
    fits: BoolArray
    fits_all: bool
    since: int

    @classmethod
    def from_verdict(cls, verdict: Verdict, since: int) -> "CachedVerdict":
        """Create the cache entry for the verdict of a Filter about all nodes."""
        fits = verdict.feasible_mask
        return cls(verdict, fits, bool(fits.all()), since)

    def with_updated_nodes(self, nodes: IndexArray, part: Verdict, since: int) -> "CachedVerdict | None":
        """Return this cached verdict, combined with the Filter's new answer about some of the nodes.

        The stored arrays are not changed, because filter results of earlier pods show them.

        Args:
          nodes: [k] the nodes of the new answer.
          part: the plugin's answer about these nodes.
          since: the generation of the new answer.

        Returns:
          The new verdict. None if `part` has a reason that the verdict lacks, or its reasons in another order: the
          order of reasons would then differ from that of one call about all nodes.
        """
        whole = self.verdict
        accepted = not part.reasons or not part.refused.any()
        if accepted and (self.fits_all or self.fits[nodes].all()):
            self.since = since
            return self
        rows = [whole.reasons.index(reason) for reason in part.reasons if reason in whole.reasons]
        if len(rows) < len(part.reasons) or rows != sorted(rows):
            return None
        refused, unresolvable = whole.refused.copy(), whole.unresolvable.copy()
        refused[:, nodes] = False
        for row, part_row in zip(rows, part.refused, strict=True):
            refused[row, nodes] = part_row
        unresolvable[nodes] = part.unresolvable
        fits = self.fits.copy()
        fits[nodes] = part.feasible_mask
        verdict = Verdict(whole.reasons, refused, unresolvable)
        return CachedVerdict(verdict, fits, bool(fits.all()), since)


@dataclass(slots=True, eq=False)
class CachedScopeScores:
    """The cached scores of the Score plugins that depend on the same part of the cluster.

    Args:
      scope: the scope that these plugins share.
      since: the generation of the scope at which the scores were correct.
      has_score: [N] True for nodes with a stored score.
      plain: [N] sum of the weighted scores that need no normalization.
      raw: plugin → [N] scores before normalization.
    """

    scope: ResultScope
    since: int
    has_score: BoolArray
    plain: IntArray
    raw: dict[ScorePlugin, IntArray]

    @classmethod
    def create_empty(
        cls, scorers: Sequence[WeightedScorePlugin], scope: ResultScope, table: NodeTable
    ) -> "CachedScopeScores":
        """Return an empty cache for the scores of the Score plugins that depend on one part of the cluster."""
        count = len(table.nodes)
        normalized = [
            scorer.plugin for scorer in scorers if scorer.scope is scope and scorer.normalizing is not None
        ]
        raw = {plugin: np.zeros(count, np.int64) for plugin in normalized}
        return cls(
            scope,
            node_change_generation(scope, table),
            np.zeros(count, np.bool_),
            np.zeros(count, np.int64),
            raw,
        )


class CachedScores:
    """The cached raw and normalized scores of one pod class on the nodes that have passed Filter.

    Raw scores are stored by scope: when a pod is placed on a node, plugins that read only Node objects are not called
    again. Normalized scores depend on all feasible nodes; they are stored for the last feasible nodes only.
    """

    def __init__(self, scorers: Sequence[WeightedScorePlugin], table: NodeTable) -> None:
        count = len(table.nodes)
        self._scorers = tuple(scorers)
        self._scopes = tuple(
            CachedScopeScores.create_empty(scorers, scope, table)
            for scope in (
                ResultScope.NODE_OBJECT,
                ResultScope.ALL_NODE_OBJECTS,
                ResultScope.NODE_AND_ITS_PODS,
            )
            if any(scorer.scope is scope for scorer in scorers)
        )
        self._plain = np.zeros(count, np.int64)
        self._feasible: IndexArray | None = None
        self._is_feasible = np.zeros(count, np.bool_)
        self._normalized: IntArray | None = None
        """[n] sum of the normalised scores of `_feasible`; None if raw scores or feasible nodes changed since."""

    def is_for_scorers(self, scorers: tuple[WeightedScorePlugin, ...]) -> bool:
        """Return True if the cached scores are those of exactly the given Score plugins."""
        return self._scorers == scorers

    def total_scores(self, pod_scorer: PodClassScorer, feasible: IndexArray, table: NodeTable) -> IntArray:
        """Return for each feasible node [n] the weighted sum of its scores.

        Call plugins only for nodes without a valid score.
        """
        # Identity implies equality, because `feasible_node_indexes` returns read-only arrays and this reference keeps
        # the array alive. An equal but different array is correct, too; only the shortcut below is missed.
        same = self._feasible is feasible
        if not same:
            # If a plugin raises below, the shortcut must not apply to the next call: nodes of the old array may have
            # been marked as unknown.
            self._feasible, self._normalized = None, None
        for scores in self._scopes:
            outdated = outdated_nodes(scores.scope, scores.since, table)
            # After a complete pass all feasible nodes are known; for the same nodes only the outdated ones are not.
            if same and not len(outdated):
                continue
            scores.has_score[outdated] = False
            unknown = outdated[self._is_feasible[outdated]] if same else feasible[~scores.has_score[feasible]]
            if self._update(scores, pod_scorer, unknown, table):
                self._normalized = None
            # Outdated nodes that are not feasible stay unknown, so they need no second look. If a plugin raises, this
            # line is not reached, and the next call finds the same nodes outdated.
            scores.since = node_change_generation(scores.scope, table)
        if self._normalized is None:
            self._normalized = self._normalize(pod_scorer, feasible, table)
        if not same:
            self._feasible = feasible
            self._is_feasible[:] = False
            self._is_feasible[feasible] = True
        if len(feasible) == len(self._plain):
            return self._plain + self._normalized
        total: IntArray = self._plain.take(feasible)
        total += self._normalized
        return total

    def _update(
        self, scores: CachedScopeScores, pod_scorer: PodClassScorer, nodes: IndexArray, table: NodeTable
    ) -> bool:
        """Call the plugins of a scope about some nodes; return True if a score to be normalized changed."""
        if not len(nodes):
            return False
        view = table.ascending_nodes_view(nodes)
        # All calls come before the first write: if a plugin raises, nothing is half updated.
        answers = [
            (scorer, pod_scorer.raw_scores(scorer, view))
            for scorer in self._scorers
            if scorer.scope is scores.scope
        ]
        plain = np.zeros(len(nodes), np.int64)
        changed = False
        for scorer, answer in answers:
            raw = scores.raw.get(scorer.plugin)
            if raw is None:
                plain += answer if scorer.weight == 1 else scorer.weight * answer
            else:
                changed = changed or not np.array_equal(raw[view.where], answer)
                raw[view.where] = answer
        self._plain[view.where] += plain - scores.plain[view.where]
        scores.plain[view.where] = plain
        scores.has_score[view.where] = True
        return changed

    def _normalize(self, pod_scorer: PodClassScorer, feasible: IndexArray, table: NodeTable) -> IntArray:
        """Return for each feasible node [n] the weighted sum of the normalized scores."""
        total = np.zeros(len(feasible), np.int64)
        view = table.ascending_nodes_view(feasible)
        for scores in self._scopes:
            for scorer in self._scorers:
                if scorer.normalizing is not None and scorer.scope is scores.scope:
                    total += scorer.weight * pod_scorer.normalized_scores(
                        scorer, scores.raw[scorer.plugin][feasible], view
                    )
        return total


class PodClassResults:
    """The cached results of all plugins for one pod class on the nodes of a node table."""

    def __init__(self) -> None:
        self._verdicts: dict[object, CachedVerdict] = {}
        self._scores: CachedScores | None = None
        self._fits: BoolArray | None = None
        self._feasible = np.zeros(0, np.int32)
        self._prefilter: tuple[int, CycleState] | None = None
        self._prescore: tuple[int, IndexArray, CycleState] | None = None

    def prefilter_state(self, table: NodeTable) -> CycleState | None:
        """Return the cached cycle state that PreFilter plugins wrote; None if it is missing or outdated."""
        stored = self._prefilter
        return stored[1] if stored is not None and stored[0] == table.changes.generation else None

    def store_prefilter_state(self, table: NodeTable, state: CycleState) -> None:
        """Cache the cycle state that PreFilter plugins wrote for a pod class.

        It is valid until a Node object changes.
        """
        self._prefilter = table.changes.generation, state

    def prescore_state(self, table: NodeTable, feasible: IndexArray) -> CycleState | None:
        """Return the cached cycle state that PreScore plugins wrote; None if it is missing or outdated.

        A state that was written for other feasible nodes is outdated.
        """
        stored = self._prescore
        if stored is None or stored[0] != table.changes.generation or stored[1] is not feasible:
            return None
        return stored[2]

    def store_prescore_state(self, table: NodeTable, feasible: IndexArray, state: CycleState) -> None:
        """Cache the cycle state that PreScore plugins wrote for the given feasible nodes.

        It is valid until a Node object changes.
        """
        self._prescore = table.changes.generation, feasible, state

    def get_or_compute_verdict(
        self, plugin: object, scope: ResultScope, table: NodeTable, ask: Callable[[Nodes], Verdict]
    ) -> CachedVerdict:
        """Return a Filter's verdict about all nodes: the cached one if it is valid, else one from a new call.

        The plugin is called for the nodes with an outdated result, or for all nodes if these are more than half.

        Args:
          plugin: the Filter, by which its verdict is stored.
          scope: the plugin's scope; with CLUSTER nothing is stored.
          table: the nodes.
          ask: calls the plugin about a view of nodes.
        """
        stored = self._verdicts.get(plugin)
        now = node_change_generation(scope, table)
        if stored is not None:
            if stored.since == now:
                return stored
            outdated = outdated_nodes(scope, stored.since, table)
            if 0 < len(outdated) * FULL_SHARE <= len(table.nodes):
                amended = stored.with_updated_nodes(outdated, ask(table.ascending_nodes_view(outdated)), now)
                if amended is not None:
                    self._verdicts[plugin] = amended
                    return amended
        complete = CachedVerdict.from_verdict(ask(table.all_nodes_view()), now)
        if scope is not ResultScope.CLUSTER:
            self._verdicts[plugin] = complete
        return complete

    def feasible_node_indexes(self, fits: BoolArray) -> IndexArray:
        """Convert the mask `fits` [N] of feasible nodes to an array [n] of their indexes.

        The array is read-only. While the feasible nodes are equal, the same array is returned, so that `total_scores`
        and `prescore_state` compare by identity instead of node by node.
        """
        if self._fits is None or not np.logical_and.reduce(self._fits == fits):
            self._fits, self._feasible = fits, np.flatnonzero(fits).astype(np.int32)
            self._feasible.setflags(write=False)
        return self._feasible

    def total_scores(
        self,
        scorers: tuple[WeightedScorePlugin, ...],
        pod_scorer: PodClassScorer,
        feasible: IndexArray,
        table: NodeTable,
    ) -> IntArray:
        """Return for each feasible node [n] the weighted sum of the scores of plugins with cacheable results.

        Plugins are not called about other nodes, and other nodes do not count for normalization.
        """
        if self._scores is None or not self._scores.is_for_scorers(scorers):
            self._scores = CachedScores(scorers, table)
        return self._scores.total_scores(pod_scorer, feasible, table)


class ResultCache:
    """A cache of plugin results for each pod class on the nodes of a node table.

    The rule of invalidation: a result about a node is valid until something in the plugin's `ResultScope` changes. The
    node table logs two kinds of changes, each with a generation number: `changes` for Node objects, and `moves` for
    these and for pods that are added to a node or removed from it. Each result stores the generation of its scope's
    log, and is outdated for these nodes:

    - NODE_OBJECT: the nodes in `changes` since then;
    - NODE_AND_ITS_PODS: the nodes in `moves` since then. If scores count devices, it also has the nodes that reach a
      device which was allocated or freed;
    - ALL_NODE_OBJECTS: all nodes, if anything is in `changes` since then;
    - CLUSTER: always; such results are not stored.

    States of PreFilter and PreScore are not per node. They are valid until anything is in `changes`. When nodes get
    other indexes, all results are dropped.

    Args:
      table: the nodes.
      max_bytes: approximate limit for the memory of all arrays. Above it, the classes with the oldest use are dropped.
    """

    def __init__(self, table: NodeTable, max_bytes: int = 2**27) -> None:
        self._table = table
        self._max_bytes = max_bytes
        # Classes compare by identity, and the key keeps the class alive.
        self._results: dict[PodClass, PodClassResults] = {}

    def clear(self) -> None:
        """Drop all cached plugin results, because they refer to nodes by index and the indexes have changed."""
        self._results.clear()

    def results_of_pod_class(self, pod: PodClass) -> PodClassResults:
        """Return the cached plugin results of a pod class, empty on first use.

        Classes that differ only in a priority that no plugin reads share them.
        """
        first = pod.pod_class_for_result_cache
        # Removing and inserting moves the class to the end: the first one has the oldest use.
        results = self._results.pop(first, None) or PodClassResults()
        self._results[first] = results
        if len(self._results) > max(1, self._max_bytes // (BYTES_PER_NODE * max(1, len(self._table.nodes)))):
            del self._results[next(iter(self._results))]
        return results

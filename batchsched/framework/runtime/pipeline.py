"""Pipeline: calls the plugins of a profile at each extension point, in the framework's order.

It treats all plugins alike. It calls them, validates their answers, and combines these into one result: masks and
scores of a class over all nodes, or a status of one pod on one node.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import stated_requests_key
from batchsched.api.snapshot import Snapshot
from batchsched.config.kubernetes_release import DEFAULT_RELEASE, KubernetesRelease
from batchsched.errors import PluginError
from batchsched.framework import interface as points
from batchsched.framework.constrain import CandidateSet, ConstraintRow
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.extender_chain import ExtenderChain
from batchsched.framework.filter_result import FilterResult, no_refusals
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.runtime.plugin_call import PluginCallSampler, call_plugin, plugin_name
from batchsched.framework.runtime.result_cache import (
    CachedVerdict,
    PodClassResults,
    PodClassScorer,
    WeightedScorePlugin,
)
from batchsched.framework.runtime.stages import PreFilterStage, ScoreStage
from batchsched.framework.status import SUCCESS, Code, IndexArray, IntArray, PermitAnswer, Status, Verdict
from batchsched.framework.traits import PlacementEffect, ResultScope, traits_of
from batchsched.ports.workers import SolverWorkers

PROTOCOLS: Final[Mapping[str, Any]] = {
    "pre_enqueue": points.PreEnqueuePlugin,
    "queue_sort": points.QueueSortPlugin,
    "pre_filter": points.PreFilterPlugin,
    "filter": points.FilterPlugin,
    "post_filter": points.PostFilterPlugin,
    "pre_score": points.PreScorePlugin,
    "score": points.ScorePlugin,
    "reserve": points.ReservePlugin,
    "permit": points.PermitPlugin,
    "pre_bind": points.PreBindPlugin,
    "bind": points.BindPlugin,
    "post_bind": points.PostBindPlugin,
}
"""Name of an extension point in a profile → protocol of its plugins."""


class Pipeline:
    """The enabled plugins of one profile, sorted by extension point.

    Args:
      plugins: in the order of their calls.
      weights: name → weight of a Score plugin; 1 if missing.
      plugins_at: extension point, as named in a profile (`pre_filter`) → its plugins; if a point is missing, all
        plugins that implement it.
      extenders: called after the plugins.
      release: the release of Kubernetes with the behavior that the plugins follow.
      workers: processes for the solver of the sessions.
    """

    def __init__(
        self,
        plugins: Sequence[object],
        weights: Mapping[str, int] | None = None,
        plugins_at: Mapping[str, Sequence[object]] | None = None,
        extenders: ExtenderChain | None = None,
        release: KubernetesRelease = DEFAULT_RELEASE,
        workers: SolverWorkers | None = None,
    ) -> None:
        self.release = release
        self.plugins = tuple(plugins)
        self.allocates_devices = True
        """False if the ResourceClaims are unknown, or are not written: pods with claims are then refused."""
        self.weights = dict(weights or {})
        self.extenders = extenders or ExtenderChain()
        self.timings = PluginCallSampler()
        self.workers = workers
        self._chosen = {point: tuple(chosen) for point, chosen in (plugins_at or {}).items()}
        self.preenqueues: tuple[points.PreEnqueuePlugin, ...] = self._plugins_at("pre_enqueue")
        self.queue_sorts: tuple[points.QueueSortPlugin, ...] = self._plugins_at("queue_sort")
        self.prefilters: tuple[points.PreFilterPlugin, ...] = self._plugins_at("pre_filter")
        self.filters: tuple[points.FilterPlugin, ...] = self._plugins_at("filter")
        self.postfilters: tuple[points.PostFilterPlugin, ...] = self._plugins_at("post_filter")
        self.prescores: tuple[points.PreScorePlugin, ...] = self._plugins_at("pre_score")
        self.scores: tuple[points.ScorePlugin, ...] = self._plugins_at("score")
        self.reserves: tuple[points.ReservePlugin, ...] = self._plugins_at("reserve")
        self.permits: tuple[points.PermitPlugin, ...] = self._plugins_at("permit")
        # Rows repeat the verdicts of a plugin's Filter. If the profile disables that Filter, its rows would forbid
        # placements that the pipeline allows.
        self.constrains: tuple[points.ConstrainPlugin, ...] = tuple(
            plugin
            for plugin in self._implementing(points.ConstrainPlugin)
            if plugin in self.filters or not isinstance(plugin, points.FilterPlugin)
        )
        self.holds: tuple[points.NominatedPodPlugin, ...] = self._implementing(points.NominatedPodPlugin)
        self.prebinds: tuple[points.PreBindPlugin, ...] = self._plugins_at("pre_bind")
        self.reversible_prebinds: tuple[points.ReversiblePreBindPlugin, ...] = tuple(
            plugin for plugin in self.prebinds if isinstance(plugin, points.ReversiblePreBindPlugin)
        )
        self.binds: tuple[points.BindPlugin, ...] = self._plugins_at("bind")
        self.postbinds: tuple[points.PostBindPlugin, ...] = self._plugins_at("post_bind")
        self._signing: tuple[points.SignaturePlugin, ...] = self._implementing(points.SignaturePlugin)
        self._label_reading: tuple[points.SelectorLabelKeysPlugin, ...] = self._implementing(
            points.SelectorLabelKeysPlugin
        )
        # An isinstance check against a protocol is slow, and this one would be made for each pod and each class.
        self._following: dict[object, points.PreFilterExtensionsPlugin] = {
            plugin: plugin for plugin in self._implementing(points.PreFilterExtensionsPlugin)
        }
        self.prefilter_extensions = tuple(
            self._following[plugin] for plugin in self.prefilters if plugin in self._following
        )
        """PreFilter plugins with AddPod and RemovePod, which the dry runs of preemption call."""
        self._read_traits()
        self._names = {plugin: plugin_name(plugin) for plugin in (*self._scope, *self._following)}
        self._prefiltering = PreFilterStage(self.prefilters, self._lasts)
        # Filters and scores are bound to their scope once: the scope does not change after construction.
        scorers = [
            WeightedScorePlugin.from_plugin(plugin, self._scope[plugin], self.weights)
            for plugin in self.scores
        ]
        self._scoring = ScoreStage(self.prescores, scorers, self._lasts)

    def _read_traits(self) -> None:
        """Read the traits and optional methods of all plugins: the only place that does."""
        judging = {*self.prefilters, *self.filters, *self.scores}
        self.reads_all = bool(judging - set(self._signing))
        """A plugin without `signature` is enabled: it may read the whole spec and all labels of a pod."""
        self.reads_priority = any(traits_of(plugin).reads_priority for plugin in {*judging, *self.prescores})
        """A plugin may read the priority of a class: classes of different priority share no results."""
        self.preenqueue_reads_spec_only = all(
            traits_of(plugin).preenqueue_reads_spec_only for plugin in self.preenqueues
        )
        """PreEnqueue gives one answer for all pods with the same spec."""
        self.nominates_nodes = any(traits_of(plugin).postfilter_nominates for plugin in self.postfilters)
        """A PostFilter plugin may nominate a node; otherwise the session evicts no pod."""
        self.permit_is_per_gang = all(traits_of(plugin).permit_is_per_gang for plugin in self.permits)
        """Permit gives one answer for all pods of a gang that are assumed together."""
        self._selective = tuple(isinstance(plugin, points.SelectiveReservePlugin) for plugin in self.reserves)
        effect = {plugin: traits_of(plugin).placement_effect for plugin in self.filters}
        self.moving = tuple(plugin for plugin in self.filters if effect[plugin] is not PlacementEffect.NONE)
        """Filters to be called again for a node when pods may have been placed since the scan."""
        self._bulk: dict[object, points.BulkFilterPlugin] = {
            plugin: plugin for plugin in self.moving if isinstance(plugin, points.BulkFilterPlugin)
        }

        def names_of_filters_with_effects(*effects: PlacementEffect) -> frozenset[str]:
            return frozenset(plugin_name(plugin) for plugin in self.filters if effect[plugin] in effects)

        self.unaffected_filters = names_of_filters_with_effects(PlacementEffect.NONE)
        """Names of the filters that no pod on any node affects."""
        self.steady_filters = names_of_filters_with_effects(PlacementEffect.NONE, PlacementEffect.TIGHTENS)
        """Names of the filters that keep their refusals after any placement: the solver's masks consist of them."""
        self.never_reopening_filters = names_of_filters_with_effects(
            PlacementEffect.NONE, PlacementEffect.TIGHTENS, PlacementEffect.USES_CAPACITY
        )
        """Names of the filters that keep refusing a node whatever is placed: the steady ones and those of capacity."""
        self._counting = tuple(
            plugin for plugin in self.filters if effect[plugin] is PlacementEffect.USES_CAPACITY
        )
        # Without a signature the pipeline does not know for which pods a result holds, so nothing is kept.
        self._scope: dict[object, ResultScope] = {
            plugin: traits_of(plugin).result_scope if plugin in self._signing else ResultScope.CLUSTER
            for plugin in (*self.prefilters, *self.filters, *self.prescores, *self.scores)
        }
        self._foreseen = {
            plugin: plugin not in self._following
            and (
                self._scope[plugin] in (ResultScope.NODE_OBJECT, ResultScope.ALL_NODE_OBJECTS)
                or (self._scope[plugin] is ResultScope.NODE_AND_ITS_PODS and plugin in self._counting)
            )
            for plugin in (*self.filters, *self._following)
        }

    def _lasts(self, plugin: object) -> bool:
        """Return True if what PreFilter or PreScore writes for a class is valid for all its pods.

        AddPod and RemovePod change the state for one pod, so pods must not share the state of plugins with these
        methods.
        """
        return self._scope[plugin] is not ResultScope.CLUSTER and plugin not in self._following

    def filters_need_only_nodes_and_requests(self, state: CycleState) -> bool:
        """Return True if the Filters for a pod class read only Node objects and each node's total requests.

        Then no enabled Filter reads the pods themselves, and no plugin needs AddPod or RemovePod. Filters that the
        cycle state skips do not count.
        """
        return all(
            self._names[plugin] in state.skip_filter or self._foreseen[plugin]
            for plugin in (*self.filters, *self._following)
        )

    def _plugins_at(self, point: str) -> tuple[Any, ...]:
        chosen = self._chosen.get(point)
        return self._implementing(PROTOCOLS[point]) if chosen is None else chosen

    def _implementing(self, protocol: Any) -> tuple[Any, ...]:
        return tuple(one for one in self.plugins if isinstance(one, protocol))

    def ignores_resource(self, resource: str) -> bool:
        """Return True if the Filter plugin that checks free resources is configured to ignore a resource."""
        return any(
            plugin.ignores_resource(resource)
            for plugin in self._counting
            if isinstance(plugin, points.IgnoredResourcesPlugin)
        )

    def signature(self, pod: Pod) -> Hashable:
        """Return a hashable value made of a pod's requests and the signatures of all plugins for the pod.

        Pods with equal signatures belong to one class.
        """
        signatures = tuple(
            call_plugin(plugin, "Signature", plugin.signature, pod) for plugin in self._signing
        )
        whole_pod = (repr(pod.spec), *sorted(pod.labels.items())) if self.reads_whole_pod(pod) else ()
        return (
            stated_requests_key(pod),
            answers.checked_signatures(self._signing, signatures),
            whole_pod,
        )

    def reads_whole_pod(self, pod: Pod) -> bool:
        """Return True if an extender or a plugin without `signature` may read the whole pod."""
        return self.reads_all or self.extenders.is_interested(pod)

    def selector_label_keys(self, pod: Pod, failures: list[PluginError]) -> frozenset[str]:
        """Return the pod label keys that occur in the selectors of a pod's spec.

        Plugin errors are added to `failures`.
        """
        keys: frozenset[str] = frozenset()
        for plugin in self._label_reading:
            try:
                keys |= answers.checked_selector_label_keys(
                    plugin, call_plugin(plugin, "Signature", plugin.selector_label_keys, pod)
                )
            except PluginError as error:
                failures.append(error)
        return keys

    def object_selector_label_keys(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the pod label keys in the selectors of Services and other objects of the cluster."""
        keys: frozenset[str] = frozenset()
        for plugin in self._implementing(points.ObjectSelectorLabelKeysPlugin):
            keys |= answers.checked_selector_label_keys(
                plugin, call_plugin(plugin, "Signature", plugin.object_selector_label_keys, snapshot)
            )
        return keys

    def preenqueue(self, pod: Pod) -> Status:
        """Call the PreEnqueue plugins for a pod until one refuses it; return the refusal, or Success."""
        for plugin in self.preenqueues:
            status = answers.checked_status(
                plugin, "PreEnqueue", self.timings.ask(plugin, "PreEnqueue", plugin.preenqueue, pod)
            )
            if not status.ok:
                return answers.status_with_plugin_name(status, plugin)
        return SUCCESS

    def find_nodes_that_pass_filters(
        self, pod: PodClass, table: NodeTable, results: PodClassResults | None = None
    ) -> FilterResult:
        """Call the PreFilters and Filters for one pod class and all nodes, and return the combined result.

        Args:
          pod: the class.
          table: the nodes.
          results: earlier results for the class on this table; they are updated.

        Raises:
          PluginError: a plugin failed.
        """
        results = PodClassResults() if results is None else results
        nodes = table.all_nodes_view()
        state, status, allowed, narrowing = self._prefiltering.run_prefilters(
            pod, nodes, results, self.timings
        )
        count = len(nodes)
        if not status.ok:
            return FilterResult(state, status, np.zeros(count, np.bool_), no_refusals(count))
        fits = allowed.copy() if allowed is not None else np.ones(count, np.bool_)
        refused_by = no_refusals(count)
        # One entry for each Filter that was called; `refused_by` holds indexes into these lists.
        names: list[str] = []
        verdicts: list[Verdict] = []
        for plugin in self.filters:
            name = self._names[plugin]
            if name in state.skip_filter:
                continue
            call = partial(self._filter, plugin, pod, state)
            try:
                judged = results.get_or_compute_verdict(plugin, self._scope[plugin], table, call)
            except PluginError:
                # kube-scheduler does not call a Filter about a node that an earlier Filter refused. To fail in the
                # same cases, repeat the call without these nodes.
                if fits.all():
                    raise
                remaining = np.flatnonzero(fits).astype(np.int32)
                verdict = (
                    call(table.selected_nodes_view(remaining)).expand_to_all_nodes(remaining, count)
                    if len(remaining)
                    else Verdict.accept(count)
                )
                judged = CachedVerdict.from_verdict(verdict, table.changes.generation)
            # Only nodes that earlier Filters accepted get this plugin's reason, as in kube-scheduler.
            if not judged.fits_all:
                refused_by[fits & ~judged.fits] = len(verdicts)
                fits &= judged.fits
            names.append(name)
            verdicts.append(judged.verdict)
        outside = ~allowed if allowed is not None else None
        return FilterResult(
            state, status, fits, refused_by, tuple(names), tuple(verdicts), narrowing, outside
        )

    def run_extender_filters(self, pod: PodClass, scan: FilterResult, table: NodeTable) -> FilterResult:
        """Call the extenders for the feasible nodes, and return the filter result with their refusals.

        Raises:
          ExtenderError: an extender that may not be ignored failed.
        """
        if not self.extenders or not scan.status.ok:
            return scan
        return scan.with_refusals(self.extenders.filter(pod.pod, scan.fits, table))

    def _filter(self, plugin: points.FilterPlugin, pod: PodClass, state: CycleState, nodes: Nodes) -> Verdict:
        verdict = self.timings.ask(plugin, "Filter", plugin.filter, pod, nodes, state)
        return answers.checked_verdict(plugin, verdict, len(nodes))

    def run_prefilters(
        self, pod: PodClass, table: NodeTable, results: PodClassResults | None = None
    ) -> tuple[CycleState, Status]:
        """Call only the PreFilter plugins for a pod class, and return their cycle state and the combined status.

        The cycle state is for the pods that are on nodes now.

        Args:
          pod: the class.
          table: the nodes.
          results: earlier results for the class; valid states are reused.

        Raises:
          PluginError: a plugin failed.
        """
        prefiltered = self._prefiltering.run_prefilters(
            pod, table.all_nodes_view(), results or PodClassResults(), self.timings
        )
        return prefiltered.state, prefiltered.status

    def allows_bulk_placement(
        self, pod: PodClass, table: NodeTable, nodes: IndexArray, counts: IndexArray, state: CycleState
    ) -> bool | None:
        """Return whether `counts[i]` equal pods may be placed on each node `nodes[i]`, all of them together.

        Return None if a Filter must be called for each pod.
        """
        filters = [one for one in self.moving if plugin_name(one) not in state.skip_filter]
        if not all(one in self._bulk for one in filters):
            return None
        return all(
            answers.checked_bool(
                plugin,
                "Filter",
                self.timings.ask(
                    plugin, "Filter", self._bulk[plugin].allows_bulk_placement, pod, table, nodes, counts
                ),
            )
            for plugin in filters
        )

    def recheck_node(self, pod: PodClass, node: int, table: NodeTable, state: CycleState) -> Status:
        """Call again, for one node, the Filters that depend on placed pods; return the first refusal, or Success."""
        nodes = table.node_view(node)
        for plugin in self.moving:
            if plugin_name(plugin) in state.skip_filter:
                continue
            verdict = self._filter(plugin, pod, state, nodes)
            if verdict.refused.any():
                return verdict.refusal_status_at(0, plugin_name(plugin))
        return SUCCESS

    def run_add_pod(self, pod: PodClass, added: Pod, node: int, table: NodeTable, state: CycleState) -> None:
        """Call AddPod of all plugins, which updates the cycle state of a pod class after a pod was placed."""
        for plugin in self.prefilters:
            following = self._following.get(plugin)
            if following is not None and plugin_name(plugin) not in state.skip_filter:
                self.timings.ask(plugin, "AddPod", following.add_pod, pod, added, node, table, state)

    def score(
        self,
        pod: PodClass,
        feasible: IndexArray,
        table: NodeTable,
        state: CycleState,
        results: PodClassResults | None = None,
    ) -> IntArray:
        """Return for each feasible node [n] its total score, the weighted sum of the normalized scores.

        The nodes are in ascending order. The scores of extenders are included.

        Raises:
          PluginError: a plugin failed, or its score is outside 0..100 after NormalizeScore.
        """
        pod_scorer = PodClassScorer(self.timings, pod, state)
        total = self._scoring.total_scores(
            pod_scorer, feasible, table, PodClassResults() if results is None else results
        )
        if self.extenders:
            total += self.extenders.prioritize(pod.pod, feasible, table)
        return total

    def constrain(
        self, batch: CandidateSet, table: NodeTable, without: frozenset[str] = frozenset()
    ) -> tuple[ConstraintRow, ...]:
        """Return the linear constraints that all plugins except those in `without` add to the solver's problem.

        Raises:
          PluginError: a plugin failed, or its rows do not refer to the batch.
        """
        nodes = table.all_nodes_view()
        rows: list[ConstraintRow] = []
        for plugin in self.constrains:
            if plugin_name(plugin) in without:
                continue
            answer = self.timings.ask(plugin, "Constrain", plugin.constrain, batch, nodes)
            rows.extend(answers.checked_constraint_rows(plugin, answer, batch, len(nodes)))
        return tuple(rows)

    def stateful_reserve_plugins(self, pod: PodClass, nodes: NodeTable) -> tuple[points.ReservePlugin, ...]:
        """Return the Reserve plugins that may keep state for the pods of a pod class. Raises `PluginError`."""
        reserves = zip(self.reserves, self._selective, strict=True)
        return tuple(
            plugin
            for plugin, selective in reserves
            if not (selective and self._reserves_nothing(plugin, pod, nodes))
        )

    def _reserves_nothing(self, plugin: Any, pod: PodClass, nodes: NodeTable) -> bool:
        answer = self.timings.ask(plugin, "Reserve", plugin.reserves_nothing, pod, nodes)
        return answers.checked_bool(plugin, "Reserve", answer)

    def reserve(
        self,
        pod: Pod,
        node: int,
        table: NodeTable,
        state: CycleState,
        keeping: Sequence[points.ReservePlugin] | None = None,
    ) -> Status:
        """Call the Reserve plugins for a pod and its node, and return the first refusal, or Success.

        After a refusal or a failure, call Unreserve of all plugins. `keeping` has the Reserve plugins to call; None
        for all.
        """
        for plugin in self.reserves if keeping is None else keeping:
            # A failed or refused Reserve may have kept something, so Unreserve includes the plugin itself.
            try:
                answer = self.timings.ask(plugin, "Reserve", plugin.reserve, pod, node, table, state)
                status = answers.checked_status(plugin, "Reserve", answer)
            except PluginError:
                self.unreserve(pod, node, table, state)
                raise
            if not status.ok:
                self.unreserve(pod, node, table, state)
                return answers.status_with_plugin_name(status, plugin)
        return SUCCESS

    def unreserve(self, pod: Pod, node: int, table: NodeTable, state: CycleState) -> None:
        """Call Unreserve of all plugins for a pod, in reverse order, even if one of them fails."""
        broken: PluginError | None = None
        # Every plugin gets the call, or its reservation would leak. The first error is raised at the end.
        for plugin in reversed(self.reserves):
            try:
                self.timings.ask(plugin, "Unreserve", plugin.unreserve, pod, node, table, state)
            except PluginError as error:
                broken = broken or error
        if broken is not None:
            raise broken

    def hold_for_nominated_pod(self, pod: Pod, node: int, table: NodeTable) -> None:
        """Let all plugins reserve what a nominated pod needs on its node, such as devices. Raises `PluginError`."""
        for plugin in self.holds:
            call_plugin(plugin, "Reserve", plugin.hold_for_nominated_pod, pod, node, table)

    def stop_holding_for_nominated_pod(self, pod: Pod, table: NodeTable) -> None:
        """Let all plugins release what they have reserved for a nominated pod. Raises `PluginError`."""
        for plugin in self.holds:
            call_plugin(plugin, "Unreserve", plugin.stop_holding_for_nominated_pod, pod, table)

    def permit(self, pod: Pod, node: int, table: NodeTable, state: CycleState) -> tuple[PermitAnswer, ...]:
        """Call the Permit plugins for a pod; return the first refusal alone, or all answers with Wait."""
        waits: list[PermitAnswer] = []
        for plugin in self.permits:
            answer = answers.checked_permit_answer(
                plugin, self.timings.ask(plugin, "Permit", plugin.permit, pod, node, table, state)
            )
            if answer.status.code is Code.WAIT:
                waits.append(answer)
            elif not answer.status.ok:
                return (answer,)
        return tuple(waits)


def plugin_names(plugins: Iterable[object]) -> tuple[str, ...]:
    """Return the names of the given plugins, in the same order."""
    return tuple(plugin_name(plugin) for plugin in plugins)

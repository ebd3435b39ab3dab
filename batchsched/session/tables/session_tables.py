"""The tables of a session: nodes, gangs and pod classes of one cluster.

The tables are made from a Snapshot at once, or follow a cluster change by change. Both ways give the same tables, and
so the same decision: a simulator or a live loop decides thousands of sessions without building tables of the whole
cluster each time.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import Final, TypeVar

import numpy as np

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.decision import SetAside
from batchsched.api.gang import gang_identity, gang_namespace, identities_of_gang_key
from batchsched.api.queue_access import QueueAccess
from batchsched.api.snapshot import Snapshot
from batchsched.errors import PluginError
from batchsched.framework.nodes.node_table import LEADING, NodeTable
from batchsched.framework.plugin_support.device_objects import DEVICE_KINDS, mask_resources_served_by_devices
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.result_cache import ResultCache
from batchsched.framework.status import BoolArray, IntArray
from batchsched.ports.cluster import ClusterChanges
from batchsched.queues.tree import QueueTree
from batchsched.session.tables.gang import (
    CachedGangResults,
    GangState,
    PendingGang,
    PodCountsByGang,
    RunningGang,
    pod_creation_sort_key,
    sum_smallest_requests,
)
from batchsched.session.tables.pending import PendingGangs
from batchsched.session.tables.pod_classes import PodClassTable, PodSpecIndex
from batchsched.session.tables.preferred_level_waits import PreferredLevelWaits
from batchsched.state.resource_names import ResourceColumnNames

T = TypeVar("T")
GPU_SUFFIX = "/gpu"
UNBOUNDED_AMOUNT = 2**40
"""Stands for an amount without limit: more than one node ever offers, and small enough to be summed over all nodes."""


def mask_dominant_share_resources(resources: Iterable[str]) -> BoolArray:
    """Return a mask by resource [R]: True for cpu, memory and GPUs, which determine dominant shares."""
    return np.array([name in ("cpu", "memory") or name.endswith(GPU_SUFFIX) for name in resources], np.bool_)


PODS_BETWEEN_PAUSES: Final = 500

Pause = Callable[[], None]
"""Called between parts of long work in a thread that must yield to others; it may block, or end the work by raising."""


def do_not_pause() -> None:
    """Do nothing; this is the default callback between the parts of a long computation."""


class SessionTables:
    """The tables of a session: nodes with their pods, gangs with pending and bound pods, and pod classes.

    Args:
      snapshot: the cluster to start from, its objects in any order. Queues, priority classes and topologies are kept;
        pods and PodGroups are not referenced after they are gone.
      pipeline: the profile's plugins.
      pause: called before every 500 distinct specs that are read, and before every 500 pods that are added.
    """

    def __init__(self, snapshot: Snapshot, pipeline: Pipeline, pause: Pause = do_not_pause) -> None:
        self.gangs: dict[str, GangState] = {}
        """All gangs with a PodGroup or pods, by identity."""
        # Ties are decided by the order of objects, which must not be that of documents in a file.
        # Without classes, no device serves an extended resource of a pod.
        snapshot = (
            snapshot if pipeline.allocates_devices else replace(snapshot, device_classes=())
        ).sorted_by_key()
        self.snapshot = replace(snapshot, pods=(), pod_groups=())
        self.refused_evictions = frozenset(snapshot.refused_evictions)
        """Keys of the pods that the API server refused to evict: they are no victims."""
        self.pipeline = pipeline
        self.plugin_failures: dict[str, SetAside] = {}
        """Failures of plugins in this session that concern no pod in particular, by message."""
        self._lasting_failures: dict[str, SetAside] = {}
        self.specs = PodSpecIndex(pipeline)
        self.queues, self.queue_access = (
            QueueTree(snapshot.queues),
            QueueAccess(snapshot.queues, snapshot.namespaces),
        )
        names = self._resource_names(snapshot, pause)
        self.lacks_columns = names.has_too_many
        """True if pods may request resources that no node offers and that have no column."""
        self.node_table = NodeTable(
            self.snapshot, (*LEADING, *sorted(names.with_column - set(LEADING))), pipeline.release
        )
        self.result_cache = ResultCache(self.node_table)
        self.counts = PodCountsByGang(self.gangs)
        # A method of `counts`, not of the tables: a reference back would keep old tables alive until a collection.
        self.node_table.gang_of = self.counts.gang_counts_of_named_pod
        self.classes = PodClassTable(
            snapshot,
            pipeline,
            self.specs,
            self.node_table.column,
            self.counts,
            self._object_selector_label_keys(snapshot),
        )
        self.requests_and_nonzero = self.classes.requests_and_nonzero_requests
        """Returns ([R] requests, [2] requests for scoring) of a pod."""
        self.pending_gangs = PendingGangs(len(self.node_table.resources))
        self.running: dict[str, GangState] = {}
        """Gangs with bound pods, by identity."""
        self.incomplete: dict[str, GangState] = {}
        """PodGroups with fewer pods than their minimum of which none is pending, by identity."""
        self.preferred_level_waits = PreferredLevelWaits(snapshot.topologies)
        """The waits of PodGroups for a preferred topology level."""
        self.nominated: dict[str, GangState] = {}
        """Gangs with a nominated pending pod, by identity."""
        self._classify_resources()
        self._sum_nodes()
        self._changed: dict[str, None] = {}
        """Gangs that changed since the last `refresh`, by identity, in the order of their first change."""
        self._are_classes_too_wide = False
        """Since the last `refresh`, pods were added with selectors that read more labels than the classes show."""
        self._pods_on_unknown_nodes: dict[str, dict[str, Pod]] = {}
        """Bound pods by the name of a node that does not exist."""
        self._add_objects(snapshot, pause)

    def _classify_resources(self) -> None:
        names = self.node_table.resources
        self.share_resources = mask_dominant_share_resources(names)
        self._unaccounted = np.array([self.pipeline.ignores_resource(name) for name in names], np.bool_)
        """[R] resources that an extender accounts for instead of the nodes."""

    def request_vector(self, pod: Pod) -> IntArray:
        """Return a pod's requests as an array by resource [R]; entry 0, the resource `pods`, is 1."""
        return self.classes.request_vector(pod)

    def _resource_names(self, snapshot: Snapshot, pause: Pause) -> ResourceColumnNames:
        call_numbers = count()

        def requests_of(pod: Pod) -> dict[str, int]:
            """Return the requests of a pod, which are computed once for each distinct spec."""
            if next(call_numbers) % PODS_BETWEEN_PAUSES == 0:
                pause()
            return self.specs.requests_of(pod)

        return ResourceColumnNames(snapshot, requests_of)

    def _add_objects(self, snapshot: Snapshot, pause: Pause) -> None:
        for group in snapshot.pod_groups:
            self.add_group(group)
        for number, pod in enumerate(snapshot.pods):
            if number % PODS_BETWEEN_PAUSES == 0:
                pause()
            self._add_pod_to_gang(pod)
        # Once for each gang and not for each pod: no value of a gang is read before.
        for members in self.gangs.values():
            self._mark_changed(members)

    def _object_selector_label_keys(self, snapshot: Snapshot) -> frozenset[str] | None:
        try:
            return self.pipeline.object_selector_label_keys(snapshot)
        except PluginError as error:
            # The failure affects every session over these tables, so every decision reports it.
            self.record_plugin_failure(error)
            self._lasting_failures = dict(self.plugin_failures)
            return None

    def unoffered_resources(self, requests: Iterable[str]) -> list[str]:
        """Return the requested resources that no node offers and that NodeResourcesFit does not ignore."""
        column = self.node_table.column
        return [name for name in requests if name not in column and not self.pipeline.ignores_resource(name)]

    def record_plugin_failure(self, error: PluginError) -> None:
        """Record a plugin failure that concerns no particular pod, so that the decision reports it."""
        self.plugin_failures[str(error)] = SetAside("", f"plugin {error.plugin}", "", str(error))

    # Following a cluster

    def apply_changes(self, changes: ClusterChanges) -> None:
        """Apply changes of the cluster to the session's tables; call this only between two sessions."""
        # Nodes first: bound pods look up their node's index. PodGroups are added before and removed after their pods.
        if changes.nodes is not None:
            self.replace_all_nodes(changes.nodes)
        for group in changes.pod_groups:
            self.add_group(group)
        for pod in changes.removed_pods:
            self.remove_pod(pod)
        for pod in changes.ended_pods:
            self.node_table.device_ledger.release_devices_of_ended_pod(pod, self._has_bound_group)
        for pod in changes.bound_pods:
            self.replace_pending_by_bound_pod(pod)
        for pod in changes.added_pods:
            self.add_pod(pod)
        for key in changes.removed_pod_groups:
            self.remove_group(key)
        if changes.objects:
            self._replace_objects(changes)

    def _has_bound_group(self, pod: Pod) -> bool:
        """Return whether a pod of the same PodGroup of Kubernetes is bound."""
        return any(
            bound.namespace == pod.namespace and bound.spec.scheduling_group == pod.spec.scheduling_group
            for members in self.gangs.values()
            for bound, _ in members.bound.values()
        )

    def _replace_objects(self, changes: ClusterChanges) -> None:
        """Follow the devices and NUMA zones of the cluster, and the ResourceClaims after the pods that use them."""
        table, before, objects = self.node_table, self.snapshot, dict(changes.objects)
        if not self.pipeline.allocates_devices:
            objects.pop("device_classes", None)
        table.replace_cluster_objects(objects)
        self.snapshot = table.cluster_objects
        has_other_results = not DEVICE_KINDS.isdisjoint(objects)
        if has_other_results:
            self.result_cache.clear()
        if "node_resource_topologies" in objects:
            has_other_results = True
            self._follow_topologies(before)
        has_other_results |= table.device_ledger.update_claims(changes.claims, changes.removed_claims)
        for identity in self.classes.claim_states.update_claims(changes.claims, changes.removed_claims):
            self._form_gang_again(self.gangs[identity])
        claims = (*(claim.key for claim in changes.claims), *changes.removed_claims)
        self.classes.forget_classes_represented_by(claims)
        if has_other_results:
            for members in self.pending_gangs:
                members.cache.drop_results_that_depend_on_nodes()

    def _follow_topologies(self, snapshot: Snapshot) -> None:
        """Let plugins judge a node again if its NodeResourceTopology changed since an earlier snapshot."""
        before, present = snapshot.node_resource_topologies, self.snapshot.node_resource_topologies
        if not before or not present:
            self.result_cache.clear()  # NUMA zones begin or cease to count
            return
        index = self.node_table.index
        for topology in _find_different_objects(before, present):
            if topology.name in index:
                self.node_table.moves.record_node_change(index[topology.name])

    def replace_all_nodes(self, nodes: Sequence[Node]) -> None:
        """Replace the nodes in the session's tables; the caller has to rebuild the topology levels.

        Args:
          nodes: all nodes, in any order. Their resources must have a column already.
        """
        table = self.node_table
        nodes = sorted(nodes, key=lambda node: node.name)
        names = {node.name for node in nodes}
        for index, name in enumerate(table.names):
            if name not in names:
                for pod in tuple(table.pod_table.pods_on(index)):
                    self._detach_from_node(pod)
        # None means that the nodes are the same, in the same order: all indices stay valid.
        source = table.replace_all_nodes(nodes)
        if source is not None:
            self.result_cache.clear()
            for members in self.gangs.values():
                members.update_node_indexes(table.index)
            for name in [name for name in self._pods_on_unknown_nodes if name in table.index]:
                for pod in self._pods_on_unknown_nodes.pop(name).values():
                    table.add_pods([(pod, table.index[name])], *self.requests_and_nonzero(pod))
        self.snapshot = table.cluster_objects
        self._invalidate_after_nodes()

    def _detach_from_node(self, pod: Pod) -> None:
        """Take a bound pod off the node table, since its node is gone; its gang still counts it as bound."""
        self.node_table.remove_pods([pod])
        self._pods_on_unknown_nodes.setdefault(pod.node_name, {})[pod.key] = pod

    def _invalidate_after_nodes(self) -> None:
        """Drop what was computed of pending gangs with the old nodes."""
        previous_total = self._total
        self._sum_nodes()
        # Dominant shares are fractions of the whole cluster: they change with its total, and only with it.
        total_changed = not np.array_equal(previous_total, self._total)
        for members in self.pending_gangs:
            members.cache.drop_results_that_depend_on_nodes()
            if total_changed:
                self._form_gang_again(members)

    def _sum_nodes(self) -> None:
        self._total = self.node_table.allocatable.sum(axis=0)
        self._measured_columns = np.flatnonzero(self.share_resources & (self._total > 0))
        self._capacity_for_gangs = self.node_table.allocatable
        self._is_capacity_for_gangs_current = False

    def add_group(self, group: PodGroup) -> None:
        """Add a PodGroup to the session's tables, or replace it."""
        self.preferred_level_waits.put_group(group)
        self._set_group(group)

    def _set_group(self, group: PodGroup) -> None:
        members = self._members(group.key)
        members.group = group
        self._mark_changed(members)

    def remove_group(self, key: str) -> None:
        """Remove a PodGroup; its pods stay, and then refer to a PodGroup that does not exist."""
        self.preferred_level_waits.remove_group(key)
        members = self.gangs[key]
        members.group = None
        self._mark_changed(members)

    def add_pod(self, pod: Pod) -> None:
        """Add a pod to the session's tables: to its node if it is bound, otherwise to its gang's pending pods."""
        self._mark_changed(self._add_pod_to_gang(pod))

    def _add_pod_to_gang(self, pod: Pod) -> GangState:
        self._are_classes_too_wide |= self.classes.record_selector_label_keys(pod)
        key = pod.key
        members = self._members(gang_identity(pod))
        if pod.node_name:
            node = self.node_table.index.get(pod.node_name, -1)
            members.bound[key] = (pod, node)
            if node >= 0:
                self.node_table.add_pods([(pod, node)], *self.requests_and_nonzero(pod))
            else:
                self._pods_on_unknown_nodes.setdefault(pod.node_name, {})[key] = pod
        else:
            members.pending[key] = pod
            self.classes.claim_states.add_pending_pod(pod, members.identity)
        return members

    def replace_pending_by_bound_pod(self, bound: Pod) -> None:
        """Replace a pending pod in the session's tables by its bound version; its node must be known."""
        key = bound.key
        members = self.gangs[gang_identity(bound)]
        self.classes.claim_states.remove_pending_pod(members.pending.pop(key), members.identity)
        node = self.node_table.index[bound.node_name]
        members.bound[key] = (bound, node)
        self.node_table.add_pods([(bound, node)], *self.requests_and_nonzero(bound))
        self._mark_changed(members)

    def remove_pod(self, pod: Pod) -> None:
        """Remove from the session's tables a pod that was deleted or has finished."""
        key = pod.key
        if pod.spec.resource_claims:
            self.classes.forget_classes_represented_by((key,))
        members = self.gangs[gang_identity(pod)]
        pending = members.pending.pop(key, None)
        if pending is not None:
            self.classes.claim_states.remove_pending_pod(pending, members.identity)
        bound = members.bound.pop(key, None)
        if bound is not None:
            self._remove_bound(*bound)
        self._mark_changed(members)

    def _remove_bound(self, pod: Pod, node: int) -> None:
        if node >= 0:
            self.node_table.remove_pods([pod])
            return
        pods = self._pods_on_unknown_nodes[pod.node_name]
        del pods[pod.key]
        if not pods:
            del self._pods_on_unknown_nodes[pod.node_name]

    def _members(self, identity: str) -> GangState:
        members = self.gangs.get(identity)
        if members is None:
            default_queue = self.queue_access.default_queue_name(gang_namespace(identity))
            members = self.gangs[identity] = GangState(identity, None, default_queue=default_queue)
        return members

    def _mark_changed(self, members: GangState) -> None:
        members.cache = CachedGangResults()
        self.counts.invalidate_counts(members.identity)
        self._changed[members.identity] = None

    def __del__(self) -> None:
        """Free the cached values of the gangs, which refer back to their gangs."""
        # Explanations build tables hundreds of times a minute. Without this, all of them stay in memory until the next
        # full collection, which is rare: the collector counts objects and not the bytes of arrays.
        for members in self.gangs.values():
            members.cache = CachedGangResults()

    # For one session

    def set_time(self, now: float) -> None:
        """Set the session's time (seconds since 1970), and update which preferred levels are required now."""
        self.node_table.now = now
        for group in self.preferred_level_waits.update_required_levels(now):
            self._set_group(group)

    def update_pending_gangs_and_indexes(self) -> None:
        """Update the pending gangs and the indexes of gangs after changes of the tables.

        Every session calls this method first.
        """
        self.plugin_failures = dict(self._lasting_failures)
        self._is_capacity_for_gangs_current = False
        self._form_outdated_gangs_again()
        for identity in self._changed:
            members = self.gangs[identity]
            if members.pending:
                self.pending_gangs.put_gang(self.pending_gang(members))
            else:
                self.pending_gangs.remove_gang(members)
            is_nominated = any(pod.status.nominated_node_name for pod in members.pending.values())
            indexes = (
                (self.running, bool(members.bound)),
                (self.incomplete, members.has_too_few_pods_and_none_pending),
                (self.nominated, is_nominated),
            )
            for index, belongs in indexes:
                if belongs:
                    index[identity] = members
                else:
                    index.pop(identity, None)
            # Only now: an event may have removed the last pod and another one added it again.
            if not members.bound and not members.pending and members.group is None:
                del self.gangs[identity]
        self._changed.clear()

    def _form_outdated_gangs_again(self) -> None:
        """Let `refresh` form the gangs again that have pod classes which are not valid any more."""
        if self._are_classes_too_wide:
            # The parts of all gangs refer to classes. Once for all pods that were added: each may read other labels.
            for members in self.gangs.values():
                self._form_gang_again(members)
            self._are_classes_too_wide = False
        forgotten = set(map(id, self.classes.take_forgotten_classes()))
        if forgotten:
            for members in self.pending_gangs:
                pending = members.cache.pending
                if pending is not None and any(id(part.pod_class) in forgotten for part in pending.parts):
                    self._form_gang_again(members)

    def _form_gang_again(self, members: GangState) -> None:
        """Let `refresh` form the parts of a gang again, since the classes of its pods may be others."""
        members.cache.pending = None
        self._changed[members.identity] = None

    def offered_capacity(self) -> IntArray:
        """Return the amounts [N, R] (node, resource) that nodes offer; UNLIMITED if an extender counts them.

        A resource is unlimited if an extender accounts for it. Extended resources that devices provide are unlimited on
        nodes that do not offer them themselves.
        """
        return self._unbounded_where_unaccounted(self.node_table.allocatable)

    def capacity_for_gangs(self, scheduler_name: str) -> IntArray:
        """Return the amounts [N, R] (node, resource) that are free when all running gangs have ended.

        Pods that count against no queue stay, such as those of DaemonSets: they do not end as gangs do. The result is
        the same object in all sessions until it changes.

        Args:
          scheduler_name: scheduler name of the profile; pods of other schedulers count against no queue.
        """
        if not self._is_capacity_for_gangs_current:
            capacity = self.offered_capacity().copy()
            running = (
                self.running_gang(members)
                for members in self.running.values()
                if not members.counts_against_queue(scheduler_name)
            )
            staying = [gang for gang in running if not gang.terminating]
            if staying:
                # One update for all of them: there may be several pods of DaemonSets on each node.
                nodes = np.concatenate([gang.nodes for gang in staying])
                np.subtract.at(capacity, nodes, np.concatenate([gang.requests for gang in staying]))
            if not np.array_equal(capacity, self._capacity_for_gangs):
                self._capacity_for_gangs = capacity
            self._is_capacity_for_gangs_current = True
        return self._capacity_for_gangs

    def free_resources(self) -> IntArray:
        """Return the amounts [N, R] (node, resource) that are free; negative on overcommitted nodes.

        The same amounts are unlimited as in `offered_capacity`.
        """
        return self._unbounded_where_unaccounted(self.node_table.allocatable - self.node_table.requested)

    def _unbounded_where_unaccounted(self, amounts: IntArray) -> IntArray:
        unbounded: BoolArray = self._unaccounted
        served = mask_resources_served_by_devices(self.node_table)
        if served.any():
            # Devices serve these resources on nodes that do not offer them; rows of DynamicResources count the devices.
            unbounded = unbounded | (served & (self.node_table.allocatable == 0))
        return np.where(unbounded, UNBOUNDED_AMOUNT, amounts) if unbounded.any() else amounts

    @cached_property
    def names_of_set_aside_objects(self) -> frozenset[str]:
        """The kinds and names of the objects that were set aside, such as `Queue team`."""
        return frozenset(entry.object for entry in self.snapshot.set_aside)

    @cached_property
    def counts_of_set_aside_pods_by_namespace(self) -> Counter[str]:
        """The number of pods that were set aside, by namespace."""
        kinds_and_names = (name.partition(" ") for name in self.names_of_set_aside_objects)
        return Counter(name.partition("/")[0] for kind, _, name in kinds_and_names if kind == "Pod")

    def find_gang(self, key: str) -> GangState | None:
        """Return the gang of the PodGroup or single pod with this `namespace/name`; None if there is none.

        A PodGroup takes precedence over a single pod of the same name.
        """
        pod_group, single_pod = identities_of_gang_key(key)
        return self.gangs.get(pod_group) or self.gangs.get(single_pod)

    def pending_gang(self, members: GangState) -> PendingGang:
        """Return the pending pods of a gang, grouped by pod class and subGroup, with their requests.

        The result is cached until the gang or the nodes change.
        """
        if members.cache.pending is not None:
            return members.cache.pending
        group = members.group
        pods = sorted(
            (pod for pod in members.pending.values() if not pod.terminating), key=pod_creation_sort_key
        )
        priority = self.classes.priorities.gang_priority(group, pods)
        parts = self.classes.gang_parts_of(members, pods, priority)
        if len(parts) > 1:
            # Largest requests first: they have the fewest nodes to choose from.
            parts = tuple(sorted(parts, key=lambda part: -self.dominant_share(part.pod_class.requests)))
        estimate = group.spec.expected_runtime_seconds if group is not None else None
        need = members.missing_pod_count
        members.cache.pending = PendingGang(
            members=members,
            queue=members.queue,
            priority=priority,
            created=members.created,
            estimate=math.nan if estimate is None else float(estimate),
            need=need,
            parts=parts,
            share=math.fsum(self.dominant_share(part.pod_class.requests) * len(part.pods) for part in parts),
            needs=sum_smallest_requests(parts, need, len(self.node_table.resources)),
        )
        return members.cache.pending

    def running_gang(self, members: GangState) -> RunningGang:
        """Return the resources that the bound pods of a gang use on each node, and the expected end of the gang."""
        running = members.cache.running
        if running is None:
            bound = [(pod, node) for pod, node in members.bound.values() if node >= 0]
            running = RunningGang.from_requests(
                members.expected_end(self.node_table.now),
                [node for _, node in bound],
                [self.request_vector(pod) for pod, _ in bound],
                len(self.node_table.resources),
                priority=self.classes.priorities.gang_priority(
                    members.group, (pod for pod, _ in members.bound.values())
                ),
                terminating=any(pod.terminating for pod, _ in bound),
            )
            running = replace(running, started=math.isfinite(members.start_of_first_pod))
            members.cache.running = running
        elif not running.started:
            # It counts as started in this session, whatever the time of the session that filled the cache.
            running = replace(running, end=members.expected_end(self.node_table.now))
        return running

    def dominant_share(self, requests: IntArray) -> float:
        """Return the dominant share of requests: their largest fraction of the total cpu, memory or GPUs."""
        columns = self._measured_columns
        return float((requests[columns] / self._total[columns]).max(initial=0.0))


def _find_different_objects(before: Sequence[T], present: Sequence[T]) -> Iterator[T]:
    """Yield the objects that only one of two lists contains; unchanged objects are identical."""
    for objects, other_objects in ((before, present), (present, before)):
        unchanged_ids = set(map(id, other_objects))
        yield from (item for item in objects if id(item) not in unchanged_ids)

"""The frame: a snapshot laid out as the tables that a session works on.

A frame is made from a snapshot in one go, or follows a cluster event by event; either way the same tables come
out, and so the same decision. That is how a simulator or a live loop decides thousands of times without laying
out the whole cluster each time.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from batchsched.api.core.node import Node
from batchsched.api.core.pod import SUB_GROUP_LABEL, Pod
from batchsched.api.core.requests import resized
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.decision import SetAside
from batchsched.api.gang_identity import identity_of
from batchsched.api.snapshot import Snapshot
from batchsched.errors import PluginError
from batchsched.framework.nodes.node_table import LEADING, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.result_cache import ResultCache
from batchsched.framework.status import BoolArray, IntArray
from batchsched.ports.scheduler import ClusterChanges
from batchsched.queues.tree import QueueTree
from batchsched.session.tables.counts import PlacedPodCounts
from batchsched.session.tables.gang import GangPart, PendingGang, PodGroupState, Run, needs_of, seniority
from batchsched.session.tables.pending import PendingGangs
from batchsched.session.tables.spec_info import (
    PodSpecIndex,
    alike_but_for_names,
    has_own_volume,
    nobody,
    whose,
)

GPU_SUFFIX = "/gpu"
ENDLESS = 2**40
"""More of a resource than is ever asked of one node, and little enough to be added up over all of them."""


def share_resources(resources: Iterable[str]) -> BoolArray:
    """[R] tell the resources by which shares are measured."""
    return np.array([name in ("cpu", "memory") or name.endswith(GPU_SUFFIX) for name in resources], np.bool_)


class SessionTables:
    """The tables of one cluster: nodes with what is on them, gangs with who waits and who runs.

    Args:
      snapshot: where to start. Its queues, classes and topologies stay; its pods and PodGroups are not held on to.
      pipeline: the profile's plugins; they say which pods are equal.
    """

    def __init__(self, snapshot: Snapshot, pipeline: Pipeline) -> None:
        self.snapshot = replace(snapshot, pods=(), pod_groups=())
        self.pipeline = pipeline
        self.specs = PodSpecIndex(pipeline)
        self.queues = QueueTree(snapshot.queues)
        self.node_table = NodeTable(self.snapshot, self._columns(snapshot))
        self.result_cache = ResultCache(self.node_table)
        self.gangs: dict[str, PodGroupState] = {}
        self.counts = PlacedPodCounts(self.gangs)
        self.node_table.gang_of = self.counts.of_gang
        self.pending_gangs = PendingGangs(len(self.node_table.resources))
        self.running: dict[str, PodGroupState] = {}
        self.incomplete: dict[str, PodGroupState] = {}
        self.nominated: dict[str, PodGroupState] = {}
        """Gangs with bound members, PodGroups with too few pods of which none waits, and gangs of which somebody who
        waits is nominated, by identity."""
        self.share_resources = share_resources(self.node_table.resources)
        self._uncounted = np.array([pipeline.leaves_out(one) for one in self.node_table.resources], np.bool_)
        self._add_up_nodes()
        self._priorities = {one.metadata.name: one.value for one in snapshot.priority_classes}
        self._default_priority = next(
            (one.value for one in snapshot.priority_classes if one.global_default), 0
        )
        self._classes: dict[object, PodClass] = {}
        self._kin: dict[object, PodClass] = {}
        """Of classes that differ in priority alone, the first."""
        self._request_vectors: dict[int, tuple[IntArray, IntArray]] = {}
        self._dirty: dict[str, None] = {}
        self._astray: dict[str, dict[str, Pod]] = {}
        """Pods bound to nodes that nobody knows, by node."""
        self._all_labels = False
        """Nobody knows which labels are read: pods that differ in any are no class."""
        self.plugin_failures: dict[str, SetAside] = {}
        """What broke over no pod in particular."""
        self._broken_before: dict[str, SetAside] = {}
        self._label_keys = self._snapshot_label_keys(snapshot)
        self._read = sorted(self._label_keys)
        for group in snapshot.pod_groups:
            self.add_group(group)
        for pod in snapshot.pods:
            self.add_pod(pod)

    def _snapshot_label_keys(self, snapshot: Snapshot) -> frozenset[str]:
        try:
            return self.pipeline.snapshot_label_keys(snapshot)
        except PluginError as error:
            self._all_labels = True
            self.record_failure(error)
            self._broken_before = dict(self.plugin_failures)
            return frozenset()

    def record_failure(self, error: PluginError) -> None:
        """Keep for the decision that a plugin broke over no pod in particular."""
        self.plugin_failures[str(error)] = SetAside("", f"plugin {error.plugin}", "", str(error))

    def _columns(self, snapshot: Snapshot) -> tuple[str, ...]:
        """All resources that nodes offer or pods ask for, the common ones first."""
        names: set[str] = set()
        for node in snapshot.nodes:
            names.update(node.offered)
        for pod in snapshot.pods:
            names.update(self.specs.requests(pod))
        return (*LEADING, *sorted(names - set(LEADING)))

    # Following a cluster

    def apply(self, changes: ClusterChanges) -> None:
        """Take in what changed in the cluster.

        Nodes come first, so that pods find them; a PodGroup is there before its pods, and goes after them.
        """
        if changes.nodes is not None:
            self.lay_out(changes.nodes)
        for group in changes.pod_groups:
            self.add_group(group)
        for pod in changes.removed_pods:
            self.remove_pod(pod)
        for pod in changes.bound_pods:
            self.bind_pod(pod)
        for pod in changes.added_pods:
            self.add_pod(pod)
        for key in changes.removed_pod_groups:
            self.remove_group(key)

    def lay_out(self, nodes: Sequence[Node]) -> None:
        """Take in the nodes as they are now, in the order in which a fresh snapshot has them.

        What they offer, or pods ask for, must have a column already; the levels of topologies are the caller's.
        """
        table = self.node_table
        names = {node.name for node in nodes}
        for at, name in enumerate(table.names):
            if name not in names:
                for pod in tuple(table.pods.on(at)):
                    self._lose(pod)
        source = table.lay_out(nodes)
        if source is not None:
            self.result_cache.forget()
            for members in self.gangs.values():
                members.settle(table.index)
            for name in [name for name in self._astray if name in table.index]:
                for pod in self._astray.pop(name).values():
                    table.add(pod, table.index[name], *self.request_vectors(pod))
        self.snapshot = table.snapshot
        self._weigh_anew()

    def _lose(self, pod: Pod) -> None:
        """Let a pod be on no node, since its node is gone."""
        self.node_table.remove(pod, *self.request_vectors(pod))
        self._astray.setdefault(pod.node, {})[pod.key] = pod

    def _weigh_anew(self) -> None:
        """Work out anew what waiting gangs weigh, and whether nodes would take them at all."""
        before = self._total
        self._add_up_nodes()
        heavier = not np.array_equal(before, self._total)
        for members in self.pending_gangs:
            members.lasting = members.hope = None
            if heavier:
                members.gang = None
                self._dirty[members.identity] = None

    def _add_up_nodes(self) -> None:
        self._total = self.node_table.allocatable.sum(axis=0)
        self._measured = np.flatnonzero(self.share_resources & (self._total > 0))

    def add_group(self, group: PodGroup) -> None:
        """Take in a PodGroup, or a new version of it."""
        members = self._members(group.key)
        members.group = group
        self._touch(members)

    def remove_group(self, key: str) -> None:
        """Forget a PodGroup; its pods, if any are left, name one that does not exist."""
        members = self.gangs[key]
        members.group = None
        self._touch(members)

    def add_pod(self, pod: Pod) -> None:
        """Take in a pod: on its node when it is bound, among those that wait otherwise."""
        self._learn_labels(pod)
        key = pod.key
        members = self._members(identity_of(pod))
        if pod.node:
            node = self.node_table.index.get(pod.node, -1)
            members.bound[key] = (pod, node)
            if node >= 0:
                self.node_table.add(pod, node, *self.request_vectors(pod))
            else:
                self._astray.setdefault(pod.node, {})[key] = pod
        else:
            members.pending[key] = pod
        self._touch(members)

    def bind_pod(self, bound: Pod) -> None:
        """Turn a pod that waits into its bound version."""
        key = bound.key
        members = self.gangs[identity_of(bound)]
        del members.pending[key]
        node = self.node_table.index[bound.node]
        members.bound[key] = (bound, node)
        self.node_table.add(bound, node, *self.request_vectors(bound))
        self._touch(members)

    def remove_pod(self, pod: Pod) -> None:
        """Forget a pod that is gone or has finished."""
        key = pod.key
        members = self.gangs[identity_of(pod)]
        members.pending.pop(key, None)
        placed = members.bound.pop(key, None)
        if placed is not None:
            self._leave(*placed)
        self._touch(members)

    def _leave(self, pod: Pod, node: int) -> None:
        """Take a bound pod away from where it is."""
        if node >= 0:
            self.node_table.remove(pod, *self.request_vectors(pod))
            return
        there = self._astray[pod.node]
        del there[pod.key]
        if not there:
            del self._astray[pod.node]

    def _members(self, identity: str) -> PodGroupState:
        members = self.gangs.get(identity)
        if members is None:
            members = self.gangs[identity] = PodGroupState(identity, None)
        return members

    def _touch(self, members: PodGroupState) -> None:
        members.forget()
        self.counts.forget(members.identity)
        self._dirty[members.identity] = None

    def _learn_labels(self, pod: Pod) -> None:
        """Labels that some selector reads tell pods apart; one more of them makes all classes anew."""
        keys = self.specs.of(pod).label_keys
        if not keys <= self._label_keys:
            self._label_keys |= keys
            self._read = sorted(self._label_keys)
            self._classes.clear()
            self._kin.clear()
            for identity, members in self.gangs.items():
                members.gang = None
                self._dirty[identity] = None

    # What a session asks

    def refresh(self) -> None:
        """Bring the backlog up to date with what came and went."""
        self.plugin_failures = dict(self._broken_before)
        for identity in self._dirty:
            members = self.gangs[identity]
            if members.pending:
                self.pending_gangs.put(self.pending_gang(members))
            else:
                self.pending_gangs.drop(members)
            named = any(pod.status.nominated_node_name for pod in members.pending.values())
            kinds = (self.running, members.bound), (self.incomplete, members.short), (self.nominated, named)
            for kind, belongs in kinds:
                if belongs:
                    kind[identity] = members
                else:
                    kind.pop(identity, None)
            if not members.bound and not members.pending and members.group is None:
                del self.gangs[identity]
        self._dirty.clear()

    def request_vectors(self, pod: Pod) -> tuple[IntArray, IntArray]:
        """Return ([R] requests with the pod count, [2] requests for scoring) of a pod."""
        known = self._request_vectors.get(id(pod.spec))
        if known is not None and not resized(pod):
            return known
        facts = self.specs.of(pod)
        vector = np.zeros(len(self.node_table.resources), np.int64)
        vector[0] = 1
        for resource, amount in self.specs.requests(pod).items():
            vector[self.node_table.column[resource]] += amount
        made = (vector, np.asarray(self.specs.nonzero(pod), np.int64))
        if not resized(pod):
            self._request_vectors[id(facts.spec)] = made
        return made

    def capacity(self) -> IntArray:
        """[N, R] what the nodes offer; without end of what others look after."""
        return self._endless(self.node_table.allocatable)

    def free_resources(self) -> IntArray:
        """[N, R] what is left on the nodes, less than nothing where they are overcommitted; without end as above."""
        return self._endless(self.node_table.allocatable - self.node_table.requested)

    def _endless(self, amounts: IntArray) -> IntArray:
        return np.where(self._uncounted, ENDLESS, amounts) if self._uncounted.any() else amounts

    def priority_of(self, pod: Pod) -> int:
        """Resolve a pod's own priority."""
        if pod.spec.priority is not None:
            return pod.spec.priority
        return self._priorities.get(pod.spec.priority_class_name, self._default_priority)

    def class_of(self, pod: Pod, priority: int) -> PodClass:
        """Return the class of a pod: one for all pods among which no plugin sees a difference."""
        facts = self.specs.of(pod)
        seen, asked = self._seen(pod), self.pipeline.extenders.interested(pod)
        identity = (pod.metadata.namespace, facts.signature, seen, priority, self._gang_matters(pod))
        known = self._classes.get(identity)
        if known is None:
            requests, _ = self.request_vectors(pod)
            whole = identity[-1] or asked or self.pipeline.reads_all
            example = pod if whole else nobody(pod, seen)
            known = PodClass.of(example, requests, facts.nonzero, priority)
            if not self.pipeline.by_priority and not whole:
                first = self._kin.setdefault((*identity[:3], identity[-1]), known)
                known = replace(known, kin=first) if first is not known else known
            self._classes[identity] = known
        return known

    def _seen(self, pod: Pod) -> tuple[tuple[str, str | None], ...]:
        """Return what anybody reads of a pod beside its spec: some labels, and all of it where an extender asks."""
        labels = pod.metadata.labels
        read = sorted(labels) if self._all_labels and labels else self._read
        seen = tuple((key, labels.get(key)) for key in read) if labels and read else ()
        if self.pipeline.extenders and self.pipeline.extenders.interested(pod):
            seen += (*sorted((labels or {}).items()), *sorted((pod.metadata.annotations or {}).items()))
        return seen

    def _gang_matters(self, pod: Pod) -> str:
        """A gang that cannot reach its minimum is refused by its own PreFilter: it shares no class.

        Nor does a pod with a volume that is made for it alone: who it is matters to plugins.
        """
        members = self.gangs.get(identity_of(pod))
        if members is None or (self.counts.of(pod).possible and not has_own_volume(pod)):
            return ""
        return members.identity

    def pending_gang(self, members: PodGroupState) -> PendingGang:
        """Return a gang as the session sees it; made once for each change of its members."""
        if members.gang is not None:
            return members.gang
        group = members.group
        pods = sorted((pod for pod in members.pending.values() if not pod.terminating), key=seniority)
        priority = self.gang_priority(members, pods)
        parts = self._parts(members, pods, priority)
        estimate = group.spec.expected_runtime_seconds if group is not None else None
        need = members.need
        members.gang = PendingGang(
            members=members,
            queue=members.queue,
            priority=priority,
            created=members.created,
            estimate=math.nan if estimate is None else float(estimate),
            need=need,
            parts=parts,
            share=sum(self.dominant_share(part.pod_class.requests) * len(part.pods) for part in parts),
            needs=needs_of(parts, need, len(self.node_table.resources)),
        )
        return members.gang

    def running_gang(self, members: PodGroupState) -> Run:
        """Return what a running gang holds, and until when it is expected to."""
        if members.run is None:
            placed = [(pod, node) for pod, node in members.bound.values() if node >= 0]
            members.run = Run.of(
                members.end,
                [node for _, node in placed],
                [self.request_vectors(pod)[0] for pod, _ in placed],
                len(self.node_table.resources),
            )
        return members.run

    def gang_priority(self, members: PodGroupState, pods: Iterable[Pod]) -> int:
        """Return the priority of some pods of a gang: the PodGroup's class's, or the highest of their own."""
        group = members.group
        if group is not None and group.spec.priority_class_name in self._priorities:
            return self._priorities[group.spec.priority_class_name]
        return max((self.priority_of(pod) for pod in pods), default=self._default_priority)

    def _parts(self, members: PodGroupState, pods: Iterable[Pod], priority: int) -> tuple[GangPart, ...]:
        group = members.group
        subs = group.spec.sub_groups if group is not None else ()
        names = {sub.name: at for at, sub in enumerate(subs)}
        groups: dict[tuple[int, int], list[Pod]] = {}
        classes: dict[int, PodClass] = {}
        alike: dict[object, PodClass] = {}
        before: Pod | None = None
        for pod in pods:
            if before is None or not alike_but_for_names(
                pod, before
            ):  # pods of one template come one after the other
                stated = (whose(pod), self._seen(pod))
                pod_class = alike.get(stated)
                if pod_class is None:
                    pod_class = alike[stated] = self.class_of(pod, priority)
                    classes[id(pod_class)] = pod_class
                sub = names.get(pod.labels.get(SUB_GROUP_LABEL, ""), -1) if names else -1
                some, before = groups.setdefault((id(pod_class), sub), []), pod
            some.append(pod)
        made = [GangPart(classes[key], sub, tuple(some)) for (key, sub), some in groups.items()]
        if len(made) == 1:
            return (made[0],)
        return tuple(sorted(made, key=lambda part: -self.dominant_share(part.pod_class.requests)))

    def dominant_share(self, requests: IntArray) -> float:
        """Return the dominant share of a request: the largest over cpu, memory and GPUs of request ÷ all nodes."""
        measured = self._measured
        return float((requests[measured] / self._total[measured]).max(initial=0.0))

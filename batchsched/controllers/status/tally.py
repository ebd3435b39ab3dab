"""Gangs and queues in numbers, kept from change to change of the cache: nobody looks at all pods again."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from batchsched.api.core.pod import QUEUE_LABEL, Pod
from batchsched.api.core.requests import requests, resized, stated
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.gang_identity import identity_of, is_single_pod
from batchsched.session.gangs.queue_limits import is_ours
from batchsched.state.change_log import Change
from batchsched.state.cluster_state import NODES, PODS, ClusterState
from batchsched.state.feed import GROUPS

QUEUES: Final = "queues"
RUNNING: Final = "Running"
_MOST_STATED: Final = 10_000
"""So many different requests are kept in mind."""


@dataclass(slots=True)
class GangCounts:
    """A gang, or a pod alone that waits, in numbers.

    Args:
      waiting: its pods without a node, by `namespace/name`.
      placed: its pods that have one, and whether they run.
      queue: where it is counted, "" for nowhere yet.
      pending: whether it is counted there as waiting.
    """

    waiting: set[str] = field(default_factory=set)
    placed: dict[str, bool] = field(default_factory=dict)
    queue: str = ""
    pending: bool = False

    @property
    def running(self) -> int:
        """Pods that run."""
        return sum(self.placed.values())

    @property
    def empty(self) -> bool:
        """True when no pod is left."""
        return not self.waiting and not self.placed


class Tally:
    """Counts.

    Args:
      cache: what is known of the cluster.
    """

    def __init__(self, cache: ClusterState) -> None:
        self._cache = cache
        self._told = -1
        self._known: dict[Hashable, dict[str, int]] = {}
        """What pods ask for, by what their specs state."""
        self.gangs: dict[str, GangCounts] = {}
        """By identity; of pods alone only those that wait."""
        self.queues: dict[str, Queue] = {}
        self.usage: dict[str, Counter[str]] = {}
        """What the pods of each queue have, its descendants' apart."""
        self.wanted: dict[str, Counter[str]] = {}
        """What the pods that wait in each queue ask for, its descendants' apart."""
        self.pending: Counter[str] = Counter()
        """Gangs that wait in each queue, its descendants' apart."""
        self.capacity: Counter[str] = Counter()
        """What the nodes have."""

    def sync(self) -> set[str]:
        """Take in what changed; returns the gangs that it concerns. The first time: all of them."""
        changes = self._cache.changes(self._told) if self._told >= 0 else None
        self._told = self._cache.generation
        touched: set[str] = set()
        if changes is None:
            self._anew(touched)
        else:
            for change in changes:
                self._take(change, touched)
        for identity in touched:
            self._count(identity)
        return touched

    def _anew(self, touched: set[str]) -> None:
        snapshot = self._cache.snapshot()
        self.gangs, self.usage, self.wanted, self.pending = {}, {}, {}, Counter()
        self.capacity = Counter()
        for node in snapshot.nodes:
            self.capacity.update(node.allocatable())
        # Not those of the snapshot: it lacks the ones without a place in the tree.
        self.queues = {queue.name: queue for queue in self._cache.every(QUEUES)}
        touched.update(group.key for group in snapshot.pod_groups)
        for pod in snapshot.pods:
            self._pod(Change(PODS, pod.key, None, pod), touched)

    def _take(self, change: Change, touched: set[str]) -> None:
        if change.field == PODS:
            self._pod(change, touched)
        elif change.field == GROUPS:
            touched.add(change.key)
        elif change.field == NODES:
            for node, sign in ((change.before, -1), (change.after, 1)):
                for resource, amount in (node.allocatable() if node is not None else {}).items():
                    self.capacity[resource] += sign * amount
        elif change.field == QUEUES:
            if change.after is None:
                self.queues.pop(change.key, None)
            else:
                self.queues[change.key] = change.after

    def _pod(self, change: Change, touched: set[str]) -> None:
        before, after = _counted(change.before), _counted(change.after)
        if before is not None:
            identity = identity_of(before)
            standing = self.gangs.get(identity)
            if standing is not None:
                standing.waiting.discard(change.key)
                standing.placed.pop(change.key, None)
                touched.add(identity)
            self._ask(self._queue_of(identity, before), before, -1)
        if after is not None:
            identity = identity_of(after)
            self._ask(self._queue_of(identity, after), after, 1)
            if after.node and is_single_pod(identity):
                return
            touched.add(identity)
            standing = self.gangs.setdefault(identity, GangCounts(queue=self._queue_of(identity, after)))
            if after.node:
                standing.placed[change.key] = after.status.phase == RUNNING
            else:
                standing.waiting.add(change.key)

    def _ask(self, queue: str, pod: Pod, sign: int) -> None:
        """Count what a pod has, or wants, or count it no more."""
        if not any(is_ours(pod, name) for name in self._cache.scheduler_names):
            return
        amounts = (self.usage if pod.node else self.wanted).setdefault(queue, Counter())
        for resource, amount in self._requests(pod).items():
            amounts[resource] += sign * amount

    def _requests(self, pod: Pod) -> dict[str, int]:
        """Return what a pod asks for; of many that state the same, and were not resized, it is added up once."""
        if resized(pod):
            return requests(pod)
        written = stated(pod)
        known = self._known.get(written)
        if known is None:
            if len(self._known) == _MOST_STATED:
                self._known.clear()
            known = self._known[written] = requests(pod)
        return known

    def _queue_of(self, identity: str, pod: Pod) -> str:
        """Return where a pod is counted."""
        standing = self.gangs.get(identity)
        if standing is not None and not is_single_pod(identity):
            return standing.queue
        return self._queue_now(identity, pod)

    def _queue_now(self, identity: str, pod: Pod | None) -> str:
        group: PodGroup | None = self._cache.get(GROUPS, identity)
        if group is not None:
            return group.spec.queue
        return DEFAULT_QUEUE if pod is None else pod.labels.get(QUEUE_LABEL, DEFAULT_QUEUE)

    def _count(self, identity: str) -> None:
        """Count a gang in its queue, which may have changed."""
        standing = self.gangs.get(identity)
        if standing is None:
            return
        self.pending[standing.queue] -= standing.pending
        if standing.empty:
            del self.gangs[identity]
            return
        one = next(iter(standing.placed or standing.waiting))
        queue = self._queue_now(identity, self._cache.get(PODS, one))
        if queue != standing.queue and not is_single_pod(identity):  # a pod's own label moved it already
            for key in (*standing.placed, *standing.waiting):
                pod: Pod | None = self._cache.get(PODS, key)
                if pod is not None:
                    self._ask(standing.queue, pod, -1)
                    self._ask(queue, pod, 1)
        standing.queue = queue
        group: PodGroup | None = self._cache.get(GROUPS, identity)
        least = group.min_member if group is not None else 1
        standing.pending = bool(standing.waiting) and len(standing.placed) < least
        self.pending[queue] += standing.pending


def _counted(pod: Pod | None) -> Pod | None:
    """Return a pod that counts, None for one that leaves."""
    return None if pod is None or pod.terminating else pod

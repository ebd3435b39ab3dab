"""Gangs as a session sees them: the pods that wait, what they still need, and what stands in their way."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from batchsched.api.core.metadata import seconds
from batchsched.api.core.pod import QUEUE_LABEL, SUB_GROUP_LABEL, USER_LABEL, Pod
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, SCHEDULE_TIMEOUT, PodGroup
from batchsched.api.decision import Refusal
from batchsched.api.gang_identity import is_single_pod, key_of
from batchsched.framework.gang_counts import GangCount
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import IndexArray, IntArray
from batchsched.solver.problem import Problem


class EntitlementClass(IntEnum):
    """What a gang is entitled to by its queue, the strongest first; ALL while queues have no entitlements."""

    ALL = 0
    GUARANTEE = 1
    FAIR = 2
    BORROWING = 3

    @property
    def share(self) -> str:
        """The share of a tier, as a decision names it."""
        return self.name.lower()


@dataclass(slots=True)
class PodGroupState:
    """The pods of a gang as they stand: the mutable record behind `PendingGang`.

    Args:
      identity: `namespace/name` of the PodGroup, or that of the pod after `pod/`.
      group: the PodGroup, None for a pod alone or where it does not exist.
      pending, bound: pods by namespace/name; bound ones with their node's number, -1 for an unknown node.
      slot: the gang's place in the backlog's columns, -1 outside.
      gang, run: what was worked out of this record, until a member comes or goes; so is all that follows.
      lasting: a gang, and its problem by itself, as it stays when running gangs end.
      admitted: an admission's mark, a gang, and what the one made of the other.
      turned: a gang, and the same in the share that it stood in last.
      hope: a gang, and whether an empty cluster would take it.
    """

    identity: str
    group: PodGroup | None
    pending: dict[str, Pod] = field(default_factory=dict)
    bound: dict[str, tuple[Pod, int]] = field(default_factory=dict)
    slot: int = -1
    gang: "PendingGang | None" = None
    run: "Run | None" = None
    lasting: "tuple[PendingGang, Problem] | None" = None
    admitted: "tuple[object, PendingGang, PendingGang | Refusal] | None" = None
    turned: "tuple[PendingGang, PendingGang] | None" = None
    hope: "tuple[PendingGang | None, bool] | None" = None

    @property
    def alone(self) -> bool:
        """True for a pod without a PodGroup."""
        return is_single_pod(self.identity)

    @property
    def key(self) -> str:
        """The name under which the gang appears outside."""
        return key_of(self.identity)

    @property
    def queue(self) -> str:
        """The queue to which the gang belongs."""
        if self.group is not None:
            return self.group.spec.queue
        for pod in (*self.pending.values(), *(pod for pod, _ in self.bound.values())):
            return pod.labels.get(QUEUE_LABEL, DEFAULT_QUEUE)
        return DEFAULT_QUEUE

    @property
    def user(self) -> str:
        """Whose it is: the label of the PodGroup, else that of a pod; "" where nobody says."""
        if self.group is not None and USER_LABEL in (self.group.metadata.labels or {}):
            return self.group.metadata.labels[USER_LABEL]
        for pod in (*self.pending.values(), *(pod for pod, _ in self.bound.values())):
            return pod.labels.get(USER_LABEL, "")
        return ""

    @property
    def owner(self) -> tuple[str, str]:
        """Against whom it counts: (queue, user)."""
        return self.queue, self.user

    @property
    def minimum(self) -> int:
        """Members that must be placed together."""
        return self.group.min_member if self.group is not None else 1

    @property
    def standing(self) -> list[Pod]:
        """Members that are bound and stay: those that are being deleted count for no minimum."""
        return [pod for pod, _ in self.bound.values() if not pod.terminating]

    @property
    def stranded(self) -> bool:
        """True for a gang that is half bound: a leader fell, a binding failed, or a node was lost."""
        return bool(self.standing) and self.need > 0

    @property
    def need(self) -> int:
        """Members that must still be placed before the gang, and every subGroup of it, is at its minimum."""
        least = max(0, self.minimum - len(self.standing))
        if self.group is None or not self.group.spec.sub_groups:
            return least
        count = self.count()
        return max(
            least, sum(max(0, most - count.sub_placed[name]) for name, most in count.sub_minimum.items())
        )

    @property
    def created(self) -> float:
        """Seconds since 1970 at which the gang was submitted."""
        if self.group is not None:
            return self.group.created
        return min((seconds(pod.metadata.creation_timestamp) for pod in self.pending.values()), default=0.0)

    @property
    def short(self) -> bool:
        """True for a PodGroup of which too few pods exist and none waits."""
        return self.group is not None and not self.pending and not self.count().possible

    @property
    def end(self) -> float:
        """Seconds since 1970 at which those that are on nodes are expected to end, infinity where nobody said."""
        estimate = self.group.spec.expected_runtime_seconds if self.group is not None else None
        if estimate is None:
            return math.inf
        placed = (pod for pod, node in self.bound.values() if node >= 0)
        return min((seconds(pod.status.start_time, math.inf) for pod in placed), default=math.inf) + estimate

    def forget(self) -> None:
        """Let go of all that was worked out: it holds on to pods as they were, and in a circle with this record."""
        self.gang = self.run = self.lasting = self.admitted = self.turned = self.hope = None

    def settle(self, index: Mapping[str, int]) -> None:
        """Take in that nodes have other numbers."""
        if self.bound:
            self.bound = {key: (pod, index.get(pod.node, -1)) for key, (pod, _) in self.bound.items()}
            self.run = None

    def count(self) -> GangCount:
        """Count the members for plugins: those that are bound have a place."""
        group = self.group
        subs = group.spec.sub_groups if group is not None else ()
        names = [sub.name for sub in subs]
        staying = [pod for pod in self.pending.values() if not pod.terminating]
        standing = self.standing
        existing = dict.fromkeys(names, 0)
        placed = dict.fromkeys(names, 0)
        if names:
            for pod in staying:
                _count(existing, pod)
            for pod in standing:
                _count(existing, pod)
                _count(placed, pod)
        return GangCount(
            key=self.identity,
            minimum=self.minimum,
            existing=len(staying) + len(standing),
            placed=len(standing),
            timeout_seconds=float(group.spec.schedule_timeout_seconds if group else SCHEDULE_TIMEOUT),
            sub_minimum={sub.name: sub.min_member for sub in subs},
            sub_existing=existing,
            sub_placed=placed,
        )


def _count(counts: dict[str, int], pod: Pod) -> None:
    name = pod.labels.get(SUB_GROUP_LABEL, "")
    if name in counts:
        counts[name] += 1


@dataclass(frozen=True, slots=True, eq=False)
class GangPart:
    """Equal pods of one subGroup of a gang, in queue order.

    Args:
      pod_class: the pods, seen as one.
      subgroup: index into the PodGroup's subGroups, -1 for none.
      pods: those that wait.
    """

    pod_class: PodClass
    subgroup: int
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PendingGang:
    """A gang that waits, as one session sees it.

    Args:
      members: the record behind it.
      queue, priority, created: as resolved; created in seconds since 1970.
      estimate: expected run time in seconds, NaN where it is not stated.
      need: pods that must still be placed before the gang counts.
      parts: its classes, the largest request first.
      share: Σ dominant share over the pods that wait.
      needs: [R] what its first `need` pods ask for together, the smallest ones: less than this never suffices.
      entitled: inside what of its queue's it stands in this session.
      follows: it is surplus of a gang of the same session, and comes when that has its place.
      behind: the identity of the gang that must start before it, "" for none: their queue is strict.
    """

    members: PodGroupState
    queue: str
    priority: int
    created: float
    estimate: float
    need: int
    parts: tuple[GangPart, ...]
    share: float
    needs: IntArray
    entitled: EntitlementClass = EntitlementClass.ALL
    follows: bool = False
    behind: str = ""

    @property
    def key(self) -> str:
        """The name under which the gang appears outside."""
        return self.members.key

    @property
    def tier(self) -> tuple[bool, EntitlementClass, int]:
        """What comes first: half bound gangs, whose places are lost until they are whole; then share and priority."""
        return not self.members.stranded, self.entitled, -self.priority

    @property
    def size(self) -> int:
        """Pods that wait."""
        return sum(len(part.pods) for part in self.parts)

    @property
    def seniority(self) -> tuple[float, str, str]:
        """What decides between gangs that a policy holds equal: submission, then `namespace/name`.

        When a watcher heard of a gang decides nothing: whoever lists the cluster afresh could not know it.
        """
        return self.created, self.key, self.members.identity

    @property
    def fresh(self) -> bool:
        """True while no member has a place."""
        return not self.members.bound and not self.follows


def needs_of(parts: Sequence[GangPart], need: int, resources: int) -> IntArray:
    """[R] Add up the least that `need` pods can ask for, resource by resource."""
    if len(parts) == 1:
        return parts[0].pod_class.requests * min(need, len(parts[0].pods))
    if not parts:
        return np.zeros(resources, np.int64)
    counts = [len(part.pods) for part in parts]
    rows = np.repeat(np.stack([part.pod_class.requests for part in parts]), counts, axis=0)
    total: IntArray = np.sort(rows, axis=0)[:need].sum(axis=0)
    return total


def seniority(pod: Pod) -> tuple[str, str]:
    """The order of a gang's pods: what a fresh list tells, not when a watcher heard of them."""
    return pod.metadata.creation_timestamp or "", pod.metadata.name


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A gang that runs: what it holds, and until when.

    Args:
      end: seconds since 1970 at which it is expected to end, infinity where nobody said.
      nodes: [P] where its pods are.
      requests: [P, R] what they hold there.
      total: [R] their sum.
    """

    end: float
    nodes: IndexArray
    requests: IntArray
    total: IntArray

    @classmethod
    def of(cls, end: float, nodes: Sequence[int], requests: Sequence[IntArray], resources: int) -> "Run":
        """Make a run of P pods over R resources."""
        rows = np.array(requests, np.int64).reshape(len(nodes), resources)
        return cls(end, np.array(nodes, np.int32), rows, rows.sum(axis=0))

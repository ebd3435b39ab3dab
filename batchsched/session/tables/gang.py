"""Gangs of a session: their pods, the pods that they lack to start, and what running gangs use."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain

import numpy as np

from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.core.pod import SUB_GROUP_LABEL, USER_LABEL, Pod
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, SCHEDULE_TIMEOUT, PodGroup
from batchsched.api.decision import Refusal
from batchsched.api.gang import gang_identity, gang_key_from_identity, gang_namespace, is_single_pod_identity
from batchsched.api.queue_access import stated_queue_name
from batchsched.framework.gang_counts import GangPodCounts
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import IndexArray, IntArray
from batchsched.solver.problem import UNLIMITED, Problem, count_pods_that_fit
from batchsched.state.queue_usage import counts_against_queue


class EntitlementClass(IntEnum):
    """The entitlement class of a gang: within its queue's guarantee, within its fair share, or borrowing.

    ALL is the class of every gang if no queue has an entitlement. The members are in order of precedence.
    """

    ALL = 0
    GUARANTEE = 1
    FAIR = 2
    BORROWING = 3

    @property
    def name_in_decision(self) -> str:
        """The name of the entitlement class, as a decision shows it in the field `share`."""
        return self.name.lower()


@dataclass(slots=True)
class CachedGangResults:
    """Results that are computed from the pods of one gang, cached until one of these pods or the PodGroup changes.

    A new cache replaces this one when a pod or the PodGroup changes.

    Each entry has one writer. Entries that depend on more than the gang hold what else they were computed from, which
    the writer compares by identity before it uses the entry again.

    Args:
      pending: the pending pods, grouped and measured; written by `SessionTables.pending_gang`.
      running: the bound pods' requests; written by `SessionTables.running_gang`.
      problem_at_later_time: (pending gang, its problem with masks that stay true when running gangs end); written by
        `formulation.problem_at_later_time`.
      gang_eligibility: (mark of the `GangEligibilityCheck`, pending gang, the gang to try or its refusal); written by
        `GangEligibilityCheck.eligible_gang_or_refusal`.
      entitled: (pending gang, the same in an entitlement class); written by `fair_share_order`.
      fits_after_running_gangs_end: (problem at a later time, capacity for gangs, whether the gang fits when all
        running gangs have ended); written by `reservations.fits_after_running_gangs_end`.
      user: the user of the gang's oldest pod; written by `GangState.user`.
      stated_queue: the queue that the gang's oldest pod names; written by `GangState.queue`.
    """

    pending: "PendingGang | None" = None
    running: "RunningGang | None" = None
    problem_at_later_time: "tuple[PendingGang, Problem] | None" = None
    gang_eligibility: "tuple[object, PendingGang, PendingGang | Refusal] | None" = None
    entitled: "tuple[PendingGang, PendingGang] | None" = None
    fits_after_running_gangs_end: "tuple[Problem, IntArray, bool] | None" = None
    user: str | None = None
    stated_queue: str | None = None

    def drop_results_that_depend_on_nodes(self) -> None:
        """Drop the cached values of the gang that were computed from the nodes."""
        self.problem_at_later_time = self.fits_after_running_gangs_end = None


@dataclass(slots=True)
class GangState:
    """The pending and bound pods of one gang. This is the mutable record from which `PendingGang` is computed.

    Args:
      identity: `namespace/name` of the PodGroup; `pod/namespace/name` for a pod without one.
      group: the PodGroup; None for a pod without one, or if the PodGroup does not exist.
      pending: pending pods by `namespace/name`.
      bound: bound pods by `namespace/name`, each with its node's index, -1 for an unknown node.
      default_queue: the queue of the gang if neither the PodGroup nor the pod names one.
      slot: column of the gang in `PendingGangs`, -1 if it has none.
      cache: what was computed from this record.
    """

    identity: str
    group: PodGroup | None
    pending: dict[str, Pod] = field(default_factory=dict)
    bound: dict[str, tuple[Pod, int]] = field(default_factory=dict)
    default_queue: str = DEFAULT_QUEUE
    slot: int = -1
    cache: CachedGangResults = field(default_factory=CachedGangResults)

    @property
    def is_single_pod(self) -> bool:
        """True if the gang is one pod without a PodGroup."""
        return is_single_pod_identity(self.identity)

    @property
    def key(self) -> str:
        """The gang's name in decisions: `namespace/name` of its PodGroup, or of the pod if it has none."""
        return gang_key_from_identity(self.identity)

    @property
    def namespace(self) -> str:
        """The namespace of the PodGroup or the pod."""
        return gang_namespace(self.identity)

    @property
    def queue(self) -> str:
        """The name of the queue to which the gang belongs."""
        if self.group is not None:
            return self.group.spec.queue or self.default_queue
        if self.cache.stated_queue is None:
            self.cache.stated_queue = stated_queue_name(None, self._oldest_pod())
        return self.cache.stated_queue or self.default_queue

    def queue_of_pod(self, pod: Pod) -> str:
        """Return the queue of a pod of the gang: from the PodGroup, else from the pod, else the default."""
        return stated_queue_name(self.group, pod) or self.default_queue

    @property
    def user(self) -> str:
        """The gang's user, from the user label of its PodGroup or else of its oldest pod; "" without a label.

        In a queue that limits each user, all pods of a pending gang have the same user.
        """
        if self.cache.user is None:
            oldest = self._oldest_pod()
            self.cache.user = "" if oldest is None else self.user_of_pod(oldest)
        return self.cache.user

    @property
    def users_of_pods(self) -> frozenset[str]:
        """The users of all pods of the gang; "" is the user of pods without a user label."""
        return frozenset(map(self.user_of_pod, self._pods))

    def user_of_pod(self, pod: Pod) -> str:
        """Return a pod's user, from the user label of the PodGroup or else of the pod; "" without a label."""
        if self.group is not None and USER_LABEL in (self.group.metadata.labels or {}):
            return self.group.metadata.labels[USER_LABEL]
        return pod.labels.get(USER_LABEL, "")

    @property
    def _pods(self) -> Iterator[Pod]:
        return chain(self.pending.values(), (pod for pod, _ in self.bound.values()))

    def _oldest_pod(self) -> Pod | None:
        """Return the first pod by creation time and name, None if the gang has none. Pods are added in any order."""
        return min(self._pods, key=pod_creation_sort_key, default=None)

    @property
    def queue_and_user(self) -> tuple[str, str]:
        """The queue and the user against which the gang's usage counts."""
        return self.queue, self.user

    @property
    def minimum(self) -> int:
        """The number of the gang's pods that must be placed together: minMember, or 1 for a single pod."""
        return self.group.effective_min_member if self.group is not None else 1

    @property
    def bound_pods(self) -> list[Pod]:
        """The gang's bound pods, including pods that are being deleted."""
        return [pod for pod, _ in self.bound.values()]

    @property
    def nonterminating_bound_pods(self) -> list[Pod]:
        """The gang's bound pods that are not being deleted; only these count for minMember."""
        return [pod for pod, _ in self.bound.values() if not pod.terminating]

    def counts_against_queue(self, scheduler_name: str) -> bool:
        """Return True if a bound pod of the gang counts against a queue; False for pods of other schedulers.

        Args:
          scheduler_name: scheduler name of the profile.
        """
        return any(counts_against_queue(pod, (scheduler_name,)) for pod, _ in self.bound.values())

    @property
    def is_partially_bound(self) -> bool:
        """True if some pods of the gang are bound, but fewer than it needs, such as after a failed bind."""
        return bool(self.nonterminating_bound_pods) and self.missing_pod_count > 0

    @property
    def missing_pod_count(self) -> int:
        """The number of pods that must still be placed to reach minMember and the minimum of each subGroup."""
        gang_need = max(0, self.minimum - len(self.nonterminating_bound_pods))
        if self.group is None or not self.group.spec.sub_groups:
            return gang_need
        # Each subGroup has a minimum of its own: enough pods in sum may still lack some of one subGroup.
        return max(
            gang_need, self.group.spec.subgroup_tree.count_missing_pods(self.to_pod_counts().sub_placed)
        )

    @property
    def created(self) -> float:
        """The time at which the gang was submitted, in seconds since 1970."""
        if self.group is not None:
            return self.group.creation_time
        return min(
            (parse_timestamp(pod.metadata.creation_timestamp) for pod in self.pending.values()), default=0.0
        )

    @property
    def has_too_few_pods_and_none_pending(self) -> bool:
        """True if the gang has no pending pod, and it or a subGroup has fewer pods than its minimum."""
        return self.group is not None and not self.pending and not self.to_pod_counts().has_enough_pods

    @property
    def start_of_first_pod(self) -> float:
        """The first start of a bound pod, in seconds since 1970; infinity if no kubelet has accepted one yet."""
        # A pod on an unknown node frees no room when it ends.
        on_nodes = (pod for pod, node in self.bound.values() if node >= 0)
        return min((parse_timestamp(pod.status.start_time, math.inf) for pod in on_nodes), default=math.inf)

    def expected_end(self, now: float) -> float:
        """Return the gang's expected end (seconds since 1970): first pod start + run time; infinity if unknown.

        If no kubelet has accepted one of the bound pods yet, the gang counts as started at `now`: it was just bound.
        """
        estimate = self.group.spec.expected_runtime_seconds if self.group is not None else None
        if estimate is None or all(node < 0 for _, node in self.bound.values()):
            return math.inf
        start = self.start_of_first_pod
        return (start if math.isfinite(start) else now) + estimate

    def update_node_indexes(self, index: Mapping[str, int]) -> None:
        """Look up the node indexes of the gang's bound pods again, after nodes were added or removed."""
        if self.bound:
            self.bound = {key: (pod, index.get(pod.node_name, -1)) for key, (pod, _) in self.bound.items()}
            self.cache.running = None

    def are_subgroups_complete_without_pod(self, pod: Pod, count: GangPodCounts) -> bool:
        """Return True if every subGroup and topology slice still has its minimum of pods without the given pod.

        Args:
          pod: a bound pod of the gang.
          count: the gang's pod counts without the pod.
        """
        group = self.group
        if group is None or not group.spec.has_subgroup_tree_or_slices:
            return True
        name = pod.labels.get(SUB_GROUP_LABEL, "")
        sliced = {sub.name for sub in group.spec.sub_groups if sub.topology_slices is not None}
        return (
            group.spec.topology_slices is None
            and name not in sliced
            and count.sub_placed.get(name, 0) >= count.sub_minimum.get(name, 0)
        )

    def count_bound_pods_by_subgroup(self) -> Mapping[str, int]:
        """Return the number of bound pods in each subGroup, by the name of the subGroup in the pods' labels.

        Pods that are being deleted count, unless the gang has a subgroup tree or topology slices: there, a subGroup
        would be incomplete once these pods have left.
        """
        if self.group is not None and self.group.spec.has_subgroup_tree_or_slices:
            return self.to_pod_counts().sub_placed
        return Counter(pod.labels.get(SUB_GROUP_LABEL, "") for pod, _ in self.bound.values())

    def to_pod_counts(self) -> GangPodCounts:
        """Return the gang's pod counts, as plugins read them; bound pods count as placed."""
        group = self.group
        subgroups = group.spec.sub_groups if group is not None else ()
        names = [subgroup.name for subgroup in subgroups]
        tree = group.spec.subgroup_tree if group is not None and subgroups else None
        # Terminating pods count for no minimum: they are gone before the gang could use them.
        pending = [pod for pod in self.pending.values() if not pod.terminating]
        bound = self.nonterminating_bound_pods
        existing = dict.fromkeys(names, 0)
        placed = dict.fromkeys(names, 0)
        if names:
            for pod in pending:
                _count_subgroup(existing, pod)
            for pod in bound:
                _count_subgroup(existing, pod)
                _count_subgroup(placed, pod)
        return GangPodCounts(
            key=self.identity,
            minimum=self.minimum,
            existing=len(pending) + len(bound),
            placed=len(bound),
            timeout_seconds=float(group.spec.schedule_timeout_seconds if group else SCHEDULE_TIMEOUT),
            sub_minimum=dict(zip(names, tree.minimums, strict=True)) if tree is not None else {},
            sub_existing=existing,
            sub_placed=placed,
            tree=tree if tree is not None and tree.has_nested_or_optional_subgroups else None,
        )


def _count_subgroup(counts: dict[str, int], pod: Pod) -> None:
    name = pod.labels.get(SUB_GROUP_LABEL, "")
    if name in counts:
        counts[name] += 1


class PodCountsByGang:
    """The numbers of existing and placed pods of each gang, as plugins read them.

    `Statement` adds each pod that it places to these counts, and subtracts it if it is rolled back.

    Args:
      gangs: all gangs by identity. Their owner calls `invalidate_counts` when a gang changes.
    """

    def __init__(self, gangs: Mapping[str, GangState]) -> None:
        self._gangs = gangs
        self._counts: dict[str, GangPodCounts] = {}

    def gang_state(self, identity: str) -> GangState | None:
        """Return the pending and bound pods of a gang, None if the gang does not exist."""
        return self._gangs.get(identity)

    def gang_counts_of_pod(self, pod: Pod) -> GangPodCounts:
        """Return the pod counts of the gang to which a pod belongs."""
        identity = gang_identity(pod)
        return self._counts.get(identity) or self.pod_counts_of_gang(self._gangs[identity])

    def pod_counts_of_gang(self, members: GangState) -> GangPodCounts:
        """Return the pod counts of a gang, computed on first use."""
        count = self._counts.get(members.identity)
        if count is None:
            count = self._counts[members.identity] = members.to_pod_counts()
        return count

    def gang_counts_of_named_pod(self, pod: Pod) -> GangPodCounts | None:
        """Return the pod counts of a pod's gang; None if the pod has no name and represents a pod class.

        The pods of the class may belong to several gangs.
        """
        return self.gang_counts_of_pod(pod) if pod.metadata.name else None

    def invalidate_counts(self, identity: str) -> None:
        """Drop the cached pod counts of a gang, because its pods changed."""
        self._counts.pop(identity, None)


@dataclass(frozen=True, slots=True, eq=False)
class GangPart:
    """The pending pods of a gang that belong to one subGroup and one pod class.

    They are in the order in which they are placed.

    Args:
      pod_class: the class of the pods.
      subgroup: index into the PodGroup's subGroups, -1 for none.
      pods: the pending pods.
    """

    pod_class: PodClass
    subgroup: int
    pods: tuple[Pod, ...]

    def count_fitting_pods(self, free: IntArray) -> IntArray:
        """Return how many pods of this class fit on each of n nodes with the free amounts `free` [n, R]."""
        # Every pod requests 1 of the resource `pods`, so the number has a limit.
        return count_pods_that_fit(self.pod_class.requests, free, UNLIMITED)


@dataclass(frozen=True, slots=True, eq=False)
class PendingGang:
    """A gang with pending pods in one session: its pods by class, its priority, and the pods that it needs to start.

    Args:
      members: the record of the gang.
      queue: name of its queue.
      priority: resolved from the PodGroup's PriorityClass or the pods.
      created: seconds since 1970 at which it was submitted.
      estimate: expected run time in seconds, NaN if it is not stated.
      need: pods that must still be placed before the gang may start.
      parts: its pods by class and subGroup, the largest request first.
      share: Σ dominant share over the pending pods.
      needs: [R] the least that `need` of its pods request together; a necessary condition, not a sufficient one.
      entitled: its entitlement class when it has its turn in this session.
      follows: True for elastic pods of a gang of the same session; they are placed after the gang.
      behind: identity of the gang that must start first, since their queue is strict; "" for none.
    """

    members: GangState
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
        """The gang's name in decisions: `namespace/name` of its PodGroup, or of the pod if it has none."""
        return self.members.key

    @property
    def tier_sort_key(self) -> tuple[bool, EntitlementClass, int]:
        """The gang's tier as a sort key: partially bound gangs come first, then entitlement class and priority decide.

        The nodes of a partially bound gang do no work until the gang is complete.
        """
        return not self.members.is_partially_bound, self.entitled, -self.priority

    @property
    def pending_pod_count(self) -> int:
        """The number of the gang's pending pods."""
        return sum(len(part.pods) for part in self.parts)

    @property
    def submission_sort_key(self) -> tuple[float, str, str]:
        """The sort key for gangs that a policy considers equal: submission time, then `namespace/name`.

        The order of watch events must not count: a scheduler that lists the cluster after a restart does not know it.
        """
        return self.created, self.key, self.members.identity

    @property
    def has_no_bound_pod(self) -> bool:
        """True if no pod of the gang is bound yet; False if this object has only elastic pods (`follows`)."""
        return not self.members.bound and not self.follows


def sum_smallest_requests(parts: Sequence[GangPart], need: int, resources: int) -> IntArray:
    """Return, for each resource, the sum of the `need` smallest requests among the pods of gang parts."""
    if len(parts) == 1:
        return parts[0].pod_class.requests * min(need, len(parts[0].pods))
    if not parts:
        return np.zeros(resources, np.int64)
    counts = [len(part.pods) for part in parts]
    requests = np.repeat(np.stack([part.pod_class.requests for part in parts]), counts, axis=0)
    # Sorted column by column: the smallest cpu requests and the smallest memory requests may be of different pods.
    total: IntArray = np.sort(requests, axis=0)[:need].sum(axis=0)
    return total


def pod_creation_sort_key(pod: Pod) -> tuple[str, str]:
    """Return the key by which the pods of a gang are sorted: creation time, then name.

    It does not depend on the order of watch events.
    """
    return pod.metadata.creation_timestamp or "", pod.metadata.name


@dataclass(frozen=True, slots=True, eq=False)
class RunningGang:
    """A running gang: the resources that its bound pods use on each node, and the time of its expected end.

    Args:
      end: seconds since 1970 at which the gang is expected to end; infinity without an estimate.
      nodes: [P] node index of each pod.
      requests: [P, R] requests of each pod.
      total: [R] their sum.
      priority: the gang's priority.
      terminating: True if some of its pods are being deleted.
      started: False if no kubelet has accepted one of its pods yet; then `end` holds for one session only.
    """

    end: float
    nodes: IndexArray
    requests: IntArray
    total: IntArray
    priority: int = 0
    terminating: bool = False
    started: bool = True

    @classmethod
    def from_requests(
        cls,
        end: float,
        nodes: Sequence[int],
        requests: Sequence[IntArray],
        resources: int,
        *,
        priority: int = 0,
        terminating: bool = False,
    ) -> "RunningGang":
        """Create the record of a running gang from the node indexes and the requests of its bound pods.

        `nodes` and `requests` have one entry for each pod, and may be empty. `resources` is the number of resources.
        """
        rows = np.array(requests, np.int64).reshape(len(nodes), resources)
        return cls(end, np.array(nodes, np.int32), rows, rows.sum(axis=0), priority, terminating)

"""The pods of each gang by state: pending, bound, assumed and finished.

`ClusterState` changes this index with each event and each assumed pod. Controllers, metrics and the web page read it;
none of them keeps another one.

Source: `podgroupstate.go` in `pkg/scheduler/backend/cache` of kube-scheduler, 1.36.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import ReferenceType, ref

from batchsched.api.core.pod import SCHEDULER_NAME, SUB_GROUP_LABEL, Pod
from batchsched.api.core.requests import status_may_override_requests
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.gang import gang_identity, gang_namespace, is_single_pod_identity
from batchsched.api.queue_access import stated_queue_name
from batchsched.state.queue_usage import QueueUsageTally

RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"


@dataclass(slots=True)
class GangPods:
    """The pods of one gang by state: pending, bound, assumed and finished.

    Mappings and sets have `namespace/name` of the pod as key.

    Args:
      identity: The gang's identity, see `batchsched.api.gang`.
      group: The PodGroup; None for a single pod, or if the PodGroup does not exist.
      pending: Pods without a node.
      bound: Pods with a node, the assumed ones included.
      assumed: Keys of the pods in `bound` with a binding that no watch event has confirmed.
      finished: Finished pods: True for those that succeeded, False for those that failed. A pod stays here after it is
        deleted, as long as the PodGroup exists. Empty for single pods.
      in_flight: Keys of the pods in `assumed` with a binding that the API server has not accepted yet.
      accepted: The number of pods by subGroup that count for `was_whole`: bound by a profile of this process, neither
        in flight nor terminating. The key "" has the pods without a subGroup.
      was_whole: Whether the gang once had its minimum, and each subGroup its own. True until no accepted pod is left or
        the PodGroup is deleted; a PodGroup that is changed later changes nothing.
      partially_bound_since: Seconds since 1970 since which the gang, never whole, is partially bound; None otherwise.
    """

    identity: str
    group: PodGroup | None = None
    pending: dict[str, Pod] = field(default_factory=dict)
    bound: dict[str, Pod] = field(default_factory=dict)
    assumed: set[str] = field(default_factory=set)
    finished: dict[str, bool] = field(default_factory=dict)
    in_flight: set[str] = field(default_factory=set)
    accepted: Counter[str] = field(default_factory=Counter)
    was_whole: bool = False
    partially_bound_since: float | None = None

    @property
    def has_unfinished_pods(self) -> bool:
        """Whether the gang has a pending or bound pod."""
        return bool(self.pending or self.bound)

    @property
    def minimum(self) -> int:
        """The number of pods that must be placed together: minMember, or 1 without a PodGroup."""
        return self.group.effective_min_member if self.group is not None else 1

    @property
    def stated_queue(self) -> str:
        """The queue that the PodGroup names, or that the pods name if there is no PodGroup; "" if none is named.

        Of several pods, the first by name counts.
        """
        pods = self.bound or self.pending
        return stated_queue_name(self.group, pods[min(pods)] if pods and self.group is None else None)

    @property
    def has_pending_pods_and_lacks_minimum(self) -> bool:
        """Whether the gang has pending pods, and fewer than minMember of its pods are placed."""
        return bool(self.nonterminating_pending_pods()) and len(self.placed_pods()) < self.minimum

    def nonterminating_pending_pods(self) -> list[Pod]:
        """Return the pending pods of the gang that a session may place: those that are not terminating."""
        return [pod for pod in self.pending.values() if not pod.terminating]

    def placed_pods(self) -> list[Pod]:
        """Return the bound and assumed pods of the gang that count for minMember: those that are not terminating."""
        return [pod for pod in self.bound.values() if not pod.terminating]

    def count_succeeded_and_failed_pods(self) -> tuple[int, int]:
        """Return the number of pods of the gang that succeeded, and the number that failed."""
        succeeded = sum(self.finished.values())
        return succeeded, len(self.finished) - succeeded


def count_pods_missing_for_minimum(group: PodGroup | None, placed: Iterable[Pod]) -> int:
    """Return how many more pods must be placed until a gang and each of its subGroups reach their minMember.

    Args:
      group: The PodGroup; None for a gang that needs one pod.
      placed: The pods of the gang that have a node and are not terminating.
    """
    return _missing_members(group, Counter(pod.labels.get(SUB_GROUP_LABEL, "") for pod in placed))


def _missing_members(group: PodGroup | None, placed: Mapping[str, int]) -> int:
    """As `count_pods_missing_for_minimum`, for the number of placed pods by subGroup."""
    missing = max(0, (group.effective_min_member if group is not None else 1) - sum(placed.values()))
    if group is None or not group.spec.sub_groups:
        return missing
    return max(missing, group.spec.subgroup_tree.count_missing_pods(placed))


def _counts_alike(before: Pod, after: Pod) -> bool:
    """Return whether two versions of a pod count the same: most updates change the status only."""
    return (
        before.spec is after.spec
        and before.metadata.labels == after.metadata.labels
        and before.terminating == after.terminating
        and not status_may_override_requests(before)
        and not status_may_override_requests(after)
    )


class ChangedGangsReader:
    """A reader of changes of a `GangIndex`: it collects the identities of changed gangs until they are read.

    Each controller that needs the changes has its own reader.

    Args:
      identities: The gangs that the first `read_changed_gangs` returns in any case.
    """

    __slots__ = ("__weakref__", "_identities")

    def __init__(self, identities: Iterable[str]) -> None:
        self._identities = set(identities)

    def record_changed_gang(self, identity: str) -> None:
        """Record the identity of a gang that changed."""
        self._identities.add(identity)

    def read_changed_gangs(self) -> set[str]:
        """Return the identities of the gangs that changed since the last call."""
        changed, self._identities = self._identities, set()
        return changed


class GangIndex:
    """An index of all gangs of a cluster with their pods, by gang identity.

    Pods without a PodGroup are included only while pending.

    A cluster may run 100,000 pods without a PodGroup, about which no reader asks.

    Args:
      usage: The tally of queues, which needs the PodGroup of each pod.
      scheduler_names: The scheduler names of the profiles; only their pods count for `GangPods.was_whole`.
    """

    def __init__(self, usage: QueueUsageTally, scheduler_names: Container[str] = (SCHEDULER_NAME,)) -> None:
        self._usage = usage
        self._scheduler_names = scheduler_names
        self._gangs: dict[str, GangPods] = {}
        self._gang_of_finished: dict[str, str] = {}
        """Identity of the gang of each finished pod that exists: a delete event may lack the labels of the pod."""
        # Weak references, so that a reader ends with its controller. A plain list: iterating a WeakSet costs as much
        # as the rest of an event.
        self._readers: list[ReferenceType[ChangedGangsReader]] = []

    def __len__(self) -> int:
        """The number of gangs."""
        return len(self._gangs)

    def __iter__(self) -> Iterator[GangPods]:
        """All gangs, in no particular order."""
        return iter(self._gangs.values())

    def get(self, identity: str) -> GangPods | None:
        """Return the pods of a gang, or None if the gang has neither a PodGroup nor pods."""
        return self._gangs.get(identity)

    def create_changed_gangs_reader(self) -> ChangedGangsReader:
        """Return a new reader of the identities of changed gangs. Its first `read_changed_gangs` returns all gangs."""
        reader = ChangedGangsReader(self._gangs)
        self._readers = [present for present in self._readers if present() is not None]
        self._readers.append(ref(reader))
        return reader

    def set_group(self, identity: str, group: PodGroup | None) -> None:
        """Add, replace or delete the PodGroup of a gang.

        None deletes the PodGroup: its pods count for the queues of their own labels.
        """
        gang = self._gang(identity)
        self._usage.move_pods_to_their_queue(
            (*gang.pending.values(), *gang.bound.values()), gang.group, group
        )
        gang.group = group
        if group is None:
            gang.finished = {
                key: succeeded for key, succeeded in gang.finished.items() if key in self._gang_of_finished
            }
        self._changed(gang)

    def set_pod(self, key: str, before: Pod | None, after: Pod | None, *, assumed: bool) -> None:
        """Add, replace or remove an unfinished pod in the index.

        Args:
          key: `namespace/name` of the pod.
          before: The pod as the last call left it, None for a new pod.
          after: The pod as it is now, None for a deleted or finished pod.
          assumed: Whether the pod has a node that no watch event has confirmed.
        """
        pod = before if after is None else after
        if pod is None:
            return
        identity = gang_identity(pod)
        # The labels may differ, and with them the gang.
        if before is not None and after is not None and gang_identity(before) != identity:
            self.set_pod(key, before, None, assumed=False)
            before = None
        gang = self._gangs.get(identity)
        if before is not None and after is not None and _counts_alike(before, after):
            if gang is not None:
                (gang.bound if after.node_name else gang.pending)[key] = after
                self._changed(gang)
            return
        if gang is None and after is not None and not (after.node_name and is_single_pod_identity(identity)):
            gang = self._gang(identity)
        group = gang.group if gang is not None else None
        if before is not None:
            self._usage.remove_pod(before, group)
        if after is not None:
            self._usage.add_pod(after, group)
        if gang is not None:
            self._replace_in_gang(gang, key, after, assumed=assumed)

    def _replace_in_gang(self, gang: GangPods, key: str, after: Pod | None, *, assumed: bool) -> None:
        gang.pending.pop(key, None)
        before = gang.bound.pop(key, None)
        gang.assumed.discard(key)
        # An update of an assumed pod does not make its accepted binding one in flight again.
        in_flight = assumed and (before is None or key in gang.in_flight)
        if before is not None and key not in gang.in_flight:
            self._count_accepted(gang, before, -1)
        gang.in_flight.discard(key)
        if after is not None and not (after.node_name and is_single_pod_identity(gang.identity)):
            (gang.bound if after.node_name else gang.pending)[key] = after
            # Another pod of the same name takes the place of the finished one.
            gang.finished.pop(key, None)
            self._gang_of_finished.pop(key, None)
            if assumed:
                gang.assumed.add(key)
            if in_flight:
                gang.in_flight.add(key)
            elif after.node_name:
                self._count_accepted(gang, after, 1)
        self._changed(gang)

    def _count_accepted(self, gang: GangPods, pod: Pod, change: int) -> None:
        if pod.spec.scheduler_name in self._scheduler_names and not pod.terminating:
            sub_group = pod.labels.get(SUB_GROUP_LABEL, "")
            gang.accepted[sub_group] += change
            if not gang.accepted[sub_group]:
                del gang.accepted[sub_group]

    def confirm_binding(self, pod: Pod) -> None:
        """Record that a watch event confirmed the binding of an assumed pod."""
        self.record_accepted_binding(pod)
        gang = self._gangs.get(gang_identity(pod))
        if gang is not None:
            gang.assumed.discard(pod.key)
            self._changed(gang)

    def record_accepted_binding(self, pod: Pod) -> None:
        """Record that the API server accepted an assumed pod's binding, before a watch event confirms it."""
        gang = self._gangs.get(gang_identity(pod))
        key = pod.key
        if gang is not None and key in gang.in_flight:
            gang.in_flight.discard(key)
            self._count_accepted(gang, pod, 1)
            self._changed(gang)

    def record_minimum_was_bound(self, identity: str) -> None:
        """Record that at least minMember pods of a gang were bound at some time, even if fewer are bound now.

        The caller knows it from the status of the PodGroup, or from pods in a list of the API server, finished ones
        included.
        """
        gang = self._gangs.get(identity)
        if gang is not None and not gang.was_whole:
            gang.was_whole = True
            self._changed(gang)

    def record_partially_bound(self, identity: str, since: float | None) -> None:
        """Record the time since which a gang is partially bound; None if the gang is not partially bound.

        The time is in seconds since 1970.
        """
        gang = self._gangs.get(identity)
        if gang is not None and gang.partially_bound_since != since:
            gang.partially_bound_since = since
            self._changed(gang)

    def record_finished_pod(self, pod: Pod) -> None:
        """Record whether a finished pod of a PodGroup succeeded or failed. `set_pod` must have removed it before."""
        identity, succeeded = gang_identity(pod), pod.status.phase == SUCCEEDED
        # The kubelet reports Failed or Succeeded also for a pod that is evicted. Such a pod was stopped, not finished,
        # and its gang is pending again.
        if is_single_pod_identity(identity) or pod.terminating:
            return
        gang = self._gang(identity)
        if gang.finished.get(pod.key) is not succeeded:
            gang.finished[pod.key] = succeeded
            self._gang_of_finished[pod.key] = identity
            self._changed(gang)

    def handle_deletion_of_finished_pod(self, key: str) -> None:
        """Update the gang of a finished pod after the pod was deleted; ignore pods that had not finished.

        The finished pod stays counted while the PodGroup exists: the gang must not fall short because a Job deletes the
        pods that are done.
        """
        identity = self._gang_of_finished.pop(key, None)
        gang = self._gangs.get(identity) if identity is not None else None
        if gang is not None and gang.group is None:
            gang.finished.pop(key, None)
            self._changed(gang)

    def record_unlisted_finished_pods_as_deleted(self, keys: Container[str]) -> None:
        """Record as deleted each finished pod that is not in `keys`, the keys of all pods that exist."""
        for key in [key for key in self._gang_of_finished if key not in keys]:
            self.handle_deletion_of_finished_pod(key)

    def _gang(self, identity: str) -> GangPods:
        gang = self._gangs.get(identity)
        if gang is None:
            gang = self._gangs[identity] = GangPods(identity)
        return gang

    def mark_gangs_of_namespace_changed(self, namespace: str) -> None:
        """Record that all gangs of a namespace changed, because the default queue of the namespace changed."""
        for gang in [gang for gang in self if gang_namespace(gang.identity) == namespace]:
            self._changed(gang)

    def _changed(self, gang: GangPods) -> None:
        # Each event is judged by the PodGroup as it was then: a minimum that is raised later finds the gang whole.
        if gang.group is None or not gang.accepted:
            gang.was_whole = False
        elif not gang.was_whole:
            gang.was_whole = not _missing_members(gang.group, gang.accepted)
        for reference in self._readers:
            reader = reference()
            if reader is not None:
                reader.record_changed_gang(gang.identity)
        if gang.group is None and not gang.has_unfinished_pods and not gang.finished:
            del self._gangs[gang.identity]

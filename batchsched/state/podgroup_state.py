"""The pods of each gang by state: pending, bound, assumed and finished.

`ClusterState` changes this index with each event and each assumed pod. Controllers, metrics and the web page read it;
none of them keeps another one.

Source: `podgroupstate.go` in `pkg/scheduler/backend/cache` of kube-scheduler, 1.36.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from weakref import ReferenceType, ref

from batchsched.api.core.pod import SUB_GROUP_LABEL, Pod
from batchsched.api.core.requests import may_be_resized
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, PodGroup
from batchsched.api.gang import gang_identity, is_single_pod
from batchsched.state.queue_usage import QueueUsageTally, queue_of

RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"


@dataclass(slots=True)
class GangPods:
    """The pods of one gang, by `namespace/name` of the pod.

    Args:
      identity: The gang's identity, see `batchsched.api.gang`.
      group: The PodGroup; None for a single pod, or if the PodGroup does not exist.
      pending: Pods without a node.
      bound: Pods with a node, the assumed ones included.
      assumed: Keys of the pods in `bound` with a binding that no watch event has confirmed.
      finished: Finished pods: True for those that succeeded, False for those that failed. A pod stays here after it is
        deleted, as long as the PodGroup exists. Empty for single pods.
    """

    identity: str
    group: PodGroup | None = None
    pending: dict[str, Pod] = field(default_factory=dict)
    bound: dict[str, Pod] = field(default_factory=dict)
    assumed: set[str] = field(default_factory=set)
    finished: dict[str, bool] = field(default_factory=dict)

    @property
    def has_pods(self) -> bool:
        """Whether a pod is pending or bound."""
        return bool(self.pending or self.bound)

    @property
    def minimum(self) -> int:
        """Pods that must be placed together: minMember, 1 without a PodGroup."""
        return self.group.min_member if self.group is not None else 1

    @property
    def queue(self) -> str:
        """The queue of the PodGroup; without a PodGroup, that of the pod with the smallest key."""
        if self.group is not None:
            return self.group.spec.queue
        pods = self.bound or self.pending
        return queue_of(pods[min(pods)], None) if pods else DEFAULT_QUEUE

    @property
    def is_pending(self) -> bool:
        """Whether pods are pending and fewer than the minimum are placed."""
        return bool(self.schedulable_pods()) and len(self.placed_pods()) < self.minimum

    def schedulable_pods(self) -> list[Pod]:
        """Return the pending pods that a session may place: those that do not terminate."""
        return [pod for pod in self.pending.values() if not pod.terminating]

    def placed_pods(self) -> list[Pod]:
        """Return the bound and assumed pods that count for the minimum: those that do not terminate."""
        return [pod for pod in self.bound.values() if not pod.terminating]

    def finished_counts(self) -> tuple[int, int]:
        """Return the number of pods that succeeded and the number of pods that failed."""
        succeeded = sum(self.finished.values())
        return succeeded, len(self.finished) - succeeded


def missing_pods(group: PodGroup | None, placed: Iterable[Pod]) -> int:
    """Return the number of pods that must still be placed before a gang and each of its subGroups has its minimum.

    Args:
      group: The PodGroup; None for a gang that needs one pod.
      placed: The pods of the gang that have a node and do not terminate.
    """
    placed = list(placed)
    missing = max(0, (group.min_member if group is not None else 1) - len(placed))
    if group is None or not group.spec.sub_groups:
        return missing
    counts = {sub_group.name: 0 for sub_group in group.spec.sub_groups}
    for pod in placed:
        name = pod.labels.get(SUB_GROUP_LABEL, "")
        if name in counts:
            counts[name] += 1
    by_sub_group = sum(
        max(0, sub_group.min_member - counts[sub_group.name]) for sub_group in group.spec.sub_groups
    )
    return max(missing, by_sub_group)


def _counts_alike(before: Pod, after: Pod) -> bool:
    """Return whether two versions of a pod count the same: most updates change the status only."""
    return (
        before.spec is after.spec
        and before.metadata.labels == after.metadata.labels
        and before.terminating == after.terminating
        and not may_be_resized(before)
        and not may_be_resized(after)
    )


class ChangedGangs:
    """Collects the identities of the gangs that change, for one reader of a `GangIndex`.

    Args:
      identities: The gangs that the first `read` returns in any case.
    """

    __slots__ = ("__weakref__", "_identities")

    def __init__(self, identities: Iterable[str]) -> None:
        self._identities = set(identities)

    def mark_changed(self, identity: str) -> None:
        """Record that a gang changed."""
        self._identities.add(identity)

    def read(self) -> set[str]:
        """Return the gangs that changed since the last call."""
        changed, self._identities = self._identities, set()
        return changed


class GangIndex:
    """All gangs of a cluster by identity. Single pods are in it only while they are pending.

    A cluster may run 100,000 single pods, about which no reader asks.

    Args:
      usage: The tally of queues, which needs the PodGroup of each pod.
    """

    def __init__(self, usage: QueueUsageTally) -> None:
        self._usage = usage
        self._gangs: dict[str, GangPods] = {}
        self._gang_of_finished: dict[str, str] = {}
        """Identity of the gang of each finished pod that exists: a delete event may lack the labels of the pod."""
        # Weak references, so that a reader ends with its controller. A plain list: iterating a WeakSet costs as much
        # as the rest of an event.
        self._readers: list[ReferenceType[ChangedGangs]] = []

    def __len__(self) -> int:
        """The number of gangs."""
        return len(self._gangs)

    def __iter__(self) -> Iterator[GangPods]:
        """All gangs, in no particular order."""
        return iter(self._gangs.values())

    def get(self, identity: str) -> GangPods | None:
        """Return a gang; None if it has neither a PodGroup nor pods."""
        return self._gangs.get(identity)

    def subscribe(self) -> ChangedGangs:
        """Return a reader of changes. Its first `read` returns all gangs."""
        reader = ChangedGangs(self._gangs)
        self._readers = [present for present in self._readers if present() is not None]
        self._readers.append(ref(reader))
        return reader

    def set_group(self, identity: str, group: PodGroup | None) -> None:
        """Add or replace a PodGroup; None deletes it, and its pods count for the queues of their own labels."""
        gang = self._gang(identity)
        self._usage.change_queue((*gang.pending.values(), *gang.bound.values()), gang.group, group)
        gang.group = group
        if group is None:
            gang.finished = {
                key: succeeded for key, succeeded in gang.finished.items() if key in self._gang_of_finished
            }
        self._changed(gang)

    def set_pod(self, key: str, before: Pod | None, after: Pod | None, *, assumed: bool) -> None:
        """Replace a pod that has not finished.

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
                (gang.bound if after.node else gang.pending)[key] = after
                self._changed(gang)
            return
        if gang is None and after is not None and not (after.node and is_single_pod(identity)):
            gang = self._gang(identity)
        group = gang.group if gang is not None else None
        if before is not None:
            self._usage.remove(before, group)
        if after is not None:
            self._usage.add(after, group)
        if gang is not None:
            self._replace_in_gang(gang, key, after, assumed=assumed)

    def _replace_in_gang(self, gang: GangPods, key: str, after: Pod | None, *, assumed: bool) -> None:
        gang.pending.pop(key, None)
        gang.bound.pop(key, None)
        gang.assumed.discard(key)
        if after is not None and not (after.node and is_single_pod(gang.identity)):
            (gang.bound if after.node else gang.pending)[key] = after
            # Another pod of the same name takes the place of the finished one.
            gang.finished.pop(key, None)
            self._gang_of_finished.pop(key, None)
            if assumed:
                gang.assumed.add(key)
        self._changed(gang)

    def confirm_binding(self, pod: Pod) -> None:
        """Record that a watch event confirmed the binding of an assumed pod."""
        gang = self._gangs.get(gang_identity(pod))
        if gang is not None:
            gang.assumed.discard(pod.key)
            self._changed(gang)

    def record_finished_pod(self, pod: Pod) -> None:
        """Record how a pod of a PodGroup finished. `set_pod` must have removed it before."""
        identity, succeeded = gang_identity(pod), pod.status.phase == SUCCEEDED
        # The kubelet reports Failed or Succeeded also for a pod that is evicted. Such a pod was stopped, not finished,
        # and its gang is pending again.
        if is_single_pod(identity) or pod.terminating:
            return
        gang = self._gang(identity)
        if gang.finished.get(pod.key) is not succeeded:
            gang.finished[pod.key] = succeeded
            self._gang_of_finished[pod.key] = identity
            self._changed(gang)

    def handle_deletion_of_finished(self, key: str) -> None:
        """Handle the deletion of a pod that may have finished.

        Its end stays counted while the PodGroup exists: the gang must not fall short because a Job deletes the pods
        that are done.
        """
        identity = self._gang_of_finished.pop(key, None)
        gang = self._gangs.get(identity) if identity is not None else None
        if gang is not None and gang.group is None:
            gang.finished.pop(key, None)
            self._changed(gang)

    def keep_finished(self, keys: Container[str]) -> None:
        """Handle a list of all pods: finished pods that are not in it were deleted."""
        for key in [key for key in self._gang_of_finished if key not in keys]:
            self.handle_deletion_of_finished(key)

    def _gang(self, identity: str) -> GangPods:
        gang = self._gangs.get(identity)
        if gang is None:
            gang = self._gangs[identity] = GangPods(identity)
        return gang

    def _changed(self, gang: GangPods) -> None:
        for reference in self._readers:
            reader = reference()
            if reader is not None:
                reader.mark_changed(gang.identity)
        if gang.group is None and not gang.has_pods and not gang.finished:
            del self._gangs[gang.identity]

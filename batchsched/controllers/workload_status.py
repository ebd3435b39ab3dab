"""The status of PodGroups and CompositePodGroups of the Workload API of Kubernetes.

A gang of batchsched is a PodGroup of Kubernetes, or a tree of groups. Each group of a tree has conditions of its own.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.pod import SUB_GROUP_LABEL, Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.external.group_tree import TreeGroup
from batchsched.api.external.kubernetes import COMPOSITE_CONDITION, DISRUPTION_TARGET, UPSTREAM_CONDITIONS
from batchsched.api.external.pod_group import external_api_version_and_uid, is_converted_from_external
from batchsched.api.gang import gang_identity
from batchsched.controllers.desired_status import (
    Conditions,
    GangStatusInput,
    Json,
    desired_kubernetes_group_condition,
)
from batchsched.controllers.recovery import REASON as ROLLED_BACK
from batchsched.controllers.refusal_history import GangStatusRecord
from batchsched.errors import ApiError, BatchschedError
from batchsched.kube.connection import STRATEGIC_MERGE_PATCH, ApiResource
from batchsched.kube.writer import Writer
from batchsched.ports.cluster import Clock
from batchsched.state.cluster_state import ClusterState
from batchsched.state.podgroup_state import GangPods

_LOG: Final = logging.getLogger(__name__)
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
SAME_PLAN_SECONDS: Final = 30.0
"""Evictions of a gang that follow each other within this time count as one, also if the first pods are gone."""
_PLURALS: Final = {"PodGroup": "podgroups", "CompositePodGroup": "compositepodgroups"}
Children = Callable[[str], Sequence[TreeGroup]]


def api_resource_of_group(group: TreeGroup) -> ApiResource:
    """Return the API resource of a PodGroup or CompositePodGroup of Kubernetes."""
    return ApiResource(group.api_version, _PLURALS[group.kind], group.kind, namespaced=True)


def scheduled_condition_type(group: TreeGroup) -> str:
    """Return the condition type that states whether a PodGroup or CompositePodGroup was scheduled."""
    return COMPOSITE_CONDITION if group.is_composite else UPSTREAM_CONDITIONS[group.api_version]


def has_minimum_placed(group: TreeGroup, placed: Mapping[str, int], children: Children) -> bool:
    """Return whether a PodGroup or CompositePodGroup has at least its minimum of placed pods or groups.

    The minimum of a PodGroup is a number of pods. The minimum of a CompositePodGroup is a number of child groups that
    have their own minimum placed.

    Args:
      group: the group.
      placed: the number of placed pods by subgroup.
      children: finds the groups below a CompositePodGroup.
    """
    if not group.is_composite:
        return placed.get(group.converted_subgroup_name, 0) >= group.minimum_pod_or_group_count
    return (
        sum(has_minimum_placed(child, placed, children) for child in children(group.key))
        >= group.minimum_pod_or_group_count
    )


@dataclass(frozen=True, slots=True)
class GangTreeStatusInput:
    """The values from which the conditions of the PodGroups and CompositePodGroups of one gang are computed.

    Args:
      gang: the PodGroup of the tree.
      counts: the pods of the gang.
      placed: the number of placed pods by subgroup.
      record: the last decision about the gang.
      now: seconds since 1970.
    """

    gang: PodGroup
    counts: GangStatusInput
    placed: Mapping[str, int]
    record: GangStatusRecord
    now: float

    def condition_to_write(self, group: TreeGroup, before: Conditions, children: Children) -> Json | None:
        """Return the condition to write to a PodGroup or CompositePodGroup of the tree; None if it does not change.

        A group beyond the minimum of its tree has no condition until it is placed as well.
        """
        if self.counts.was_whole and not has_minimum_placed(group, self.placed, children):
            return None
        desired = desired_kubernetes_group_condition(
            self.gang, scheduled_condition_type(group), self.counts, self.record, before, self.now
        )
        if desired is not None and group.metadata.generation:
            desired["observedGeneration"] = group.metadata.generation
        return desired


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """A condition that is to be written to one PodGroup or CompositePodGroup of Kubernetes.

    Args:
      resource, name, uid: the group.
      condition: the condition.
    """

    resource: ApiResource
    name: str
    uid: str
    condition: Json


def changed_conditions(
    cache: ClusterState,
    gang: PodGroup,
    counts: GangStatusInput,
    record: GangStatusRecord,
    written: Callable[[str], Conditions | None],
    now: float,
) -> Iterator[GroupCondition]:
    """Yield the changed conditions that are to be written to the PodGroups and CompositePodGroups of a gang.

    Args:
      cache: the state of the cluster.
      gang: the PodGroup of the tree.
      counts: the pods of the gang.
      record: the last decision about the gang.
      written: finds the conditions that this controller wrote to the group with a uid; None if it wrote none.
      now: seconds since 1970.
    """
    trees = cache.group_trees
    placed = count_placed_by_subgroup(cache.gangs.get(gang.key) or GangPods(gang.key))
    tree = GangTreeStatusInput(gang, counts, placed, record, now)
    for group in trees.groups_of_tree(gang.key):
        uid = group.metadata.uid
        condition = tree.condition_to_write(group, written(uid) or group.conditions, trees.child_groups)
        if condition is not None:
            yield GroupCondition(api_resource_of_group(group), group.name, uid, condition)


def count_placed_by_subgroup(gang: GangPods) -> Counter[str]:
    """Return the number of placed pods of a gang by subgroup."""
    return Counter(pod.labels.get(SUB_GROUP_LABEL, "") for pod in gang.placed_pods())


@dataclass(frozen=True, slots=True)
class DisruptedGroup:
    """A PodGroup or CompositePodGroup of Kubernetes that is below its minimum because pods were evicted."""

    resource: ApiResource
    namespace: str
    name: str
    uid: str
    generation: int


class GroupDisruptionWriter:
    """The writer of the condition `DisruptionTarget` of PodGroups that evictions bring below their minimum.

    CompositePodGroups get the condition as well. Evictions of pods beyond the minimum change nothing. The condition is
    written once for each group and set of pods.

    Args:
      cache: the state of the cluster.
      writer: sends requests to the API server.
      clock: the clock.
    """

    def __init__(self, cache: ClusterState, writer: Writer, clock: Clock) -> None:
        self._cache = cache
        self._writer = writer
        self._clock = clock
        self._evicted: dict[str, dict[str, Pod]] = {}
        """Evicted pods of each gang by uid. They are forgotten once they are gone and no other was evicted lately."""
        self._written: dict[str, set[str]] = {}
        """Uids of groups with a condition by gang, as long as its evicted pods are remembered."""
        self._last_eviction: dict[str, float] = {}
        """Time of the last eviction of each gang, in seconds since 1970."""
        self._running: set[asyncio.Task[None]] = set()

    def record_eviction(self, pod: Pod, reason: str, message: str) -> None:
        """Record an evicted pod, and write the condition `DisruptionTarget` to groups below their minimum.

        This method is an `Evicted` callback.
        """
        if reason == ROLLED_BACK:  # no other gang takes its resources
            return
        identity = gang_identity(pod)
        gang = self._cache.gangs.get(identity)
        if gang is None or gang.group is None or not is_converted_from_external(gang.group):
            return
        for ended in [known for known in self._evicted if self._cache.gangs.get(known) is None]:
            del self._evicted[ended], self._last_eviction[ended]
            self._written.pop(ended, None)
        now = self._clock.now()
        evicted = self._evicted.setdefault(identity, {})
        all_deleted = evicted.keys().isdisjoint(placed.metadata.uid for placed in gang.placed_pods())
        # An evicted pod may be gone before the next one of the same plan is evicted.
        if all_deleted and now - self._last_eviction.get(identity, now) > SAME_PLAN_SECONDS:
            evicted.clear()
            self._written.pop(identity, None)
        evicted[pod.metadata.uid] = pod
        self._last_eviction[identity] = now
        written = self._written.setdefault(identity, set())
        for group in self._disrupted(gang, gang.group, evicted):
            if group.uid not in written:
                written.add(group.uid)
                task = asyncio.create_task(self._write(group, message))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    def _disrupted(
        self, gang: GangPods, group: PodGroup, evicted: Mapping[str, Pod]
    ) -> Iterator[DisruptedGroup]:
        remaining = [pod for pod in gang.placed_pods() if pod.metadata.uid not in evicted]
        trees = self._cache.group_trees
        tree = trees.groups_of_tree(group.key)
        if not tree:
            version, uid = external_api_version_and_uid(group)
            if version in UPSTREAM_CONDITIONS and len(remaining) < group.effective_min_member:
                resource = ApiResource(version, _PLURALS["PodGroup"], "PodGroup", namespaced=True)
                yield DisruptedGroup(resource, group.namespace, group.name, uid, group.metadata.generation)
            return
        after = Counter(pod.labels.get(SUB_GROUP_LABEL, "") for pod in remaining)
        before = after + Counter(pod.labels.get(SUB_GROUP_LABEL, "") for pod in evicted.values())
        for part in tree:
            if has_minimum_placed(part, before, trees.child_groups) and not has_minimum_placed(
                part, after, trees.child_groups
            ):
                meta = part.metadata
                yield DisruptedGroup(
                    api_resource_of_group(part), part.namespace, part.name, meta.uid, meta.generation
                )

    async def _write(self, group: DisruptedGroup, message: str) -> None:
        condition: dict[str, Any] = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": PREEMPTION_BY_SCHEDULER,
            "message": message,
            "lastTransitionTime": format_timestamp(self._clock.now()),
        }
        if group.generation:
            condition["observedGeneration"] = group.generation
        # The uid keeps the patch from another object of the same name.
        body = {"metadata": {"uid": group.uid}, "status": {"conditions": [condition]}}
        path = group.resource.path(group.namespace, group.name, "status")
        try:
            await self._writer.send("PATCH", path, msgspec.json.encode(body), STRATEGIC_MERGE_PATCH)
        except BatchschedError as error:
            if not (isinstance(error, ApiError) and error.status in (404, 409)):  # deleted or replaced
                _LOG.warning("%s %s has no DisruptionTarget: %s", group.resource.kind, group.name, error)

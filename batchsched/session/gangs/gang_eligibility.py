"""Gang eligibility: checks whether a gang may be tried at all, before the search for nodes.

A gang is refused for references to objects that do not exist, for a queue that does not select its namespace, for
scheduling gates, for too few pods, for a pod above a limit, for a field that is not supported, and for pods of several
users in a queue that limits each user. Refused gangs do not reach the solver.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.core.pod import QUEUE_LABEL, USER_LABEL, Pod
from batchsched.api.decision import Refusal
from batchsched.api.external.group_tree import composite_group_with_missing_groups
from batchsched.api.external.pod_group import is_converted_from_kubernetes
from batchsched.api.gang import missing_pods_text
from batchsched.api.queue_access import DEFAULT_QUEUE_LABEL, QueueAccess, stated_queue_name
from batchsched.api.unsupported_fields import UNSUPPORTED_FIELD, describe_unsupported_pod_annotation
from batchsched.errors import PluginError
from batchsched.framework.interface import QueueSortPlugin
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.runtime.plugin_call import call_plugin
from batchsched.framework.status import SUCCESS, Status
from batchsched.session.tables.gang import GangPart, GangState, PendingGang
from batchsched.session.tables.session_tables import SessionTables
from batchsched.session.tables.topology_levels import TopologyLevels, UnknownLevelError


@dataclass(frozen=True, slots=True, eq=False)
class GangEligibilityCheck:
    """The check that the queue and the levels of a gang exist, and that enough of its pods are not gated.

    Limits of queues are checked later, by `QueueLimits`.

    Args:
      tables: the tables.
      levels: the topology levels.
      mark: identifies this object in the cache of a gang: an answer with another mark is outdated.
    """

    tables: SessionTables
    levels: TopologyLevels
    mark: object = field(default_factory=object)

    @classmethod
    def from_tables(cls, tables: SessionTables) -> "GangEligibilityCheck":
        """Create the check from the session's tables.

        Create a new one when nodes change, because topology domains refer to node indexes.
        """
        return cls(tables, TopologyLevels(tables.snapshot, tables.node_table))

    def eligible_gang_or_refusal(self, members: GangState) -> PendingGang | Refusal:
        """Return the gang with its ungated pods in QueueSort order, or a refusal if it is not eligible."""
        cached = members.cache.gang_eligibility
        if cached is not None and cached[0] is self.mark and cached[1] is members.cache.pending:
            return cached[2]
        gang = self.tables.pending_gang(members)
        try:
            answer = self._references(members) or self._queued(gang)
        except PluginError as error:
            return Refusal(pod_group=members.key, reason="PluginFailed", message=str(error))
        members.cache.gang_eligibility = (self.mark, gang, answer)
        return answer

    def _references(self, members: GangState) -> Refusal | None:
        key = members.key
        if members.group is None and not members.is_single_pod:
            kind, reference = _reference_to_pod_group(members)
            aside, remedy = self._absence(f"{kind} {key}")
            return Refusal(
                pod_group=key,
                reason="PodGroupNotFound",
                message=f"no {kind} {key} exists{aside}; {remedy}, or correct {reference}",
            )
        if members.group is not None and UNSUPPORTED_FIELD in members.group.metadata.annotations:
            message = members.group.metadata.annotations[UNSUPPORTED_FIELD]
            return Refusal(pod_group=key, reason="UnsupportedField", message=message)
        if members.queue not in self.tables.queues:
            return Refusal(pod_group=key, reason="QueueNotFound", message=self._queue_not_found(members))
        if not self.tables.queue_access.allows_namespace(members.queue, members.namespace):
            message = _not_selected(self.tables.queue_access, members)
            return Refusal(pod_group=key, reason="NamespaceNotSelected", message=message)
        # The gang is charged to one user as a whole, so pods of another user would evade the limit of that user.
        limiting = self.tables.queues.find_queue_with_user_limits(members.queue)
        if limiting and len(users := members.users_of_pods) > 1:
            return Refusal(pod_group=key, reason="SeveralUsers", message=_several_users(limiting, users))
        try:
            self.levels.requested_levels_of_gang(members.group)
            self.levels.requested_levels_of_subgroups(members.group)
        except UnknownLevelError as error:
            return Refusal(pod_group=key, reason="UnknownTopologyLevel", message=str(error))
        return None

    def _absence(self, title: str) -> tuple[str, str]:
        """Return an addition to the statement that an object does not exist, and the remedy."""
        is_set_aside = title in self.tables.names_of_set_aside_objects
        return (" (it was set aside)", "correct it") if is_set_aside else ("", "create it")

    def _queue_not_found(self, members: GangState) -> str:
        aside, remedy = self._absence(f"Queue {members.queue}")
        pod = next(iter(members.pending.values()), None)
        # A pod has no field for its queue, only a label.
        single_pod = members.group is None
        if stated_queue_name(members.group, pod):
            naming = f"change the label {QUEUE_LABEL}" if single_pod else "name another in spec.queue"
            return f"no Queue {members.queue} exists{aside}; {remedy}, or {naming}"
        naming = f"set the label {QUEUE_LABEL}" if single_pod else "name another in spec.queue"
        return (
            f"no Queue {members.queue} exists{aside}, which is the default queue of namespace {members.namespace}; "
            f"{remedy}, {naming}, or correct the label {DEFAULT_QUEUE_LABEL} of the Namespace"
        )

    def _queued(self, gang: PendingGang) -> PendingGang | Refusal:
        refusal = self._refuse_for_spec(gang) or _refuse_for_annotations(gang)
        if refusal is not None:
            return refusal
        by_spec = self.tables.pipeline.preenqueue_reads_spec_only
        gated: Status = SUCCESS
        parts = []
        left_out = 0
        for part in gang.parts:
            pods = []
            before: Pod | None = None
            for pod in self._in_queue_order(part.pods, gang.priority):
                # Pods of a template share a spec: one answer serves thousands of them if the plugins read nothing else.
                if before is None or not by_spec or pod.spec is not before.spec:
                    status, before = self.tables.pipeline.preenqueue(pod), pod
                if status.ok:
                    pods.append(pod)
                else:
                    gated = status
                    left_out += 1
            as_they_were = tuple(pods) == part.pods
            if pods:
                parts.append(part if as_they_were else GangPart(part.pod_class, part.subgroup, tuple(pods)))
        if gang.members.is_single_pod and not gang.parts:  # the pod is being deleted
            return gang
        count = self.tables.counts.gang_counts_of_pod(next(iter(gang.members.pending.values())))
        if not count.has_enough_pods:
            return incomplete_pod_group_refusal(self.tables, gang.members)
        # Gated surplus does not hold up a gang that reaches its minimum without it.
        if left_out and not _enough(gang, parts):
            reasons = ", ".join(gated.reasons)
            return Refusal(
                pod_group=gang.key,
                reason="Gated",
                message=f"{left_out} pods are kept out of the queue: {reasons}",
            )
        return gang if tuple(parts) == gang.parts else replace(gang, parts=tuple(parts))

    def _refuse_for_spec(self, gang: PendingGang) -> Refusal | None:
        """Return the refusal of a gang with a pod that exceeds a limit, or has a spec that no table can hold."""
        tables, specs = self.tables, self.tables.specs
        if not (specs.has_refused_specs or tables.lacks_columns):
            return None
        for pod in chain.from_iterable(part.pods for part in gang.parts):
            info = specs.spec_info_of(pod)
            if info.exceeded_limit:
                message = f"pod {pod.key}: {info.exceeded_limit}"
                return Refusal(pod_group=gang.key, reason="PodSpecLimit", message=message)
            if info.unsupported_field:
                message = f"pod {pod.key}: {info.unsupported_field}"
                return Refusal(pod_group=gang.key, reason="UnsupportedField", message=message)
            # The class of such a pod is unknown.
            if info.failure is not None:
                return Refusal(pod_group=gang.key, reason="PluginFailed", message=str(info.failure))
            unoffered = tables.unoffered_resources(info.requests)
            if unoffered:
                message = f"pod {pod.key}: no node offers {', '.join(sorted(unoffered))}"
                return Refusal(pod_group=gang.key, reason="NoFeasibleNode", message=message)
        return None

    def _in_queue_order(self, pods: Sequence[Pod], priority: int) -> Iterable[Pod]:
        sorts = self.tables.pipeline.queue_sorts
        if not sorts:
            return pods
        sort = sorts[0]
        created = [parse_timestamp(pod.metadata.creation_timestamp) for pod in pods]
        keys = call_plugin(sort, "QueueSort", _keys, sort, pods, priority, created)
        return [pods[index] for index in answers.indexes_sorted_by_queue_sort_key(sort, keys)]


def _refuse_for_annotations(gang: PendingGang) -> Refusal | None:
    """Return the refusal of a gang with a pod that asks by an annotation for something that is not supported."""
    for pod in chain.from_iterable(part.pods for part in gang.parts):
        problem = describe_unsupported_pod_annotation(pod, gang.members.group)
        if problem:
            return Refusal(pod_group=gang.key, reason="UnsupportedField", message=f"pod {pod.key}: {problem}")
    return None


def _keys(sort: QueueSortPlugin, pods: Sequence[Pod], priority: int, created: Sequence[float]) -> list[Any]:
    return [sort.sort_key(pod, priority, when) for pod, when in zip(pods, created, strict=True)]


def _enough(gang: PendingGang, parts: Iterable[GangPart]) -> bool:
    """Return True if these parts bring the gang, and each of its subGroups, to its minimum."""
    remaining: Counter[int] = Counter()
    for part in parts:
        remaining[part.subgroup] += len(part.pods)
    count = gang.members.to_pod_counts()
    if count.tree is not None:
        existing = Counter(count.sub_placed)
        for index, name in enumerate(count.tree.names):
            existing[name] += remaining[index]
        return remaining.total() >= max(1, gang.need) and not count.tree.count_missing_pods(existing)
    return remaining.total() >= max(1, gang.need) and all(
        remaining[index] + count.sub_placed[name] >= least
        for index, (name, least) in enumerate(count.sub_minimum.items())
    )


def incomplete_pod_group_refusal(tables: SessionTables, members: GangState) -> Refusal:
    """Return the refusal of a PodGroup that has fewer pods than its minimum."""
    # Pods that were set aside may be the missing ones.
    aside = tables.counts_of_set_aside_pods_by_namespace[members.namespace]
    verb = "pod is" if aside == 1 else "pods are"
    hint = (
        f"; {aside} {verb} set aside in namespace {members.namespace}: correct these first" if aside else ""
    )
    return Refusal(pod_group=members.key, reason="NotEnoughPods", message=f"{_not_enough(members)}{hint}")


def _several_users(queue: str, users: Iterable[str]) -> str:
    named = ", ".join(user or "none" for user in sorted(users))
    return (
        f"queue {queue} sets spec.userLimits, and the pods have more than one value of the label {USER_LABEL} "
        f"({named}); set the label on the PodGroup, or the same value on all pods"
    )


def _not_selected(access: QueueAccess, members: GangState) -> str:
    selecting = access.find_queue_with_namespace_selector(members.queue)
    owner = selecting.name if selecting is not None else members.queue
    ancestor = "" if owner == members.queue else f" of the queue {owner} above it"
    selector = selecting.spec.namespace_selector if selecting is not None else None
    return (
        f"queue {members.queue} is not for namespace {members.namespace}: the namespaceSelector{ancestor} selects "
        f"{selector}; use another queue, or have an administrator change the selector or the labels of the Namespace"
    )


def _reference_to_pod_group(members: GangState) -> tuple[str, str]:
    """Return the kind of the absent group of a gang, and the field by which the pods name the group."""
    pod = next(iter(members.pending.values()), None)
    named = pod.scheduling_group_name if pod is not None else ""
    if not named:
        return "PodGroup", "the pods' pod-group label"
    if named == members.key.rpartition("/")[2]:
        return "PodGroup", "spec.schedulingGroup.podGroupName of the pods"
    field = "spec.parentCompositePodGroupName"
    return "CompositePodGroup", f"{field} of PodGroup {named}, or of a group above it"


def _missing_groups(members: GangState) -> str:
    """Return a sentence about the first CompositePodGroup that lacks groups; "" if there is none."""
    group = members.group
    if group is None or not is_converted_from_kubernetes(group):
        return ""
    for sub in group.spec.sub_groups:
        parent = composite_group_with_missing_groups(sub.name)
        if parent:
            groups = "1 group is" if sub.min_member == 1 else f"{sub.min_member} groups are"
            return (
                f"CompositePodGroup {parent}: {groups} missing for spec.schedulingPolicy.gang.minGroupCount; create "
                f"groups with spec.parentCompositePodGroupName: {parent}, or lower minGroupCount"
            )
    return ""


def _not_enough(members: GangState) -> str:
    count = members.to_pod_counts()
    missing_groups = _missing_groups(members)
    if missing_groups:
        return missing_groups
    is_of_kubernetes = members.group is not None and is_converted_from_kubernetes(members.group)
    if count.existing < count.minimum:
        field_name = "minCount" if is_of_kubernetes else "minMember"
        return missing_pods_text(count.existing, count.minimum, field_name)
    name = next(name for name, least in count.sub_minimum.items() if count.sub_existing.get(name, 0) < least)
    existing, minimum = count.sub_existing.get(name, 0), count.sub_minimum[name]
    if is_of_kubernetes:
        return missing_pods_text(existing, minimum, f"PodGroup {name}")
    return f"{missing_pods_text(existing, minimum, f'subGroup {name}')}, or correct the sub-group label"

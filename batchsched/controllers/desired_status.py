"""Computes the status of PodGroups, Queues and pods from pod counts and the last refusal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.pod import Pod
from batchsched.api.core.quantity import format_quantity
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.decision import refusal_text
from batchsched.api.gang import TERMINAL_PHASES, GangPhase, missing_pods_text, phase_changes_between
from batchsched.controllers.refusal_history import GangStatusRecord

Json = dict[str, Any]
Conditions = Sequence[Json]
SCHEDULED: Final = "Scheduled"
ACTIVE: Final = "Active"
CONDITION_REASONS: Final = {
    SCHEDULED: ("True", "the minimum has its places"),
    "Pending": ("False", "no session has looked at it yet"),
    "Held": ("False", "a Permit plugin holds it; the message says which, and until when"),
}
"""Reasons of the condition `Scheduled` other than those of a refusal, with its status and the meaning."""
PRIORITY_CAPPED: Final = "PriorityCapped"
CAP_REASONS: Final = {
    "ClassAbovePods": (
        "True",
        "its PriorityClass is higher than the priority of all its pods and has no effect; the pods need the class",
    ),
}
"""Reasons of the condition `PriorityCapped`, with its status and the meaning. Other PodGroups lack the condition."""
PROTECTION_LIMITED: Final = "ProtectionLimited"
PROTECTION_REASONS: Final = {
    "UsageAboveGuarantee": (
        "True",
        "the protected gangs of its queue use more than its guarantee; another queue that needs its own may evict them",
    ),
    "RuntimeAboveMaximum": (
        "True",
        "its `minRuntimeSeconds` is above the `maxMinRuntimeSeconds` of its queue, which applies instead",
    ),
}
"""Reasons of the condition `ProtectionLimited`, with its status and the meaning. Other PodGroups lack the condition."""
WARNINGS: Final = (PRIORITY_CAPPED, PROTECTION_LIMITED)
"""Conditions of PodGroups that are present only as long as they are True."""
POD_GROUP_CONDITIONS: Final = frozenset({SCHEDULED, *WARNINGS})
"""Types of all conditions that are written to batchsched PodGroups."""
QUEUE_REASONS: Final = {
    ACTIVE: ("True", "it has its place in the tree"),
    "Misplaced": (
        "False",
        "its parent is absent, or the tree has a cycle here; gangs in it are refused, `QueueNotFound`",
    ),
}
"""Reasons of the condition `Active` of a queue, with its status and the meaning."""
QUEUE_CONDITIONS: Final = frozenset({ACTIVE})
"""Types of all conditions that are written to Queues."""


@dataclass(frozen=True, slots=True)
class GangStatusInput:
    """The values from which the status of a gang is computed: the numbers of its pods by state, and its queue position.

    Args:
      pending: Pods without a node.
      placed: Bound and assumed pods.
      bound: Placed pods with a binding that a watch event has confirmed.
      running: Placed pods with the phase Running.
      succeeded, failed: Finished pods, also after they are deleted.
      position: Position in the queue; None if the gang is not pending.
      was_whole, partially_bound_since: As in `GangPods`.
      queue: Name of the queue of the gang.
    """

    pending: int = 0
    placed: int = 0
    bound: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    position: int | None = None
    was_whole: bool = False
    partially_bound_since: float | None = None
    queue: str = ""


@dataclass(frozen=True, slots=True)
class QueueStatusInput:
    """The values from which the status of a queue is computed: allocated resources, pending gangs and fair share.

    Args:
      allocated: Requests of its pods by resource, in base units.
      pending: Number of pending gangs.
      misplaced: Why the queue has no place in the tree; "" if it has one.
      fair_share: Its fair share by resource; None if that depends on past usage.
    """

    allocated: Mapping[str, int]
    pending: int = 0
    misplaced: str = ""
    fair_share: Mapping[str, int] | None = None


def phase_from_pods_and_permit(minimum: int, counts: GangStatusInput, record: GangStatusRecord) -> GangPhase:
    """Return the phase of a gang according to the states of its pods and to whether it waits at Permit.

    The previous phase of the gang has no influence.
    """
    unfinished = counts.pending + counts.placed
    if not unfinished and counts.succeeded >= minimum:
        return GangPhase.SUCCEEDED
    if not unfinished and counts.failed:
        return GangPhase.FAILED
    if counts.bound + counts.succeeded >= minimum:
        return GangPhase.RUNNING
    if counts.placed + counts.succeeded >= minimum:
        return GangPhase.SCHEDULED
    return GangPhase.HELD if record.waiting is not None else GangPhase.PENDING


def next_phase(
    before: GangPhase, minimum: int, counts: GangStatusInput, record: GangStatusRecord
) -> GangPhase:
    """Compute the new phase of a gang from its pods and its previous phase. Succeeded and Failed are final.

    Raises:
      IllegalStateChange: No series of legal moves leads from the previous phase to the phase according to the pods.
    """
    if before in TERMINAL_PHASES:
        return before
    shown = phase_from_pods_and_permit(minimum, counts, record)
    phase_changes_between(before, shown)
    return shown


def desired_group_status(
    group: PodGroup,
    counts: GangStatusInput,
    record: GangStatusRecord,
    written: Mapping[str, Any],
    now: float,
    warnings: Mapping[str, tuple[str, str]] | None = None,
) -> Json:
    """Compute the status that is to be written to a batchsched PodGroup.

    Finished pods stay counted after they are deleted, as in the status of a Job; otherwise the deletion of a succeeded
    pod would turn a running gang into a pending one.

    Args:
      group: The PodGroup.
      counts: Its pods.
      record: What the last session decided about it.
      written: Its status so far, {} without one.
      now: Seconds since 1970.
      warnings: Reason and message of the conditions in WARNINGS that are True.

    Raises:
      IllegalStateChange: The pods show a phase that cannot follow the one of the status so far.
    """
    before: Conditions = written.get("conditions", ())
    counts = replace(
        counts,
        succeeded=max(counts.succeeded, written.get("succeeded") or 0),
        failed=max(counts.failed, written.get("failed") or 0),
    )
    gang_phase = next_phase(_phase_of(written), group.effective_min_member, counts, record)
    waits = gang_phase in (GangPhase.PENDING, GangPhase.HELD)
    scheduled = _condition(
        _scheduled(group, gang_phase, counts, record), before, group.metadata.generation, now
    )
    return {
        "queue": counts.queue or None,
        "phase": gang_phase.value,
        "placed": counts.placed,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "conditions": _with_warnings(group, _with(scheduled, before), warnings or {}, now),
        "queuePosition": counts.position if waits else None,
        "estimatedStartTime": (record.start or None) if waits else None,
        "wholeSince": (written.get("wholeSince") or format_timestamp(now)) if counts.was_whole else None,
        "partiallyBoundSince": (
            format_timestamp(counts.partially_bound_since)
            if counts.partially_bound_since is not None
            else None
        ),
    }


def _phase_of(written: Mapping[str, Any]) -> GangPhase:
    """Return the phase of a status; Pending if it has none, or one that this version does not know."""
    text = written.get("phase")
    return GangPhase(text) if text in set(GangPhase) else GangPhase.PENDING


def _scheduled(
    group: PodGroup, gang_phase: GangPhase, counts: GangStatusInput, record: GangStatusRecord
) -> tuple[bool, str, str]:
    """Return the condition Scheduled: whether it is True, its reason and its message."""
    minimum = group.effective_min_member
    if gang_phase not in (GangPhase.PENDING, GangPhase.HELD):
        return True, SCHEDULED, f"its minimum of {minimum} has its places"
    if record.waiting is not None:
        return False, "Held", f"plugin {record.waiting.plugin} holds it, until {record.waiting.until}"
    existing = counts.pending + counts.placed + counts.succeeded
    if existing < minimum:
        return False, "NotEnoughPods", missing_pods_text(existing, minimum, "minMember")
    if record.refusal is not None:
        return False, record.refusal.reason, refusal_text(record.refusal)
    return False, "Pending", CONDITION_REASONS["Pending"][1]


def desired_kubernetes_group_condition(
    group: PodGroup,
    kind: str,
    counts: GangStatusInput,
    record: GangStatusRecord,
    before: Conditions,
    now: float,
) -> Json | None:
    """Compute the condition that is to be written to a PodGroup of Kubernetes, or None if it does not change.

    A condition that is True stays True. A PodGroup that no session has tried has no condition. The condition becomes
    True when the minimum is bound.

    Source: updatePodGroupCondition of kube-scheduler 1.36.

    Args:
      group: The PodGroup as it was read.
      kind: The type of the condition.
      counts: Its pods.
      record: What the last session decided about it.
      before: The conditions that it has.
      now: Seconds since 1970.
    """
    gang_phase = phase_from_pods_and_permit(group.effective_min_member, counts, record)
    true, reason, message = _scheduled(group, gang_phase, counts, record)
    present = next((condition for condition in before if condition["type"] == kind), {})
    if not true and (record.refusal is None or present.get("status") == "True"):
        return None
    if true and not counts.was_whole and counts.succeeded < group.effective_min_member:
        # A later leader takes the condition for a gang that was whole, but these bindings may still fail.
        return None
    if not true:
        reason = "SchedulerError" if reason == "PluginFailed" else "Unschedulable"
    condition = _condition((true, reason, message), before, group.metadata.generation, now, kind)
    if not group.metadata.generation:
        # The alpha version of the API does not count generations.
        del condition["observedGeneration"]
    return None if condition.items() <= present.items() else condition


def desired_unscheduled_pod_status(pod: Pod, reason: str, message: str, now: float) -> Json:
    """Compute the status of an unscheduled pod: the condition `PodScheduled`, as kube-scheduler writes it."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    status_by_type = {present.type: present.status for present in pod.status.conditions or ()}
    # A merge patch without the time keeps the time of the transition.
    if status_by_type.get("PodScheduled") != "False":
        condition["lastTransitionTime"] = format_timestamp(now)
    return {"conditions": [condition]}


def desired_queue_status(queue: Queue, allocation: QueueStatusInput, before: Conditions, now: float) -> Json:
    """Compute the status that is to be written to a Queue.

    Args:
      queue: The Queue.
      allocation: What it uses.
      before: The conditions that it has.
      now: Seconds since 1970.
    """
    misplaced = allocation.misplaced
    active = (False, "Misplaced", misplaced) if misplaced else (True, ACTIVE, QUEUE_REASONS[ACTIVE][1])
    condition = _condition(active, before, queue.metadata.generation, now, ACTIVE)
    return {
        "allocated": _quantities(allocation.allocated),
        "pending": allocation.pending,
        "conditions": _with(condition, before),
        # In a merge patch, null deletes an outdated fairShare; a missing field would keep it.
        "fairShare": None if allocation.fair_share is None else _quantities(allocation.fair_share),
    }


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: format_quantity(name, amount) for name, amount in sorted(amounts.items()) if amount > 0}


def _condition(
    condition_state: tuple[bool, str, str],
    before: Conditions,
    generation: int,
    now: float,
    kind: str = SCHEDULED,
) -> Json:
    """Return a condition. Its transition time is that of its last change between True and False."""
    true, reason, message = condition_state
    status = "True" if true else "False"
    since = format_timestamp(now)
    for present in before:
        if present["type"] == kind and present["status"] == status and present.get("lastTransitionTime"):
            since = present["lastTransitionTime"]
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


def _with_warnings(
    group: PodGroup, conditions: list[Json], warnings: Mapping[str, tuple[str, str]], now: float
) -> list[Json]:
    """Return the conditions with the warnings that are True, and without the others."""
    kept = [
        present for present in conditions if present["type"] not in WARNINGS or present["type"] in warnings
    ]
    for kind, (reason, message) in warnings.items():
        kept = _with(_condition((True, reason, message), kept, group.metadata.generation, now, kind), kept)
    return kept


def with_conditions_of_others(
    written: Mapping[str, Any], seen: Mapping[str, Any], own: frozenset[str]
) -> Json:
    """Return a written status in which all conditions but those of the types `own` are those of the status `seen`."""
    foreign = [present for present in seen.get("conditions") or () if present["type"] not in own]
    kept = [present for present in written.get("conditions") or () if present["type"] in own]
    return {**written, "conditions": [*foreign, *kept]}


def _with(condition: Json, before: Conditions) -> list[Json]:
    """Return the conditions with one of them replaced; conditions of other controllers stay."""
    return [*(present for present in before if present["type"] != condition["type"]), condition]

"""The status of PodGroups and Queues: what it is to be, made of numbers and of the last word of a session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchsched.api.core.metadata import timestamp
from batchsched.api.core.pod import Pod
from batchsched.api.core.quantity import show
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.gang_phase import GangPhase
from batchsched.controllers.status.refusal_history import LastRefusal, sentence

Json = dict[str, Any]
Conditions = Sequence[Json]
SCHEDULED: Final = "Scheduled"
ACTIVE: Final = "Active"
CONDITION_REASONS: Final = {
    SCHEDULED: ("True", "the minimum has its places"),
    "Pending": ("False", "no session has looked at it yet"),
    "Held": ("False", "a Permit plugin holds it; the message says which, and until when"),
}
"""Reasons of the condition `Scheduled` besides those of a refusal: its status, and what it means."""
QUEUE_REASONS: Final = {
    ACTIVE: ("True", "it has its place in the tree"),
    "Misplaced": (
        "False",
        "its parent is absent, or the tree has a cycle here; gangs in it are refused, `QueueNotFound`",
    ),
}
"""Reasons of the condition `Active` of a queue."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """A gang in numbers.

    Args:
      waiting, placed, bound, running, succeeded, failed: pods; bound ones are placed, and the API server knows it.
      position: in its queue, None when it does not wait.
    """

    waiting: int = 0
    placed: int = 0
    bound: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    position: int | None = None


@dataclass(frozen=True, slots=True)
class QueueAllocation:
    """What a queue holds.

    Args:
      allocated: amounts by resource in base units.
      pending: gangs that wait.
      misplaced: why it has no place in the tree, "" where it has one.
      fair_share: what it is entitled to; None where that depends on what was used lately.
    """

    allocated: Mapping[str, int]
    pending: int = 0
    misplaced: str = ""
    fair_share: Mapping[str, int] | None = None


def phase(least: int, numbers: PodCounts, verdict: LastRefusal) -> GangPhase:
    """Return where a gang is in its life."""
    going_on = numbers.waiting + numbers.placed
    if not going_on and numbers.succeeded >= least:
        return GangPhase.SUCCEEDED
    if not going_on and numbers.failed:
        return GangPhase.FAILED
    if numbers.bound + numbers.succeeded >= least:
        return GangPhase.RUNNING
    if numbers.placed + numbers.succeeded >= least:
        return GangPhase.SCHEDULED
    return GangPhase.HELD if verdict.waiting is not None else GangPhase.PENDING


def of_group(
    group: PodGroup, numbers: PodCounts, verdict: LastRefusal, before: Conditions, now: float
) -> Json:
    """Return the status of a PodGroup as it is written; before: the conditions that it has."""
    state = phase(group.min_member, numbers, verdict)
    waits = state in (GangPhase.PENDING, GangPhase.HELD)
    scheduled = _condition(_scheduled(group, state, numbers, verdict), before, group.metadata.generation, now)
    return {
        "phase": state.value,
        "placed": numbers.placed,
        "running": numbers.running,
        "succeeded": numbers.succeeded,
        "failed": numbers.failed,
        "conditions": _with(scheduled, before),
        "queuePosition": numbers.position if waits else None,
        "estimatedStartTime": (verdict.start or None) if waits else None,
    }


def _scheduled(
    group: PodGroup, state: GangPhase, numbers: PodCounts, verdict: LastRefusal
) -> tuple[bool, str, str]:
    least = group.min_member
    if state not in (GangPhase.PENDING, GangPhase.HELD):
        return True, SCHEDULED, f"its minimum of {least} has its places"
    if verdict.waiting is not None:
        return False, "Held", f"plugin {verdict.waiting.plugin} holds it, until {verdict.waiting.until}"
    exist = numbers.waiting + numbers.placed + numbers.succeeded
    if exist < least:
        return False, "NotEnoughPods", f"{exist} of the {least} pods that it needs exist"
    if verdict.refusal is not None:
        return False, verdict.refusal.reason, sentence(verdict.refusal)
    return False, "Pending", CONDITION_REASONS["Pending"][1]


def of_upstream(
    group: PodGroup, kind: str, numbers: PodCounts, verdict: LastRefusal, before: Conditions, now: float
) -> Json | None:
    """Return the condition of a PodGroup of Kubernetes itself, None where it is to stay as it is.

    Once true it stays, whatever becomes of pods that come later; a group that nobody tried has none.

    Source: updatePodGroupCondition of kube-scheduler 1.36.

    Args:
      group: as we read it.
      kind: the type of the condition.
      numbers: of its pods.
      verdict: the last word on it.
      before: the conditions that it has.
      now: seconds since 1970.
    """
    state = phase(group.min_member, numbers, verdict)
    true, reason, message = _scheduled(group, state, numbers, verdict)
    stands = next((one for one in before if one["type"] == kind), {})
    if not true and (verdict.refusal is None or stands.get("status") == "True"):
        return None
    if not true:
        reason = "SchedulerError" if reason == "PluginFailed" else "Unschedulable"
    found = _condition((true, reason, message), before, group.metadata.generation, now, kind)
    if not group.metadata.generation:  # the alpha version counts none
        del found["observedGeneration"]
    return None if found.items() <= stands.items() else found


def of_pod(pod: Pod, message: str, now: float) -> Json:
    """Return the part of a waiting pod's status that says why it is not scheduled, as kube-scheduler writes it."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    said = {one.type: one.status for one in pod.status.conditions or ()}
    if said.get("PodScheduled") != "False":  # else a merge leaves the time of its transition as it is
        condition["lastTransitionTime"] = timestamp(now)
    return {"conditions": [condition]}


def of_queue(queue: Queue, held: QueueAllocation, before: Conditions, now: float) -> Json:
    """Return the status of a Queue as it is written; before: the conditions that it has."""
    misplaced = held.misplaced
    said = (False, "Misplaced", misplaced) if misplaced else (True, ACTIVE, QUEUE_REASONS[ACTIVE][1])
    condition = _condition(said, before, queue.metadata.generation, now, ACTIVE)
    found = {
        "allocated": _written(held.allocated),
        "pending": held.pending,
        "conditions": _with(condition, before),
    }
    # None takes away what stands there: nobody is to believe a share of yesterday.
    return found | {"fairShare": None if held.fair_share is None else _written(held.fair_share)}


def _written(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: show(name, amount) for name, amount in sorted(amounts.items()) if amount > 0}


def _condition(
    said: tuple[bool, str, str],
    before: Conditions,
    generation: int,
    now: float,
    kind: str = SCHEDULED,
) -> Json:
    """Return a condition; its time is that of the last change from True to False or back."""
    true, reason, message = said
    status = "True" if true else "False"
    since = timestamp(now)
    for one in before:
        if one["type"] == kind and one["status"] == status and one.get("lastTransitionTime"):
            since = one["lastTransitionTime"]
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


def _with(one: Json, before: Conditions) -> list[Json]:
    """Return all conditions: those of others stay as they are."""
    return [*(found for found in before if found["type"] != one["type"]), one]

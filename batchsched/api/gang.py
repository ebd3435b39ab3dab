"""Gangs: their identity, and the phases of their life.

The identity is the key under which the scheduler knows a gang, whether it is a PodGroup or a single pod. For the
phases, one table says which change leads from which phase to which. A change that the table does not have raises
`IllegalStateChange` and changes nothing. The diagram and the table of the documentation are generated from this table.
"""

from collections import deque
from enum import StrEnum
from functools import cache
from typing import Final

from batchsched.api.core.pod import POD_GROUP_LABEL, Pod
from batchsched.errors import IllegalStateChange

SINGLE_POD_PREFIX: Final = "pod/"
"""Prefix of the identity of a pod that belongs to no PodGroup and is a gang of one."""


def gang_identity(pod: Pod) -> str:
    """Return the identity of the pod's gang: `namespace/podgroup`, or `pod/namespace/name` without a PodGroup."""
    name = pod.metadata.labels.get(POD_GROUP_LABEL) if pod.metadata.labels else None
    namespace = pod.metadata.namespace or "default"
    return f"{namespace}/{name}" if name else f"{SINGLE_POD_PREFIX}{namespace}/{pod.metadata.name}"


def is_single_pod_identity(identity: str) -> bool:
    """Return whether a gang identity is that of a pod without a PodGroup."""
    # Not by the prefix alone: a namespace may be named `pod`.
    return identity.count("/") == 2


def gang_key_from_identity(identity: str) -> str:
    """Return the `namespace/name` part of a gang identity, which names a PodGroup or a single pod."""
    return identity.removeprefix(SINGLE_POD_PREFIX) if is_single_pod_identity(identity) else identity


def gang_key_of_pod(pod: Pod) -> str:
    """Return the `namespace/name` of a pod's PodGroup, or of the pod itself if it has no PodGroup."""
    return gang_key_from_identity(gang_identity(pod))


def identities_of_gang_key(key: str) -> tuple[str, str]:
    """Return the two possible identities of a gang with this `namespace/name`: as a PodGroup, and as a single pod."""
    return key, SINGLE_POD_PREFIX + key


def gang_namespace(identity: str) -> str:
    """Return the namespace in a gang identity."""
    return identity.split("/")[-2]


class GangPhase(StrEnum):
    """The state of a gang: Pending, Reserved, Held, Scheduled, Running, Succeeded or Failed.

    The status of a PodGroup shows all phases except Reserved, which exists only within a session.
    """

    PENDING = "Pending"
    RESERVED = "Reserved"
    HELD = "Held"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


TERMINAL_PHASES: Final = frozenset({GangPhase.SUCCEEDED, GangPhase.FAILED})
"""Phases that no change leaves, also if the pods of the gang are deleted."""


class PhaseChange(StrEnum):
    """An action or event that moves a gang from one phase to another.

    reserve: A pod of the gang passes Reserve.
    hold: A Permit plugin answers Wait when the minimum is reserved.
    allow: No Permit plugin answers Wait.
    roll back: A refusal, a timeout or a failed binding frees all places.
    bind: The minimum is bound.
    finish: No pod is pending or bound, and the minimum has succeeded.
    fail: No pod is pending or bound, fewer than the minimum have succeeded, and a pod has failed.
    evict: Pods are evicted or deleted before they finish, and fewer than the minimum are left.
    """

    RESERVE = "reserve"
    HOLD = "hold"
    ALLOW = "allow"
    ROLL_BACK = "roll back"
    BIND = "bind"
    FINISH = "finish"
    FAIL = "fail"
    EVICT = "evict"


MOVES: Final = {
    (GangPhase.PENDING, PhaseChange.RESERVE): GangPhase.RESERVED,
    (GangPhase.RESERVED, PhaseChange.RESERVE): GangPhase.RESERVED,
    (GangPhase.RESERVED, PhaseChange.ALLOW): GangPhase.SCHEDULED,
    (GangPhase.RESERVED, PhaseChange.HOLD): GangPhase.HELD,
    (GangPhase.RESERVED, PhaseChange.ROLL_BACK): GangPhase.PENDING,
    (GangPhase.HELD, PhaseChange.ALLOW): GangPhase.SCHEDULED,
    (GangPhase.HELD, PhaseChange.ROLL_BACK): GangPhase.PENDING,
    (GangPhase.SCHEDULED, PhaseChange.BIND): GangPhase.RUNNING,
    (GangPhase.SCHEDULED, PhaseChange.ROLL_BACK): GangPhase.PENDING,
    (GangPhase.RUNNING, PhaseChange.FINISH): GangPhase.SUCCEEDED,
    (GangPhase.RUNNING, PhaseChange.FAIL): GangPhase.FAILED,
    (GangPhase.RUNNING, PhaseChange.EVICT): GangPhase.PENDING,
}
"""(phase, change) → next phase. A pair that is not here is illegal."""


def phase_after(phase: GangPhase, change: PhaseChange) -> GangPhase:
    """Return the phase of a gang after a change, given the phase before.

    Raises:
      IllegalStateChange: The table does not have the change for this phase.
    """
    next_phase = MOVES.get((phase, change))
    if next_phase is None:
        legal = ", ".join(move for start, move in MOVES if start is phase) or "none"
        raise IllegalStateChange(f"a gang that is {phase} cannot {change}; its moves are: {legal}")
    return next_phase


@cache
def phase_changes_between(phase: GangPhase, later: GangPhase) -> tuple[PhaseChange, ...]:
    """Return the shortest series of phase changes that takes a gang from one phase to another.

    Several changes may happen between two observations.

    Raises:
      IllegalStateChange: No series of changes in the table leads there.
    """
    if phase is later:
        return ()
    paths: deque[tuple[GangPhase, tuple[PhaseChange, ...]]] = deque([(phase, ())])
    reached = {phase}
    while paths:
        last, changes = paths.popleft()
        for (start, change), end in MOVES.items():
            if start is not last or end in reached:
                continue
            if end is later:
                return (*changes, change)
            reached.add(end)
            paths.append((end, (*changes, change)))
    raise IllegalStateChange(f"a gang that is {phase} cannot become {later}")


def missing_pods_text(existing: int, minimum: int, field: str) -> str:
    """Return the message for a gang with fewer existing pods than a field such as `minMember` requires."""
    if minimum == 1:
        return f"{existing} of 1 pod that {field} asks for exists; create it"
    return f"{existing} of the {minimum} pods that {field} asks for exist; create the others"

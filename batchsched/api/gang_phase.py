"""The life of a gang: one table of states and moves.

A move that the table does not have raises and changes nothing. The diagram in the documentation is drawn from this
table.
"""

from enum import StrEnum
from typing import Final

from batchsched.errors import IllegalMove


class GangPhase(StrEnum):
    """Where a gang is. All but Reserved are phases that a PodGroup's status shows."""

    PENDING = "Pending"
    RESERVED = "Reserved"
    HELD = "Held"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class PhaseChange(StrEnum):
    """What happens to a gang.

    reserve: a member passed Reserve. hold: a Permit plugin says Wait when the minimum has a place. allow: nobody
    says Wait any more. roll back: a refusal, a timeout or a failed bind gives every place back. bind: the minimum is
    bound. finish and fail: its pods ended. evict: it lost its places after it ran.
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
"""(state, move) → state; what is not here is illegal."""


def after(state: GangPhase, move: PhaseChange) -> GangPhase:
    """Return the state after a move.

    Raises:
      IllegalMove: the table has no such move.
    """
    following = MOVES.get((state, move))
    if following is None:
        legal = ", ".join(one for at, one in MOVES if at is state) or "none"
        raise IllegalMove(f"a gang that is {state} cannot {move}; its moves are: {legal}")
    return following

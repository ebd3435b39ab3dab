"""The states of an entity in the scheduling queue, and the table of moves between them.

A move that is not in the table raises and changes nothing. The documentation draws its diagram from the table.
"""

from enum import StrEnum
from typing import Final

from batchsched.errors import IllegalMove


class QueueState(StrEnum):
    """The state of an entity. All but New, In flight and Gone are queues of the metric `pending_pods`."""

    NEW = "New"
    ACTIVE = "Active"
    BACKOFF = "Backoff"
    UNSCHEDULABLE = "Unschedulable"
    GATED = "Gated"
    IN_FLIGHT = "In flight"
    GONE = "Gone"


MOVES: Final = {
    (QueueState.NEW, QueueState.ACTIVE): "it is added, and PreEnqueue admits at least one of its pods",
    (QueueState.NEW, QueueState.GATED): "it is added, and PreEnqueue refuses all of its pods",
    (QueueState.NEW, QueueState.BACKOFF): "its binding failed after its cycle had ended",
    (QueueState.ACTIVE, QueueState.IN_FLIGHT): "it is popped",
    (
        QueueState.BACKOFF,
        QueueState.IN_FLIGHT,
    ): "its backoff ends first, and the active queue is empty",
    (QueueState.BACKOFF, QueueState.ACTIVE): "its backoff has ended, or it was activated",
    (
        QueueState.IN_FLIGHT,
        QueueState.UNSCHEDULABLE,
    ): "it was refused, and no event during its cycle may help it",
    (
        QueueState.IN_FLIGHT,
        QueueState.BACKOFF,
    ): "it was refused and an event during its cycle may help it, or an error occurred",
    (
        QueueState.IN_FLIGHT,
        QueueState.ACTIVE,
    ): "the same, and a plugin answered Pending, or there is no backoff",
    (QueueState.IN_FLIGHT, QueueState.GATED): "the same, and PreEnqueue now refuses all of its pods",
    (QueueState.UNSCHEDULABLE, QueueState.BACKOFF): "an event may help it, and its backoff has not ended",
    (
        QueueState.UNSCHEDULABLE,
        QueueState.ACTIVE,
    ): "an event may help it, five minutes have passed, or it was activated",
    (QueueState.UNSCHEDULABLE, QueueState.GATED): "the same, and PreEnqueue now refuses all of its pods",
    (
        QueueState.GATED,
        QueueState.ACTIVE,
    ): "an event may help it, and PreEnqueue admits at least one of its pods",
    (QueueState.GATED, QueueState.BACKOFF): "the same, and its backoff has not ended",
    (QueueState.ACTIVE, QueueState.GONE): "its last pod was deleted or has a node",
    (QueueState.BACKOFF, QueueState.GONE): "its last pod was deleted or has a node",
    (QueueState.UNSCHEDULABLE, QueueState.GONE): "its last pod was deleted or has a node",
    (QueueState.GATED, QueueState.GONE): "its last pod was deleted or has a node",
    (QueueState.IN_FLIGHT, QueueState.GONE): "all of its pods have nodes or were deleted",
}
"""(from, to) → condition. Other moves are illegal."""


def check_move(start: QueueState, end: QueueState) -> None:
    """Check that the table contains a move.

    Raises:
      IllegalMove: the table does not contain it.
    """
    if (start, end) not in MOVES:
        legal = ", ".join(to for state, to in MOVES if state is start) or "none"
        raise IllegalMove(
            f"an entity in state {start} of the scheduling queue cannot become {end}; it can become: {legal}"
        )

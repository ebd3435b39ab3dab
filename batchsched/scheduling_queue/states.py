"""The places of the scheduling queue: one table of where an entity may be and how it gets there.

A move that the table does not have raises and changes nothing. The diagram in the documentation is drawn from it.
"""

from enum import StrEnum
from typing import Final

from batchsched.errors import IllegalMove


class QueueState(StrEnum):
    """Where an entity is. All but New, In flight and Gone are queues of `pending_pods`."""

    NEW = "New"
    ACTIVE = "Active"
    BACKOFF = "Backoff"
    UNSCHEDULABLE = "Unschedulable"
    GATED = "Gated"
    IN_FLIGHT = "In flight"
    GONE = "Gone"


MOVES: Final = {
    (QueueState.NEW, QueueState.ACTIVE): "it comes, and PreEnqueue lets one of its pods pass",
    (QueueState.NEW, QueueState.GATED): "it comes, and PreEnqueue refuses all of its pods",
    (QueueState.NEW, QueueState.BACKOFF): "its binding failed after its cycle was over",
    (QueueState.ACTIVE, QueueState.IN_FLIGHT): "it is next",
    (
        QueueState.BACKOFF,
        QueueState.IN_FLIGHT,
    ): "it is the next to have waited long enough, and nobody is active",
    (QueueState.BACKOFF, QueueState.ACTIVE): "it has waited long enough, or was activated",
    (
        QueueState.IN_FLIGHT,
        QueueState.UNSCHEDULABLE,
    ): "it was refused, and nothing happened meanwhile that may help it",
    (
        QueueState.IN_FLIGHT,
        QueueState.BACKOFF,
    ): "it was refused and something that may help it happened meanwhile, or it erred",
    (QueueState.IN_FLIGHT, QueueState.ACTIVE): "the same, and its refusal said Pending, or it need not wait",
    (QueueState.IN_FLIGHT, QueueState.GATED): "the same, and PreEnqueue refuses all of its pods by now",
    (QueueState.UNSCHEDULABLE, QueueState.BACKOFF): "an event may help it, and it has not waited long enough",
    (
        QueueState.UNSCHEDULABLE,
        QueueState.ACTIVE,
    ): "an event may help it, it waited for five minutes, or was activated",
    (QueueState.UNSCHEDULABLE, QueueState.GATED): "the same, and PreEnqueue refuses all of its pods by now",
    (QueueState.GATED, QueueState.ACTIVE): "an event may help it, and PreEnqueue lets one of its pods pass",
    (QueueState.GATED, QueueState.BACKOFF): "the same, and it has not waited long enough",
    (QueueState.ACTIVE, QueueState.GONE): "its last pod is deleted or has a node",
    (QueueState.BACKOFF, QueueState.GONE): "its last pod is deleted or has a node",
    (QueueState.UNSCHEDULABLE, QueueState.GONE): "its last pod is deleted or has a node",
    (QueueState.GATED, QueueState.GONE): "its last pod is deleted or has a node",
    (QueueState.IN_FLIGHT, QueueState.GONE): "all of its pods have a node, or are deleted",
}
"""(from, to) → when; what is not here is illegal."""


def check(start: QueueState, end: QueueState) -> None:
    """Check a move against the table.

    Raises:
      IllegalMove: the table does not have it.
    """
    if (start, end) not in MOVES:
        legal = ", ".join(to for at, to in MOVES if at is start) or "none"
        raise IllegalMove(
            f"what is {start} in the scheduling queue cannot become {end}; it can become: {legal}"
        )

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


def page() -> str:
    """Return the documentation's page of the scheduling queue."""
    names = {one: one.name.title().replace("_", "") for one in QueueState}
    inner = [
        (start, end) for start, end in MOVES if start is not QueueState.NEW and end is not QueueState.GONE
    ]
    return "\n".join(
        [
            *_PAGE,
            "```mermaid",
            "stateDiagram-v2",
            *(f"    [*] --> {names[end]}" for start, end in MOVES if start is QueueState.NEW),
            *(f"    {names[start]} --> {names[end]}" for start, end in inner),
            f"    {names[QueueState.IN_FLIGHT]} --> [*]",
            "```",
            "",
            "| from | to | when |",
            "|---|---|---|",
            *(f"| {start} | {end} | {when} |" for (start, end), when in MOVES.items()),
        ]
    )


_PAGE: Final = (
    "# The scheduling queue",
    "",
    "Pods that wait are in one of four queues, as in kube-scheduler 1.36. A gang waits and moves as one: its pods",
    "come and go together, and what helps one of them is worth another try for all. A pod without a PodGroup is a",
    "gang of one.",
    "",
    "- **Active**: to be tried next, in the order of the QueueSort plugin.",
    "- **Backoff**: worth another try, but not yet: 1 s after the first refusal, doubling to 10 s. Failures that",
    "  were nobody's refusal (a plugin that broke, a binding that failed) count apart, and are forgotten with the next",
    "  refusal. As in kube-scheduler, time is cut into whole seconds, so that it may take up to a second longer. When",
    "  nobody is active, whoever would come out of backoff next is taken early; after an error nobody is.",
    "- **Unschedulable**: refused, and nothing has happened since that may help. After five minutes there it is tried",
    "  again anyway.",
    "- **Gated**: PreEnqueue refuses all of its pods. It costs nothing until something happens that may help, in the",
    "  eyes of the plugin that refused.",
    "",
    "An event (a node that was added, a bound pod that was deleted, a label that changed) brings back only those of",
    "whose refusing plugins one says that it may help: each plugin registers [events](plugins.md), and may look closer",
    "with a hint. Where a plugin registers nothing, or nobody knows it, every event brings back whom it refused.",
    "Events that come in while a gang is in its cycle are kept, and asked about when it comes back refused: none is",
    "missed. A member that joins a gang, and another spec of its own PodGroup, always bring it back.",
    "",
    "How many pods went where, and because of which event, is counted as in `scheduler_queue_incoming_pods_total`, and",
    "how many are where as in `scheduler_pending_pods`.",
    "",
)

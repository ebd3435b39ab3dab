"""The scheduler as a simulator drives it: it follows a cluster event by event and decides on request."""

from collections.abc import Callable, Sequence
from typing import Protocol

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.decision import Decision
from batchsched.api.snapshot import HeldGang, Snapshot


class Scheduler(Protocol):
    """A scheduler that follows one cluster, from a snapshot on.

    For a change without a method here, such as a new queue, the caller makes a new scheduler.
    """

    def add_group(self, group: PodGroup) -> None:
        """Add or update a PodGroup."""
        ...

    def remove_group(self, key: str) -> None:
        """Remove the PodGroup `namespace/name`."""
        ...

    def add_pods(self, pods: Sequence[Pod]) -> None:
        """Add pods, bound or pending, in the order of their creation."""
        ...

    def bind_pods(self, pods: Sequence[Pod]) -> None:
        """Replace pending pods by their bound versions."""
        ...

    def remove_pods(self, pods: Sequence[Pod]) -> None:
        """Remove pods that were deleted or have finished."""
        ...

    def hold(self, held: tuple[HeldGang, ...]) -> None:
        """Set the gangs that wait at Permit. Gangs that are not in the list no longer wait."""
        ...

    def decide(self, now: float, seed: int) -> Decision:
        """Decide the next session. The caller reports the pods that it binds with `bind_pods`.

        Args:
          now: seconds since 1970-01-01 UTC.
          seed: the seed of all random choices.
        """
        ...


class NodeScheduler(Scheduler, Protocol):
    """A scheduler that also follows nodes."""

    def lay_out(self, nodes: Sequence[Node]) -> None:
        """Replace all nodes, in the order of a new snapshot.

        They must not offer a resource that no node offered and no pod requested when the scheduler was made.
        """
        ...


SchedulerFactory = Callable[[Snapshot], Scheduler]
"""Returns a scheduler that follows a cluster from a snapshot on."""

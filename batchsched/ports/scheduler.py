"""What a simulator asks of a scheduler: to follow a cluster event by event, and to decide when it is told to."""

from collections.abc import Callable, Sequence
from typing import Protocol

from batchsched.model.decision import Decision
from batchsched.model.pod import Pod
from batchsched.model.podgroup import PodGroup
from batchsched.model.snapshot import HeldGang, Snapshot


class Scheduler(Protocol):
    """A scheduler that follows one cluster. It was made from a snapshot and is told everything that changes since.

    Nodes are the exception: when one comes or goes, whoever drives the scheduler makes a new one.
    """

    def add_group(self, group: PodGroup) -> None:
        """Take in a PodGroup, or a new version of it."""
        ...

    def remove_group(self, key: str) -> None:
        """Forget the PodGroup `namespace/name`."""
        ...

    def add_pods(self, pods: Sequence[Pod]) -> None:
        """Take in pods, bound or waiting, in the order in which they were made."""
        ...

    def bind_pods(self, pods: Sequence[Pod]) -> None:
        """Take in the bound versions of pods that waited."""
        ...

    def remove_pods(self, pods: Sequence[Pod]) -> None:
        """Forget pods that are gone or have finished."""
        ...

    def hold(self, held: tuple[HeldGang, ...]) -> None:
        """Take in which gangs wait at Permit from now on; those that are left out do so no more."""
        ...

    def decide(self, now: float, seed: int) -> Decision:
        """Decide the next session; nothing is bound until `bind_pods` says so.

        Args:
          now: seconds since 1970.
          seed: of everything that is drawn.
        """
        ...


SchedulerFactory = Callable[[Snapshot], Scheduler]
"""Makes a scheduler that follows a cluster from a snapshot on."""

"""What a simulator asks of a scheduler: to follow a cluster event by event, and to decide when it is told to."""

from collections.abc import Callable, Sequence
from typing import Protocol

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.decision import Decision
from batchsched.api.snapshot import HeldGang, Snapshot


class Scheduler(Protocol):
    """A scheduler that follows one cluster. It was made from a snapshot and is told what changes since.

    Where it cannot be told, as of a new queue, whoever drives it makes a new one.
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


class NodeScheduler(Scheduler, Protocol):
    """A scheduler that follows nodes as well."""

    def lay_out(self, nodes: Sequence[Node]) -> None:
        """Take in the nodes as they are now, in the order in which a fresh snapshot has them.

        Nothing is offered that neither a node offered nor a pod asked for when the scheduler was made.
        """
        ...


SchedulerFactory = Callable[[Snapshot], Scheduler]
"""Makes a scheduler that follows a cluster from a snapshot on."""

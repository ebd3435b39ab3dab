"""What a simulator or a live loop asks of a scheduler: to follow a cluster by changes, and to decide on demand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.decision import Decision
from batchsched.api.snapshot import HeldGang, Snapshot


@dataclass(frozen=True, slots=True)
class ClusterChanges:
    """What changed in a cluster since a scheduler was made or heard of it last.

    Args:
      nodes: all nodes as they are now, in the order of a fresh Snapshot; None if no node changed. No node may offer
        a resource that no node offered and no pod requested when the scheduler was made.
      pod_groups: PodGroups that are new or changed.
      removed_pods: pods that were deleted or finished, each in the version that the scheduler knows.
      bound_pods: bound versions of pods that were pending.
      added_pods: new pods, pending or bound. A pod that changed is both removed and added.
      removed_pod_groups: `namespace/name` of deleted PodGroups.
    """

    nodes: Sequence[Node] | None = None
    pod_groups: Sequence[PodGroup] = ()
    removed_pods: Sequence[Pod] = ()
    bound_pods: Sequence[Pod] = ()
    added_pods: Sequence[Pod] = ()
    removed_pod_groups: Sequence[str] = ()


class Scheduler(Protocol):
    """A scheduler that follows one cluster from a Snapshot on.

    Other objects, such as queues, are read from that Snapshot only: if one of them changes, make a new scheduler.
    """

    def apply(self, changes: ClusterChanges) -> None:
        """Take in what changed; between two sessions only."""
        ...

    def hold(self, held: tuple[HeldGang, ...]) -> None:
        """Replace the gangs that wait at Permit."""
        ...

    def decide(self, now: float, seed: int) -> Decision:
        """Decide the next session; nothing is bound until `apply` reports it.

        Args:
          now: seconds since 1970.
          seed: seed of all random draws.
        """
        ...


SchedulerFactory = Callable[[Snapshot], Scheduler]
"""Makes a scheduler that follows a cluster from a Snapshot on."""

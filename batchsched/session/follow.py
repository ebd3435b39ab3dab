"""The scheduler as a simulator knows it: `Sessions` behind the port."""

from collections.abc import Sequence, Set

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.decision import Decision
from batchsched.api.snapshot import HeldGang, Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.ports.telemetry import Telemetry
from batchsched.queues.usage_history import Usage, UsageHistory
from batchsched.session.decide import Sessions


class Follower:
    """Follows one cluster and decides sessions over it; implements `ports.scheduler.Scheduler`.

    Args:
      snapshot: the cluster as it stands.
      profile: how to schedule.
      pipeline: the profile's plugins, where they are made already.
      past: what queues used until now, None for what the snapshot says; whoever follows on from another takes its own.
      brief: leave out what says only that a gang has to wait, refusals and the reservation of a head behind which
        nobody could start: a simulator asks thousands of times.

    Raises:
      InvalidInput: as for `decide`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        profile: Profile,
        pipeline: Pipeline | None = None,
        *,
        past: UsageHistory | None = None,
        brief: bool = True,
    ) -> None:
        self._sessions = Sessions(snapshot, profile, pipeline, past=past)
        self._brief = brief
        self._tables = self._sessions.tables

    def lay_out(self, nodes: Sequence[Node]) -> None:
        """Take in the nodes as they are now."""
        self._sessions.lay_out(nodes)

    def add_group(self, group: PodGroup) -> None:
        """Take in a PodGroup, or a new version of it."""
        self._tables.add_group(group)

    def remove_group(self, key: str) -> None:
        """Forget the PodGroup `namespace/name`."""
        self._tables.remove_group(key)

    def add_pods(self, pods: Sequence[Pod]) -> None:
        """Take in pods, bound or waiting."""
        for pod in pods:
            self._tables.add_pod(pod)

    def bind_pods(self, pods: Sequence[Pod]) -> None:
        """Take in the bound versions of pods that waited."""
        for pod in pods:
            self._tables.bind_pod(pod)

    def remove_pods(self, pods: Sequence[Pod]) -> None:
        """Forget pods that are gone or have finished."""
        for pod in pods:
            self._tables.remove_pod(pod)

    def hold(self, held: tuple[HeldGang, ...]) -> None:
        """Take in which gangs wait at Permit."""
        self._sessions.held = held

    def decide(
        self, now: float, seed: int, among: Set[str] | None = None, telemetry: Telemetry | None = None
    ) -> Decision:
        """Decide the next session; gangs that are not `among` rest."""
        return self._sessions.decide(now, seed, telemetry=telemetry, brief=self._brief, among=among)

    def usage(self, now: float) -> Usage:
        """Return what queues used lately, decayed up to now; nothing while no policy asks for it."""
        return self._sessions.usage(now)

    @property
    def table(self) -> NodeTable:
        """The nodes as the last session found them."""
        return self._tables.node_table

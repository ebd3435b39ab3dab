"""Kept room: what pods hold by nomination, against whoever comes at their tier or below.

Source: kube-scheduler's filters count nominated pods of equal or higher priority as if they were there. The gangs of
higher tiers are placed before anything is kept, so that room goes to whom it would go without the nomination.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from types import TracebackType
from typing import Self

from batchsched.api.core.pod import Pod
from batchsched.framework.cycle_state import CycleState
from batchsched.session.placement.statement import GangPlacement, PlacedPod
from batchsched.session.tables.gang import PendingGang
from batchsched.session.tables.session_tables import SessionTables


class NominatedCapacity:
    """Nominated pods on their nodes, as long as one is inside; the table is then as it was.

    Args:
      tables: the tables; held gangs have their places on them already.
      resting: identities of gangs that take no part in the session: what they hold is kept from all.
    """

    def __init__(self, tables: SessionTables, resting: Set[str]) -> None:
        self._tables = tables
        self._resting = resting
        self._nominated: dict[str, list[tuple[Pod, int]]] = {}
        named = [
            (identity, key, pod)
            for identity, members in tables.nominated.items()
            for key, pod in members.pending.items()
            if pod.status.nominated_node_name
        ]
        for identity, key, pod in sorted(named, key=lambda one: one[:2]):
            node = tables.node_table.index.get(pod.status.nominated_node_name)
            if node is not None and not pod.terminating and key not in tables.node_table.pods:
                self._nominated.setdefault(identity, []).append((pod, node))
        self._on: dict[str, list[tuple[Pod, int]]] = {}

    def __enter__(self) -> Self:
        """Keep what those hold that take no part."""
        for identity in self._nominated.keys() & self._resting:
            self._put(identity)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep nothing any more."""
        for identity in list(self._on):
            self._lift(identity)

    @property
    def standing(self) -> list[tuple[Pod, int]]:
        """What is kept for gangs that take no part."""
        return [one for identity in sorted(self._on.keys() & self._resting) for one in self._on[identity]]

    @property
    def expected(self) -> list[tuple[Pod, int]]:
        """What is nominated, and not on its nodes."""
        return [
            one
            for identity in sorted(self._nominated.keys() - self._on.keys())
            for one in self._nominated[identity]
        ]

    def holds(self, gang: PendingGang) -> bool:
        """Whether pods of a gang are nominated."""
        return gang.members.identity in self._nominated

    def parts(self, gangs: Sequence[PendingGang]) -> Iterator[list[PendingGang]]:
        """Yield gangs, sorted by tier and whoever holds something first in it, in parts.

        A part ends behind those of a tier that hold something: what they hold is kept from their own tier on.
        """
        part: list[PendingGang] = []
        for at, gang in enumerate(gangs):
            part.append(gang)
            following = gangs[at + 1] if at + 1 < len(gangs) else None
            if self.holds(gang) and not (
                following is not None and following.tier == gang.tier and self.holds(following)
            ):
                yield part
                part = []
        if part:
            yield part

    def keep(self, gangs: Iterable[PendingGang], walked: Iterable[GangPlacement]) -> list[GangPlacement]:
        """Keep from now on what some gangs hold, unless they were placed; returns what counts against their queues."""
        placed = {one.gang.members.identity for one in walked}
        counted = []
        for gang in gangs:
            identity = gang.members.identity
            if identity in self._nominated and identity not in placed:
                self._put(identity)
                counted.append(self._as_walked(gang))
        return counted

    def release(self) -> None:
        """Let go of what is kept for gangs that take part: they are looked at once more."""
        for identity in list(self._on):
            if identity not in self._resting:
                self._lift(identity)

    def _as_walked(self, gang: PendingGang) -> GangPlacement:
        nodes = {pod.key: node for pod, node in self._on[gang.members.identity]}
        placed = [
            PlacedPod(pod, nodes[pod.key], part.pod_class, CycleState())
            for part in gang.parts
            for pod in part.pods
            if pod.key in nodes
        ]
        return GangPlacement(gang, placed)

    def _put(self, identity: str) -> None:
        self._on[identity] = self._nominated[identity]
        for pod, node in self._on[identity]:
            self._tables.node_table.add([(pod, node)], *self._tables.request_vectors(pod))

    def _lift(self, identity: str) -> None:
        for pod, _ in reversed(self._on.pop(identity)):
            self._tables.node_table.remove([pod])

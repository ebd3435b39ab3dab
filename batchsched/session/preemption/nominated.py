"""Capacity for nominated pods, which is kept from other gangs of the same tier and of lower tiers.

Source: kube-scheduler's filters count nominated pods of equal or higher priority as if they were bound. Here, gangs
of higher tiers are placed before the nominated pods are added to the node table, with the same result.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property
from types import TracebackType
from typing import Self

from batchsched.api.core.pod import Pod
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import IntArray
from batchsched.session.joint.formulation import FeasibleNodesByPodClass
from batchsched.session.preemption.leaving_claims import SoonReleasedClaims
from batchsched.session.statement import GangPlacement, PlacedPod
from batchsched.session.tables.gang import GangState, PendingGang
from batchsched.session.tables.session_tables import SessionTables


class NominatedPods:
    """A context manager that keeps the nominated pods of a session in the node table within its `with` block.

    A nomination for a node that the pod could not use even without other pods keeps no capacity.

    Args:
      tables: the tables; the pods of gangs that wait at Permit are on their nodes already.
      resting: identities of gangs that take no part in the session: their room is kept from all gangs.
    """

    def __init__(self, tables: SessionTables, resting: Set[str]) -> None:
        self._tables = tables
        self._resting = resting
        self._nominated: dict[str, list[tuple[Pod, int]]] = {}
        """By identity of the gang, its nominated pods and their node indexes; complete after the constructor."""
        feasible_nodes = FeasibleNodesByPodClass(tables, scores=False)
        for identity, members in sorted(tables.nominated.items()):
            nominees = [
                (pod, node)
                for key, pod in sorted(members.pending.items())
                # A pod that waits at Permit is on a node already: to add it again would count it twice.
                if pod.status.nominated_node_name
                and not pod.terminating
                and key not in tables.node_table.pod_table
                and (node := tables.node_table.index.get(pod.status.nominated_node_name)) is not None
            ]
            usable = list(self._iterate_usable(members, nominees, feasible_nodes))
            if usable:
                self._nominated[identity] = usable
        self._in_table: dict[str, list[tuple[Pod, int]]] = {}
        """The entries of `_nominated` that are in the node table now: exactly these have to be removed."""

    def _iterate_usable(
        self,
        members: GangState,
        nominees: Sequence[tuple[Pod, int]],
        feasible_nodes: FeasibleNodesByPodClass,
    ) -> Iterator[tuple[Pod, int]]:
        """Yield the nominated pods of a gang, each with its node, without those that can never use this node."""
        if not nominees:
            return
        parts = self._tables.pending_gang(members).parts
        pod_classes = {pod.key: part.pod_class for part in parts for pod in part.pods}
        for pod, node in nominees:
            pod_class = pod_classes.get(pod.key)
            if pod_class is None or self._may_use(pod_class, node, feasible_nodes):
                yield pod, node

    def _may_use(self, pod_class: PodClass, node: int, feasible_nodes: FeasibleNodesByPodClass) -> bool:
        """Return whether a node that other pods have left could accept a pod of a class."""
        answer = feasible_nodes.feasible_nodes_of(pod_class)
        if answer.failure:
            return True  # A plugin that fails in this session may accept the node in the next one.
        fits = pod_class.requests <= self._offered_capacity[node]
        return bool(answer.lasting[node] and fits.all())

    @cached_property
    def _offered_capacity(self) -> IntArray:
        """The amounts [N, R] that nodes offer; unbounded for resources that are not counted on nodes."""
        return self._tables.offered_capacity()

    def __enter__(self) -> Self:
        """Add to the node table the nominated pods of gangs that take no part in the session."""
        for identity in self._nominated.keys() & self._resting:
            self._add(identity)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove all nominated pods from the node table, also after an exception: the table outlives the session."""
        for identity in list(self._in_table):
            self._remove(identity)

    @property
    def nominated_pods_of_gangs_outside_session(self) -> list[tuple[Pod, int]]:
        """The nominated pods of gangs that do not take part in the session, with their node indexes.

        Only pods in the node table are listed.
        """
        return [
            nominee
            for identity in sorted(self._in_table.keys() & self._resting)
            for nominee in self._in_table[identity]
        ]

    @property
    def nominated_pods_outside_node_table(self) -> list[tuple[Pod, int]]:
        """The nominated pods that the node table does not contain, with their node indexes."""
        return [
            nominee
            for identity in sorted(self._nominated.keys() - self._in_table.keys())
            for nominee in self._nominated[identity]
        ]

    @property
    def gang_identities(self) -> Set[str]:
        """The identities of the gangs with nominated pods."""
        return self._nominated.keys()

    def has_nominated_pods(self, gang: PendingGang) -> bool:
        """Return True if a gang has nominated pods."""
        return gang.members.identity in self._nominated

    def split_after_nominated_gangs(self, gangs: Sequence[PendingGang]) -> Iterator[list[PendingGang]]:
        """Yield the gangs in batches; in each tier, a new batch starts after the gangs with nominated pods.

        After each batch, the caller can keep the nominated nodes from all gangs that follow: the other gangs of the
        tier, and lower tiers.

        Args:
          gangs: sorted by tier, and in each tier the gangs with nominated pods first.
        """
        part: list[PendingGang] = []
        for position, gang in enumerate(gangs):
            part.append(gang)
            following = gangs[position + 1] if position + 1 < len(gangs) else None
            if self.has_nominated_pods(gang) and not (
                following is not None
                and following.tier_sort_key == gang.tier_sort_key
                and self.has_nominated_pods(following)
            ):
                yield part
                part = []
        if part:
            yield part

    def add_unplaced_pods_to_node_table(
        self, gangs: Iterable[PendingGang], placements: Iterable[GangPlacement]
    ) -> list[GangPlacement]:
        """Add to the node table the nominated pods of gangs that the session has not placed.

        Args:
          gangs: gangs that have had their turn.
          placements: the session's placements so far.

        Returns: the added pods as placements, for the caller to count against their queues.
        """
        placed = {placement.gang.members.identity for placement in placements}
        added = []
        for gang in gangs:
            identity = gang.members.identity
            if identity in self._nominated and identity not in placed:
                self._add(identity)
                added.append(self._as_placement(gang))
        return added

    def remove_participating_pods_from_node_table(self) -> None:
        """Remove from the node table the nominated pods of gangs that take part in the session.

        Preemption can then place these gangs.
        """
        for identity in list(self._in_table):
            if identity not in self._resting:
                self._remove(identity)

    def _as_placement(self, gang: PendingGang) -> GangPlacement:
        nodes = {pod.key: node for pod, node in self._in_table[gang.members.identity]}
        placed = [
            PlacedPod(pod, nodes[pod.key], part.pod_class, CycleState())
            for part in gang.parts
            for pod in part.pods
            if pod.key in nodes
        ]
        return GangPlacement(gang, placed)

    def _add(self, identity: str) -> None:
        tables = self._tables
        self._in_table[identity] = self._nominated[identity]
        for pod, node in self._in_table[identity]:
            tables.node_table.add_pods([(pod, node)], *tables.requests_and_nonzero(pod))
        if not tables.pipeline.holds:
            return
        # Pods that are being deleted still hold what the nominated pods will get.
        with SoonReleasedClaims(tables):
            for pod, node in self._in_table[identity]:
                try:
                    tables.pipeline.hold_for_nominated_pod(pod, node, tables.node_table)
                except PluginError as error:
                    tables.record_plugin_failure(error)

    def _remove(self, identity: str) -> None:
        # The reverse of the order in `_add`, as every undo of the node table.
        tables = self._tables
        for pod, _ in reversed(self._in_table.pop(identity)):
            tables.node_table.remove_pods([pod])
            try:
                tables.pipeline.stop_holding_for_nominated_pod(pod, tables.node_table)
            except PluginError as error:
                tables.record_plugin_failure(error)

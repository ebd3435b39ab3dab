"""The walk: a proposed placement goes pod by pod through Filter, Reserve and Permit.

The walk is a statement: whatever it did to the table and to the plugins is undone, in reverse order, unless it is
kept. Gangs are kept or undone one by one; a gang is never kept below its minimum.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from types import TracebackType
from typing import Final, Self

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.gang_phase import GangPhase, PhaseChange, after
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.gang_counts import WaitingPod
from batchsched.framework.interface import ReservePlugin
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import SUCCESS, Code, IntArray, Status
from batchsched.session.tables.gang import GangPart, PendingGang
from batchsched.session.tables.session_tables import SessionTables


@dataclass(frozen=True, slots=True, eq=False)
class PlannedPods:
    """Where a part of a gang is to go: counts[i] pods on nodes[i], in order."""

    part: GangPart
    nodes: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(slots=True)
class PlacedPod:
    """A pod that passed Reserve."""

    pod: Pod
    node: int
    pod_class: PodClass
    state: CycleState


_Wanted = list[tuple[Pod, int]]
"""Pods, and where they are to go."""
_CLASS: Final[Callable[[PlacedPod], PodClass]] = attrgetter("pod_class")


@dataclass(slots=True)
class GangPlacement:
    """What became of one gang: its pods and their nodes, who holds it, or who refused it.

    Args:
      gang: the gang.
      placed: pods with a place, in the order of Reserve; none when it was refused.
      refusal: Success, or the answer that rolled the gang back.
      failure: a plugin broke.
      final: Reserve or Permit refused a member; no other placement is to be tried.
      held_by: the plugin that makes it wait, and until when; "" when it may be bound.
      state: where the walk has brought it.
    """

    gang: PendingGang
    placed: list[PlacedPod] = field(default_factory=list)
    refusal: Status = SUCCESS
    final: bool = False
    failure: bool = False
    held_by: str = ""
    until: float = 0.0
    state: GangPhase = GangPhase.PENDING

    def total(self, resources: int) -> IntArray:
        """[R] Return what its pods with a place ask for together."""
        total = np.zeros(resources, np.int64)
        for pod_class, count in Counter(map(_CLASS, self.placed)).items():
            total += pod_class.requests * count
        return total


class Statement:
    """One session's statement over the frame.

    Used as a context manager: on leaving, gangs that were not kept by `keep()` are rolled back, and the table is as
    it was before; what was kept lives on in the decision.
    """

    def __init__(self, tables: SessionTables, now: float) -> None:
        self._tables = tables
        self._now = now
        self._done: list[GangPlacement] = []
        self._kept = 0
        self._broken: dict[str, GangPlacement] = {}
        self._keepers: dict[PodClass, tuple[ReservePlugin, ...]] = {}
        self._together = {*map(id, tables.pipeline.permits)} <= {*map(id, tables.pipeline.reserves)}
        """Nobody is at Permit alone: once Reserve keeps nothing, nobody does."""
        self._by_gang = tables.pipeline.permit_is_per_gang
        self.rejected: list[GangPlacement] = []
        """Gangs that waited, and of which a plugin rejected a pod since."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the table as it was found: undo what was not kept, then lift what was kept off the nodes."""
        self.roll_back_to(self._kept)
        tables = self._tables
        tables.node_table.remove([placed.pod for walked in self._done for placed in walked.placed])
        for walked in self._done:
            identity = walked.gang.members.identity
            tables.counts.forget(identity)
            tables.node_table.waiting.drop(identity)

    def checkpoint(self) -> int:
        """Where the walk stands now."""
        return len(self._done)

    def roll_back_to(self, mark: int) -> None:
        """Roll back every gang since the mark, the last one first."""
        for walked in reversed(self._done[mark:]):
            self._roll_back(walked)
        del self._done[mark:]

    def commit(self) -> tuple[GangPlacement, ...]:
        """Keep every gang that was walked so far, and return them: their plugins stay reserved."""
        self._kept = len(self._done)
        return tuple(self._done)

    def place_gangs(self, wanted: Iterable[tuple[PendingGang, Sequence[PlannedPods]]]) -> list[GangPlacement]:
        """Walk gang after gang; where pods alone of one class follow each other, the filters are asked once."""
        found: list[GangPlacement] = []
        for pod_class, run in groupby(wanted, key=_class_alone):
            some, state = list(run), None
            if pod_class is not None and len(some) > 1:
                state = self._all_together(pod_class, [share.nodes[0] for _, (share,) in some])
            found += [self.place_gang(gang, shares, state) for gang, shares in some]
        return found

    def _all_together(self, pod_class: PodClass, nodes: Sequence[int]) -> CycleState | None:
        """Return the state of a class whose pods may all go where they are wanted, None when each is to be asked."""
        try:
            state, status = self._prepared(pod_class)
            return state if status.ok and self._admitted(pod_class, nodes, state) else None
        except PluginError:
            return None  # it breaks again for whom it does

    def place_gang(
        self, gang: PendingGang, shares: Sequence[PlannedPods], state: CycleState | None = None
    ) -> GangPlacement:
        """Walk one gang. When a member is refused and the minimum is not reached, nothing of it stays.

        A gang over which a plugin broke is refused for the session: one that hung is not there any more to break again.

        Args:
          gang: the gang.
          shares: where it is to go.
          state: of its one share, which the filters were asked about already; None: they are to be asked.
        """
        broken = self._broken.get(gang.members.identity)
        if broken is not None:
            return broken
        walked = GangPlacement(gang)
        try:
            if state is not None:
                self.reserve_pods(walked, shares[0], state)
            else:
                walked.refusal = self._place_in_some_order(walked, shares)
        except PluginError as error:
            walked.refusal = Status(Code.UNSCHEDULABLE, (str(error),), error.plugin)
            walked.failure = walked.final = True
            self._broken[gang.members.identity] = walked
            self._roll_back(walked)
            return walked
        self.finish_gang(walked)
        return walked

    def reserve_pods(self, walked: GangPlacement, share: PlannedPods, state: CycleState) -> None:
        """Reserve and permit pods of a gang that were filtered already; `close` ends the gang.

        Raises:
          PluginError: a plugin broke.
        """
        wanted = list(zip(share.part.pods, _spread_out(share), strict=True))
        status = self._reserve(walked, wanted, share.part.pod_class, state)
        if not status.ok:
            walked.refusal = status

    def finish_gang(self, walked: GangPlacement) -> bool:
        """End a gang: it stands when its minimum has a place, otherwise nothing of it stays."""
        rejection = self._tables.node_table.waiting.rejection(walked.gang.members.identity)
        if not rejection.ok:
            walked.refusal, walked.final = rejection, True
        elif walked.placed and self._complete(walked):
            self._settle(walked)
            self._done.append(walked)
            return True
        self._roll_back(walked)
        return False

    def _settle(self, walked: GangPlacement) -> None:
        """Say who still holds the gang, if anyone does."""
        waiting = self._tables.node_table.waiting
        key = walked.gang.members.identity
        holders = [(until, plugin) for one in waiting.of(key) for plugin, until in one.until.items()]
        if holders:
            walked.until, walked.held_by = min(holders)
        walked.state = after(walked.state, PhaseChange.HOLD if holders else PhaseChange.ALLOW)
        if not holders:
            waiting.drop(key)

    def apply_permit_verdicts(self) -> None:
        """Do what plugins have said since of gangs that wait: let them go, or send them back."""
        waiting = self._tables.node_table.waiting
        for walked in [one for one in self._done if one.held_by]:
            key = walked.gang.members.identity
            rejection = waiting.rejection(key)
            if not rejection.ok:
                walked.refusal, walked.final, walked.held_by = rejection, True, ""
                self._done = [one for one in self._done if one is not walked]
                self._roll_back(walked)
                self.rejected.append(walked)
            elif waiting.released(key):
                walked.state, walked.held_by = after(walked.state, PhaseChange.ALLOW), ""
                waiting.drop(key)

    def _complete(self, walked: GangPlacement) -> bool:
        return self._tables.counts.of_members(walked.gang.members).complete

    def _place_in_some_order(self, walked: GangPlacement, shares: Sequence[PlannedPods]) -> Status:
        """Place a gang; where a share gets stuck behind the others, begin anew with that one first, once for each.

        A pod that must not see many of the others yet (its spread counts them) finds its place before them.
        """
        order, refusal = list(shares), SUCCESS
        for _ in shares:
            refusal, stuck = self._place(walked, order)
            if stuck is None or stuck is order[0] or walked.final or self._complete(walked):
                break
            self._roll_back(walked)
            if walked.failure:
                return walked.refusal
            order = [stuck, *(share for share in order if share is not stuck)]
        return refusal

    def _place(
        self, walked: GangPlacement, shares: Sequence[PlannedPods]
    ) -> tuple[Status, PlannedPods | None]:
        """Place share after share; one that gets stuck is tried again once the others moved on, and told in the end."""
        left = deque(
            (share, list(zip(share.part.pods, _spread_out(share), strict=False))) for share in shares
        )
        stuck, refusal = 0, SUCCESS
        while left and stuck < len(left):
            share, wanted = left.popleft()
            refusal, rest = self._place_share(walked, share, wanted)
            if not rest:
                stuck = 0
                continue
            left.append((share, rest))
            if walked.final:
                break
            stuck = stuck + 1 if len(rest) == len(wanted) else 0
        return (refusal, left[-1][0]) if left else (SUCCESS, None)

    def _place_share(
        self, walked: GangPlacement, share: PlannedPods, wanted: _Wanted
    ) -> tuple[Status, _Wanted]:
        """Place as many of the wanted pods as the pipeline takes; returns who refused, and what is left."""
        pod_class = share.part.pod_class
        state, status = self._prepared(pod_class)
        if not status.ok:
            return status, wanted
        if self._admitted(pod_class, [node for _, node in wanted], state):
            before = len(walked.placed)
            status = self._reserve(walked, wanted, pod_class, state)
            return status, wanted[len(walked.placed) - before :]
        return self._one_by_one(walked, pod_class, wanted, state)

    def _one_by_one(
        self, walked: GangPlacement, pod_class: PodClass, wanted: _Wanted, state: CycleState
    ) -> tuple[Status, _Wanted]:
        """Place pod after pod, each on the first of the nodes left that still takes it."""
        tables = self._tables
        nodes = deque(node for _, node in wanted)
        pods = [pod for pod, _ in wanted]
        at, refused, status = 0, 0, SUCCESS
        while nodes and refused < len(nodes):
            node = nodes.popleft()
            seen = pod_class
            if tables.pipeline.reads_all:  # some plugin may look at the pod itself: nothing is shared
                seen = pod_class.showing(pods[at])
                state, status = tables.pipeline.prepare(seen, tables.node_table)
            if status.ok:
                status = tables.pipeline.refusal_at(seen, node, tables.node_table, state)
            if not status.ok:
                nodes.append(node)
                refused += 1
                status = status if refused == len(nodes) else SUCCESS
                continue
            status = self._reserve(walked, [(pods[at], node)], pod_class, state)
            if not status.ok:
                nodes.appendleft(node)
                break
            tables.pipeline.landed(seen, pods[at], node, tables.node_table, state)
            at, refused = at + 1, 0
        return status, list(zip(pods[at:], nodes, strict=True))

    def _prepared(self, pod_class: PodClass) -> tuple[CycleState, Status]:
        tables = self._tables
        return tables.pipeline.prepare(pod_class, tables.node_table, tables.result_cache.of(pod_class))

    def _admitted(self, pod_class: PodClass, wanted: Sequence[int], state: CycleState) -> bool:
        """Tell whether pods of a class may be on all these nodes at once, one pod each time a node is named."""
        counted = sorted(Counter(wanted).items())  # a few nodes: faster than by arrays
        nodes, counts = np.array(counted, np.int32).T
        return bool(self._tables.pipeline.admits(pod_class, self._tables.node_table, nodes, counts, state))

    def _reserve(
        self, walked: GangPlacement, wanted: _Wanted, pod_class: PodClass, state: CycleState
    ) -> Status:
        """Reserve, assume and permit pods of a class, until one is refused: it and those behind it have no place.

        Each goes all the way before the next, save where nobody on it keeps anything: then all are assumed first.
        """
        tables, keeping = self._tables, self._keeping(pod_class)
        for some in [wanted] if self._together and not keeping else [[one] for one in wanted]:
            status = (
                tables.pipeline.reserve(*some[0], tables.node_table, state, keeping) if keeping else SUCCESS
            )
            if status.ok:
                self._assume(walked, some, pod_class, state)
                status = self._permit(walked, len(some))
            if not status.ok:
                walked.final = True
                return status
        return SUCCESS

    def _assume(self, walked: GangPlacement, wanted: _Wanted, pod_class: PodClass, state: CycleState) -> None:
        """Let pods that passed Reserve count on their nodes and in their gang."""
        tables, count = self._tables, self._tables.counts.of_members(walked.gang.members)
        for _, some in groupby(wanted, key=lambda one: id(one[0].spec)):
            alike = list(some)
            tables.node_table.add(alike, *tables.request_vectors(alike[0][0]))
        for pod, node in wanted:
            count.count(pod, 1)
            walked.placed.append(PlacedPod(pod, node, pod_class, state))
        walked.state = after(walked.state, PhaseChange.RESERVE)

    def _permit(self, walked: GangPlacement, count: int) -> Status:
        """Permit the last pods that were assumed; the first that is refused is taken back, and those behind it."""
        tables, identity = self._tables, walked.gang.members.identity
        for at, one in enumerate(walked.placed[-count:]):
            if at == 0 or not self._by_gang:
                answers = tables.pipeline.permit(one.pod, one.node, tables.node_table, one.state)
            if answers and answers[0].status.code is not Code.WAIT:
                for _ in range(at, count):
                    self._take_back(walked.placed.pop())
                return answers[0].status
            if answers:
                until = {said.status.plugin: self._now + said.timeout_seconds for said in answers}
                tables.node_table.waiting.add(WaitingPod(one.pod, one.node, identity, until))
        return SUCCESS

    def _keeping(self, pod_class: PodClass) -> tuple[ReservePlugin, ...]:
        """Return the plugins that keep something for pods of a class; asked once."""
        if pod_class not in self._keepers:
            self._keepers[pod_class] = self._tables.pipeline.keeping(pod_class)
        return self._keepers[pod_class]

    def _take_back(self, placed: PlacedPod) -> None:
        """Unreserve one pod and take it off the table, whatever a plugin raises."""
        tables = self._tables
        try:
            tables.pipeline.unreserve(placed.pod, placed.node, tables.node_table, placed.state)
        finally:
            tables.node_table.remove([placed.pod])
            tables.counts.of(placed.pod).count(placed.pod, -1)

    def _roll_back(self, walked: GangPlacement) -> None:
        """Unreserve the gang's pods, the last one first, and take them off the table."""
        broken: PluginError | None = None
        if walked.state is not GangPhase.PENDING:
            walked.state = after(walked.state, PhaseChange.ROLL_BACK)
        while walked.placed:
            try:
                self._take_back(walked.placed.pop())
            except PluginError as error:
                broken = broken or error
        self._tables.node_table.waiting.drop(walked.gang.members.identity)
        if broken is not None and walked.refusal.ok:
            walked.refusal = Status(Code.UNSCHEDULABLE, (str(broken),), broken.plugin)
            walked.failure = True


def _class_alone(wanted: tuple[PendingGang, Sequence[PlannedPods]]) -> PodClass | None:
    """Return the class of a pod alone, None for a gang of several."""
    gang, shares = wanted
    return shares[0].part.pod_class if gang.members.alone and len(shares) == 1 else None


def _spread_out(share: PlannedPods) -> Iterator[int]:
    for node, count in zip(share.nodes, share.counts, strict=True):
        for _ in range(count):
            yield node

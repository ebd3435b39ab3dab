"""Turns: queues go one after the other, each with its next gang, and every turn counts as if it had been placed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import Final, NamedTuple, Self

import numpy as np

from batchsched.framework.status import BoolArray, IntArray
from batchsched.queues.entitlements import siblings_of
from batchsched.queues.gang_order.policy import FloatArray, GangColumns, Policy, order
from batchsched.queues.queue_table import Entitlements, QueueTable
from batchsched.queues.sharing.policy import FairnessPolicy
from batchsched.queues.sharing.sibling_queues import repeated
from batchsched.session.tables.gang import EntitlementClass, PendingGang

NO_CHILD: Final = -1
_MAX_TURNS_AHEAD: Final = 64
"""Turns of a row that are worked out together: few enough that little is in vain when a gang is cut."""
_FIRST_TURNS_AHEAD: Final = 4
"""As many are at first: most sessions in strict order ask for no more."""
_TURNS_AHEAD_GROWTH: Final = 4
"""So many times as many are the next time."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredQueues:
    """What queues have, what they are entitled to, and by whose rules.

    Args:
      shares: the tree; its usage is what runs as the session begins.
      entitled: what it entitles to.
      policies: [Q] that of a row divides among its children.
    """

    shares: QueueTable
    entitled: Entitlements
    policies: tuple[FairnessPolicy, ...]


class PolicyOrders:
    """The places of gangs by one policy or another: inside a queue its own order holds, where it states one.

    Args:
      columns: what policies know of G gangs.
      stranded: [G] half bound ones.
      default: the profile's policy.
      now: seconds since 1970.
    """

    def __init__(self, columns: GangColumns, stranded: BoolArray, default: Policy, now: float) -> None:
        self._columns = columns
        self._stranded = stranded
        self._default = default
        self._now = now
        self._places: dict[int, FloatArray] = {}

    @classmethod
    def of(cls, gangs: Sequence[PendingGang], default: Policy, now: float) -> Self:
        """Return the orders of gangs that stand in no line."""
        arrival = np.empty(len(gangs), np.int64)
        arrival[sorted(range(len(gangs)), key=lambda at: gangs[at].seniority)] = np.arange(len(gangs))
        columns = GangColumns(
            priority=np.array([gang.priority for gang in gangs], np.int64),
            created=np.array([gang.created for gang in gangs], np.float64),
            estimate=np.array([gang.estimate for gang in gangs], np.float64),
            size=np.array([gang.size for gang in gangs], np.float64),
            share=np.array([gang.share for gang in gangs], np.float64),
            arrival=arrival,
        )
        stranded = np.array([gang.members.partially_bound for gang in gangs], np.bool_)
        return cls(columns, stranded, default, now)

    def places(self, policy: Policy | None) -> FloatArray:
        """[G] the place of every gang by a policy, the profile's for None; half bound ones before all."""
        chosen = policy or self._default
        known = self._places.get(id(chosen))
        if known is None:
            known = self._places[id(chosen)] = self._made(chosen)
        return known

    def _made(self, policy: Policy) -> FloatArray:
        columns = self._columns
        numbers = np.arange(len(columns.priority))
        by_policy = np.empty(len(numbers))
        by_policy[order(policy, columns, self._now)] = numbers
        places = np.empty(len(numbers))
        places[np.lexsort((by_policy, -columns.priority, ~self._stranded))] = numbers
        return places


class _Turn(NamedTuple):
    """A turn of a row, as its subtree foresees it.

    Args:
      head: the place of the gang in the order of gangs.
      asked: [R] what it asks for at least.
      total: [R] what all its pods ask for.
      below: the child whose turn it is, NONE where the gang is the row's own.
      stage: 0 inside the guarantee, 1 inside the fair share, 2 beyond it: of this row.
      rank: of the row among its siblings, the smallest is next.
    """

    head: float
    asked: IntArray
    total: IntArray
    below: int
    stage: int = 0
    rank: tuple[float, ...] = ()


class FairShareOrder:
    """The tree while its queues take turns: usage grows as gangs are counted.

    Who is next among siblings depends on each one's own row only, and so do the turns inside a subtree: those of a row
    are foreseen many at once, as if it alone had turns. Only a gang of which surplus is cut makes that void on its way
    to the root.
    """

    def __init__(self, standing: MeasuredQueues, gangs: Sequence[PendingGang], orders: PolicyOrders) -> None:
        shares = standing.shares
        self._entitled = standing.entitled
        self._policies = standing.policies
        self._parent = shares.parent.tolist()
        self._spans = shares.spans().tolist()
        self._usage = shares.usage.copy()
        self._lines = _lines(shares, standing.policies, gangs, orders)
        self._turns: list[list[_Turn]] = [[] for _ in self._lines]
        """By row, its foreseen turns that were not taken yet, the next one first."""
        self._reached = self._usage.copy()
        """[Q, R] what rows use after all of these."""
        self._passed = [0] * len(self._lines)
        """How many of these the parent foresees as turns of its own."""
        self._at_once = [min(_FIRST_TURNS_AHEAD, _MAX_TURNS_AHEAD)] * len(self._lines)
        live = shares.with_usage(self._usage)
        self._siblings = {
            row: siblings_of(live, standing.entitled, row)
            for row, (begin, end) in enumerate(self._spans)
            if begin < end
        }
        self._strict = _strict(shares, standing.policies)
        self._ahead: dict[int, PendingGang] = {}
        self._heaps: list[list[tuple[tuple[float, ...], int]]] = [[] for _ in self._lines]
        """By row, the children that have somebody waiting, the next one first."""
        for row in reversed(range(1, len(shares))):
            self._join(row)

    def __iter__(self) -> "FairShareOrder":
        return self

    def __next__(self) -> PendingGang:
        """Take the next turn."""
        if not self._heaps[0]:
            raise StopIteration
        path = [self._heaps[0][0][1]]
        while (below := self._turns[path[-1]][0].below) != NO_CHILD:
            self._passed[below] -= 1
            path.append(below)
        path.reverse()
        row, turns = path[0], [self._turns[one].pop(0) for one in path]
        head, gang = self._lines[row].pop()
        gang = _standing_in(_what_for([turn.stage for turn in turns]), gang)
        if self._strict[row] >= 0:
            gang = self._in_line(self._strict[row], gang)
        gang, rest = self._cut(path, gang)
        self._usage[path] += turns[0].total if rest is None else total_requests(gang)
        if rest is not None:
            self._lines[row].append((head, rest))
            self._look_anew(path)
        self._move_on(path[-1])
        return gang

    def _look_anew(self, path: Sequence[int]) -> None:
        """Forget what was foreseen of rows: of a gang that was to have their turn surplus was cut."""
        before = NO_CHILD
        for row in path:
            void = {before, *(turn.below for turn in self._turns[row])} - {NO_CHILD}
            self._turns[row].clear()
            self._passed[row], self._reached[row] = 0, self._usage[row]
            self._at_once[row] = min(_FIRST_TURNS_AHEAD, _MAX_TURNS_AHEAD)
            self._heaps[row] = [one for one in self._heaps[row] if one[1] not in void]
            heapify(self._heaps[row])
            for child in void:
                self._passed[child] = 0
                self._join(child)
            before = row

    def _join(self, row: int) -> None:
        """Put a row where its next turn belongs among its siblings, if anybody waits there."""
        turn = self._next_of(row)
        if turn is not None:
            heappush(self._heaps[self._parent[row]], (turn.rank, row))

    def _move_on(self, row: int) -> None:
        """Put a row that had the turn where it belongs among its siblings, or take it out."""
        heap, turn = self._heaps[self._parent[row]], self._next_of(row)
        if turn is None:
            heappop(heap)
        else:
            heapreplace(heap, (turn.rank, row))

    def _next_of(self, row: int) -> "_Turn | None":
        """Return the next turn of a row that its parent did not foresee yet, None when nobody waits there."""
        turns, at = self._turns[row], self._passed[row]
        if at == len(turns):
            self._foresee(row)
        return turns[at] if at < len(turns) else None

    def _foresee(self, row: int) -> None:
        """Work out more turns of a row, each with those before it counted."""
        inner = self._spans[row][0] < self._spans[row][1]
        found = self._turns_below(row) if inner else self._turns_of_line(row)
        if not found:
            return
        self._at_once[row] = min(_MAX_TURNS_AHEAD, _TURNS_AHEAD_GROWTH * self._at_once[row])
        asked = np.array([turn.asked for turn in found])
        total = np.array([turn.total for turn in found])
        usage = self._reached[row] + total.cumsum(axis=0)
        self._reached[row] = usage[-1]
        ranks = self._ranks(row, [turn.head for turn in found], asked, usage - total)
        self._turns[row] += [_Turn(*turn[:4], *ranked) for turn, ranked in zip(found, ranks, strict=True)]

    def _turns_of_line(self, row: int) -> list[_Turn]:
        """Return the next gangs of a queue, as turns without a rank."""
        line = self._lines[row]
        end = len(line) - len(self._turns[row])
        some = line[max(0, end - self._at_once[row]) : end]
        return [
            _Turn(head, minimum_requests(gang), total_requests(gang), NO_CHILD)
            for head, gang in reversed(some)
        ]

    def _turns_below(self, row: int) -> list[_Turn]:
        """Return the next turns of a row's children, as turns of its own without a rank."""
        heap, found = self._heaps[row], list[_Turn]()
        while heap and len(found) < self._at_once[row]:
            child = heap[0][1]
            turn = self._turns[child][self._passed[child]]
            found.append(_Turn(turn.head, turn.asked, turn.total, child))
            self._passed[child] += 1
            self._move_on(child)
        return found

    def _ranks(
        self, row: int, heads: Sequence[float], asked: IntArray, before: IntArray
    ) -> list[tuple[int, tuple[float, ...]]]:
        """Tell what turns of a row would be like among its siblings.

        Args:
          row: whose turns.
          heads: G places of its next gangs.
          asked: [G, R] what these gangs ask for at least.
          before: [G, R] what the row uses before each.

        Returns: G stages, and ranks, the smallest of which is next.
        """
        parent = self._parent[row]
        guarantee, fair = self._entitled.guarantee[row].tolist(), self._entitled.fair[row].tolist()
        stage = [
            _stage(used, wanted, guarantee, fair)
            for used, wanted in zip(before.tolist(), asked.tolist(), strict=True)
        ]
        if self._policies[parent].strict:
            return [(one, (head,)) for one, head in zip(stage, heads, strict=True)]
        at = row - self._spans[parent][0]
        siblings = repeated(self._siblings[parent], at, before, np.array(heads))
        keys = self._policies[parent].key(siblings, asked).reshape(len(heads), -1).tolist()
        last = -int(siblings.priority[0])
        return [(one, (one, last, *key, head)) for one, key, head in zip(stage, keys, heads, strict=True)]

    def _in_line(self, row: int, gang: PendingGang) -> PendingGang:
        """Put a gang behind the one before it in a strict subtree: it starts after that, in no better share."""
        ahead = self._ahead.get(row)
        if ahead is not None:
            gang = replace(gang, behind=ahead.members.identity, entitled=max(gang.entitled, ahead.entitled))
        if gang.need:
            self._ahead[row] = gang
        return gang

    def _cut(self, path: Sequence[int], gang: PendingGang) -> tuple[PendingGang, PendingGang | None]:
        """Take surplus off a gang that is not inside the same share; it has a turn of its own."""
        if (
            gang.entitled is EntitlementClass.BORROWING
            or gang.size == max(1, gang.need)
            or len(gang.parts) > 1
        ):
            return gang, None
        group = gang.members.group
        if group is not None and group.spec.topology is not None and group.spec.topology.required:
            return gang, None  # one domain takes all of it, and is chosen for all of it
        (part,) = gang.parts
        requests = part.pod_class.requests
        amounts = (
            self._entitled.guarantee if gang.entitled is EntitlementClass.GUARANTEE else self._entitled.fair
        )[path]
        counts = requests > 0
        if gang.entitled is EntitlementClass.GUARANTEE:
            path_counts = (amounts > 0) & counts
        else:
            path_counts = np.broadcast_to(counts, amounts.shape)
        pods = np.where(path_counts, (amounts - self._usage[path]) // np.maximum(1, requests), gang.size)
        inside = np.where(path_counts.any(axis=1), pods.min(axis=1), 0)
        most = int(inside.max() if gang.entitled is EntitlementClass.GUARANTEE else inside.min())
        taken = min(gang.size, max(1, gang.need, most))
        if taken == gang.size:
            return gang, None
        first, others = part.pods[:taken], part.pods[taken:]
        rest = replace(gang, parts=(replace(part, pods=others),), need=0, needs=0 * gang.needs, follows=True)
        return replace(gang, parts=(replace(part, pods=first),)), rest


def _what_for(stages: Sequence[int]) -> EntitlementClass:
    """Tell in which share a gang stands: one guarantee on its way to the root is enough, or all fair shares."""
    if 0 in stages:
        return EntitlementClass.GUARANTEE
    return EntitlementClass.BORROWING if 2 in stages else EntitlementClass.FAIR


def _standing_in(share: EntitlementClass, gang: PendingGang) -> PendingGang:
    """Return a gang in a share; the same one as in the session before, where nothing has changed."""
    known = gang.members.cache.entitled
    if known is None or known[0] is not gang or known[1].entitled is not share:
        known = gang.members.cache.entitled = gang, replace(gang, entitled=share)
    return known[1]


def _stage(used: Sequence[int], asked: Sequence[int], guarantee: Sequence[int], fair: Sequence[int]) -> int:
    """0 where all that is wanted of guaranteed resources is inside the guarantee, 1 inside the fair share, else 2.

    A turn asks this of one gang at a time: of few numbers Python's own are compared faster than arrays.

    Args:
      used: [R] what is used before the gang has its place.
      asked: [R] what it asks for.
      guarantee: [R] the queue's.
      fair: [R] its fair share.
    """
    covered = [
        amount + more <= mine
        for amount, more, mine in zip(used, asked, guarantee, strict=True)
        if more > 0 and mine > 0
    ]
    if covered and all(covered):
        return 0
    beyond = (more > 0 and amount + more > mine for amount, more, mine in zip(used, asked, fair, strict=True))
    return 1 + any(beyond)


def _strict(shares: QueueTable, policies: Sequence[FairnessPolicy]) -> list[int]:
    """By row, the highest row above whose subtree is strict, -1 for none."""
    found = [-1] * len(shares)
    for row, parent in enumerate(shares.parent.tolist()):
        inherited = found[parent] if row else -1
        found[row] = inherited if inherited >= 0 else row if policies[row].strict else -1
    return found


def _lines(
    shares: QueueTable, policies: Sequence[FairnessPolicy], gangs: Sequence[PendingGang], orders: PolicyOrders
) -> list[list[tuple[float, PendingGang]]]:
    """By row, its own gangs with their places, the next one last."""
    lines: list[list[tuple[float, PendingGang]]] = [[] for _ in range(len(shares))]
    known: dict[str, tuple[list[tuple[float, PendingGang]], FloatArray]] = {}
    for at, gang in enumerate(gangs):
        mine = known.get(gang.queue)
        if mine is None:
            row = shares.home(gang.queue)
            mine = known[gang.queue] = lines[row], orders.places(policies[row].gangs)
        mine[0].append((mine[1].item(at), gang))
    for line in lines:
        line.sort(key=itemgetter(0), reverse=True)
    return lines


def minimum_requests(gang: PendingGang) -> IntArray:
    """[R] what a gang needs at least: its minimum, or one pod more where it has that."""
    return gang.needs if gang.need else gang.parts[0].pod_class.requests


def total_requests(gang: PendingGang) -> IntArray:
    """[R] what all the pods of a gang that wait ask for."""
    if len(gang.parts) == 1:
        (part,) = gang.parts
        count = len(part.pods)
        return gang.needs if count == gang.need else part.pod_class.requests * count
    total = np.zeros_like(gang.needs)
    for part in gang.parts:
        total = total + part.pod_class.requests * len(part.pods)
    return total

"""Fair-share order: sibling queues take turns, and each turn counts as if its gang had been placed.

`FairShareOrder` yields the gangs in this order, each with the entitlement class that it is in when its turn comes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from batchsched.framework.status import BoolArray, IntArray
from batchsched.queues.entitlements import build_sibling_queues
from batchsched.queues.external_policy import checked_policy_keys
from batchsched.queues.gang_order import FloatArray, GangColumns, GangOrderPolicy, gang_indexes_in_order
from batchsched.queues.queue_table import Entitlements, QueueTable
from batchsched.queues.sharing.policy import SharingPolicy
from batchsched.session.tables.gang import EntitlementClass, PendingGang

NO_CHILD: Final = -1
_MAX_TURNS_AHEAD: Final = 64
"""Maximum turns of a row that are precomputed together; more would be wasted when a gang is cut."""
_FIRST_TURNS_AHEAD: Final = 4
"""Turns that are precomputed first; most sessions in strict order read no more."""
_TURNS_AHEAD_GROWTH: Final = 4
"""Factor from one batch of precomputed turns to the next, up to the maximum."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueUsageAndEntitlements:
    """The usage, the entitlement and the sharing policy of each queue at the beginning of a session.

    Args:
      shares: the tree of queues as a table of Q rows, with the usage of running pods.
      entitled: guarantee and fair share of each row.
      policies: [Q] the policy of each row, which divides among its children.
    """

    shares: QueueTable
    entitled: Entitlements
    policies: tuple[SharingPolicy, ...]


class GangPositions:
    """The positions of gangs under each gang order policy (`GangOrderPolicy`) that a queue or the profile uses.

    Args:
      columns: attributes of the G gangs, the input of policies.
      stranded: [G] True for partially bound gangs, which go first.
      default: the policy of the profile.
      now: seconds since 1970.
      by_priority: compare priorities before the policy; see `orders_gangs_by_priority_first`.
    """

    def __init__(
        self,
        columns: GangColumns,
        stranded: BoolArray,
        default: GangOrderPolicy,
        now: float,
        *,
        by_priority: bool = True,
    ) -> None:
        self._columns = columns
        self._stranded = stranded
        self._default = default
        self._now = now
        self._by_priority = by_priority
        self._places: dict[int, FloatArray] = {}

    def positions_under_policy(self, policy: GangOrderPolicy | None) -> FloatArray:
        """Return each gang's position [G] in the order of `policy`; None means the policy of the profile.

        Partially bound gangs come first.
        """
        chosen_policy = policy or self._default
        positions = self._places.get(id(chosen_policy))
        if positions is None:
            positions = self._places[id(chosen_policy)] = self._compute_positions(chosen_policy)
        return positions

    def _compute_positions(self, policy: GangOrderPolicy) -> FloatArray:
        columns = self._columns
        numbers = np.arange(len(columns.priority))
        by_policy = np.empty(len(numbers))
        by_policy[gang_indexes_in_order(policy, columns, self._now)] = numbers
        places = np.empty(len(numbers))
        urgency = -columns.priority if self._by_priority else np.zeros_like(columns.priority)
        places[np.lexsort((by_policy, urgency, ~self._stranded))] = numbers
        return places

    def positions_in_queues(
        self, queues: Sequence[str], policies: Mapping[str, GangOrderPolicy | None]
    ) -> list[int]:
        """Return the position [G] of each gang among the pending gangs of its own queue, counted from 1.

        Args:
          queues: [G] the queue of each gang.
          policies: by queue; for a queue without an entry, the policy of the profile applies.
        """
        places = [self.positions_under_policy(policies.get(queue))[row] for row, queue in enumerate(queues)]
        positions, last = [0] * len(queues), Counter[str]()
        for row in sorted(range(len(queues)), key=places.__getitem__):
            last[queues[row]] += 1
            positions[row] = last[queues[row]]
        return positions


class _Turn(NamedTuple):
    """A precomputed turn of a row: the next gang of its subtree if only this row had turns.

    Args:
      head: position of the gang in the order of its queue.
      minimum: [R] requests that the gang needs at least.
      total: [R] requests of all its pending pods.
      below: the child row that has the turn, NO_CHILD for a gang of the row itself.
      stage: 0 if the gang is inside the guarantee of this row, 1 inside its fair share, 2 beyond both.
      rank: sort key of the row among its siblings; the smallest has the next turn.
    """

    head: float
    minimum: IntArray
    total: IntArray
    below: int
    stage: int = 0
    rank: tuple[float, ...] = ()


class FairShareOrder:
    """An iterator over pending gangs in fair-share order, which adds each yielded gang to its queue's usage.

    This is the incremental version of a short definition: at every turn, go down from the root, and at each row choose
    the child with the smallest (stage, priority, policy key, position) at the present usage. The definition is the
    function `asked_anew` in tests/session/gangs/test_fair_share_order.py, about 40 lines; a property test compares the
    two. It computes all ranks again at every turn, which is too slow for thousands of gangs.

    Two facts permit to precompute. The rank of a row depends on its own usage and its next gang only, not on its
    siblings. And a turn outside of a subtree changes nothing inside it. So each row computes several turns in advance
    (`_turns`), as if it alone had turns, in one batch of array operations; its parent merges the turns of its children
    with a heap. The only event that breaks the forecast is `_cut`: if surplus is cut off a gang, less is used than the
    forecast assumed, and all rows from the gang's queue to the root start again from their real usage (`_invalidate`).
    """

    # The private state; each list has one entry for each row:
    #   _lines         pending gangs of the row itself, sorted so that the next one is last
    #   _turns         forecast turns that were not taken yet, the next one first
    #   _passed        number of these that the parent has used in its own forecast
    #   _reached       [R] usage of the row after all turns of `_turns`; `_usage` is the usage after the taken ones
    #   _turns_ahead   size of the next batch of the forecast
    #   _heaps         (rank, child) of the children with pending gangs; the rank is that of turn `_passed` of the child
    # Invariants between two calls of `__next__`: 0 <= _passed[row] <= len(_turns[row]); a child is in the heap of its
    # parent exactly if it has a turn that the parent has not used.

    def __init__(
        self,
        standing: QueueUsageAndEntitlements,
        gangs: Sequence[PendingGang],
        orders: GangPositions,
        resting: Set[str] = frozenset(),
    ) -> None:
        shares = standing.shares
        self._entitled = standing.entitled
        self._policies = standing.policies
        self._parent = shares.parent.tolist()
        self._spans = shares.child_row_ranges().tolist()
        self._usage = shares.usage.copy()
        self._lines = _lines(shares, standing.policies, gangs, orders)
        self._turns: list[list[_Turn]] = [[] for _ in self._lines]
        """By row, the forecast turns that were not taken yet, the next one first."""
        self._reached = self._usage.copy()
        """[Q, R] usage of each row after all turns in `_turns`."""
        self._passed = [0] * len(self._lines)
        """By row, the number of turns in `_turns` that the parent has used in its own forecast."""
        self._turns_ahead = [min(_FIRST_TURNS_AHEAD, _MAX_TURNS_AHEAD)] * len(self._lines)
        live = shares.with_usage(self._usage)
        self._siblings = {
            row: build_sibling_queues(live, standing.entitled, row)
            for row, (begin, end) in enumerate(self._spans)
            if begin < end
        }
        self._strict = _strict(shares, standing.policies)
        _drop_resting_gangs_behind_another(self._lines, self._strict, resting)
        self._ahead: dict[int, PendingGang] = {}
        self._heaps: list[list[tuple[tuple[float, ...], int]]] = [[] for _ in self._lines]
        """By row, a heap of (rank, child) of the children with pending gangs."""
        # Children have larger numbers than their parents, so that a row joins after its own heap is complete.
        for row in reversed(range(1, len(shares))):
            self._insert(row)

    def __iter__(self) -> "FairShareOrder":
        return self

    def __next__(self) -> PendingGang:
        """Return the gang with the next turn and its entitlement class; its elastic pods may come later."""
        if not self._heaps[0]:
            raise StopIteration
        # Go down along the forecast turns to the queue of the gang. The turns of the rows below are taken now, and are
        # no longer in use by the forecast of their parents.
        path = [self._heaps[0][0][1]]
        while (below := self._turns[path[-1]][0].below) != NO_CHILD:
            self._passed[below] -= 1
            path.append(below)
        path.reverse()
        row, turns = path[0], [self._turns[one].pop(0) for one in path]
        head, gang = self._lines[row].pop()
        gang = _with_entitlement(_entitlement_class([turn.stage for turn in turns]), gang)
        if self._strict[row] >= 0:
            gang = self._place_behind(self._strict[row], gang)
        # Cut before the usage is counted: what the rest of the gang requests has a turn of its own.
        gang, rest = self._cut(path, gang)
        self._usage[path] += turns[0].total if rest is None else pending_requests_of_gang(gang)
        if rest is not None:
            self._lines[row].append((head, rest))
            self._invalidate(path)
        # Only the root's heap is out of date: rows below moved when their parents used their turns.
        self._advance(path[-1])
        return gang

    def _invalidate(self, path: Sequence[int]) -> None:
        """Discard the forecasts of a path from a queue to the root, after surplus of its gang was cut.

        Args:
          path: rows, the gang's queue first.
        """
        before = NO_CHILD
        for row in path:
            # Children with a turn in the discarded forecast are at a wrong position in the heap; take them out and
            # insert them again. Forecasts of children that are not on the path stay valid.
            void = {before, *(turn.below for turn in self._turns[row])} - {NO_CHILD}
            self._turns[row].clear()
            self._passed[row], self._reached[row] = 0, self._usage[row]
            self._turns_ahead[row] = min(_FIRST_TURNS_AHEAD, _MAX_TURNS_AHEAD)
            self._heaps[row] = [one for one in self._heaps[row] if one[1] not in void]
            heapify(self._heaps[row])
            for child in void:
                self._passed[child] = 0
                self._insert(child)
            before = row

    def _insert(self, row: int) -> None:
        """Insert a row into the heap of its parent, unless it has no pending gang."""
        turn = self._next_of(row)
        if turn is not None:
            heappush(self._heaps[self._parent[row]], (turn.rank, row))

    def _advance(self, row: int) -> None:
        """Move the first row of its parent's heap to the position of its next turn, or remove it if it has none."""
        heap, turn = self._heaps[self._parent[row]], self._next_of(row)
        if turn is None:
            heappop(heap)
        else:
            heapreplace(heap, (turn.rank, row))

    def _next_of(self, row: int) -> "_Turn | None":
        """Return the first turn of a row that its parent has not used yet, None if no gang is pending there."""
        turns, passed = self._turns[row], self._passed[row]
        if passed == len(turns):
            self._forecast(row)
        return turns[passed] if passed < len(turns) else None

    def _forecast(self, row: int) -> None:
        """Append a batch of turns to the forecast of a row, each at the usage after those before it."""
        inner = self._spans[row][0] < self._spans[row][1]
        batch = self._turns_below(row) if inner else self._turns_of_queue(row)
        if not batch:
            return
        self._turns_ahead[row] = min(_MAX_TURNS_AHEAD, _TURNS_AHEAD_GROWTH * self._turns_ahead[row])
        minimum = np.array([turn.minimum for turn in batch])
        total = np.array([turn.total for turn in batch])
        usage = self._reached[row] + total.cumsum(axis=0)
        self._reached[row] = usage[-1]
        ranks = self._ranks(row, [turn.head for turn in batch], minimum, usage - total)
        self._turns[row] += [_Turn(*turn[:4], *ranked) for turn, ranked in zip(batch, ranks, strict=True)]

    def _turns_of_queue(self, row: int) -> list[_Turn]:
        """Return the next gangs of a queue as turns without a rank."""
        line = self._lines[row]
        end = len(line) - len(self._turns[row])
        next_gangs = line[max(0, end - self._turns_ahead[row]) : end]
        return [
            _Turn(head, requests_of_smallest_placement(gang), pending_requests_of_gang(gang), NO_CHILD)
            for head, gang in reversed(next_gangs)
        ]

    def _turns_below(self, row: int) -> list[_Turn]:
        """Merge the next turns of a row's children into turns of the row itself, without a rank."""
        heap, merged = self._heaps[row], list[_Turn]()
        while heap and len(merged) < self._turns_ahead[row]:
            child = heap[0][1]
            turn = self._turns[child][self._passed[child]]
            merged.append(_Turn(turn.head, turn.minimum, turn.total, child))
            self._passed[child] += 1
            self._advance(child)
        return merged

    def _ranks(
        self, row: int, heads: Sequence[float], minimum: IntArray, before: IntArray
    ) -> list[tuple[int, tuple[float, ...]]]:
        """Return stage and rank of G consecutive turns of a row.

        Args:
          row: the row.
          heads: [G] positions of the gangs in their queues' orders.
          minimum: [G, R] requests that these gangs need at least.
          before: [G, R] usage of the row before each turn.

        Returns: for each turn its stage and its rank among the row's siblings; the smallest rank is next.
        """
        parent = self._parent[row]
        guarantee, fair = self._entitled.guarantee[row].tolist(), self._entitled.fair[row].tolist()
        stage = [
            _stage(used, requests, guarantee, fair)
            for used, requests in zip(before.tolist(), minimum.tolist(), strict=True)
        ]
        if self._policies[parent].strict:
            return [(one, (head,)) for one, head in zip(stage, heads, strict=True)]
        position = row - self._spans[parent][0]
        siblings = self._siblings[parent].copies_of_sibling(position, before, np.array(heads))
        policy = self._policies[parent]
        checked = checked_policy_keys(policy, policy.key(siblings, minimum), len(heads), several=True)
        keys = checked.reshape(len(heads), -1).tolist()
        last = -int(siblings.priority[0])
        return [(one, (one, last, *key, head)) for one, key, head in zip(stage, keys, heads, strict=True)]

    def _place_behind(self, row: int, gang: PendingGang) -> PendingGang:
        """Order a gang of a strict subtree behind the gang before it: it starts later, with no stronger entitlement."""
        ahead = self._ahead.get(row)
        if ahead is not None:
            gang = replace(gang, behind=ahead.members.identity, entitled=max(gang.entitled, ahead.entitled))
        if gang.need:
            self._ahead[row] = gang
        return gang

    def _cut(self, path: Sequence[int], gang: PendingGang) -> tuple[PendingGang, PendingGang | None]:
        """Split elastic pods off a gang that are beyond its guarantee or fair share; they have a later turn.

        Args:
          path: rows from the gang's queue to the child of the root.
          gang: the gang with its entitlement class.

        Returns: the gang to yield, and the surplus as a gang that follows it, None if nothing was cut.
        """
        if (
            gang.entitled is EntitlementClass.BORROWING
            or gang.pending_pod_count == max(1, gang.need)
            or len(gang.parts) > 1
        ):
            return gang, None
        group = gang.members.group
        if group is not None and group.spec.topology is not None and group.spec.topology.required:
            return gang, None  # a required topology domain is chosen for all pods at once
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
        pods = np.where(
            path_counts, (amounts - self._usage[path]) // np.maximum(1, requests), gang.pending_pod_count
        )
        # Pods that fit into the share of each row of the path, at the present usage. A guarantee counts if one row of
        # the path has it; a fair share has to hold at every row.
        inside = np.where(path_counts.any(axis=1), pods.min(axis=1), 0)
        most = int(inside.max() if gang.entitled is EntitlementClass.GUARANTEE else inside.min())
        taken = min(gang.pending_pod_count, max(1, gang.need, most))
        if taken == gang.pending_pod_count:
            return gang, None
        first, surplus = part.pods[:taken], part.pods[taken:]
        rest = replace(gang, parts=(replace(part, pods=surplus),), need=0, needs=0 * gang.needs, follows=True)
        return replace(gang, parts=(replace(part, pods=first),)), rest


def _entitlement_class(stages: Sequence[int]) -> EntitlementClass:
    """Return the entitlement class of a gang: one guarantee on the path is enough, or the fair share of every row."""
    if 0 in stages:
        return EntitlementClass.GUARANTEE
    return EntitlementClass.BORROWING if 2 in stages else EntitlementClass.FAIR


def _with_entitlement(share: EntitlementClass, gang: PendingGang) -> PendingGang:
    """Return a gang with an entitlement class; the same object as in the session before if nothing changed."""
    cached = gang.members.cache.entitled
    if cached is None or cached[0] is not gang or cached[1].entitled is not share:
        cached = gang.members.cache.entitled = gang, replace(gang, entitled=share)
    return cached[1]


def _stage(used: Sequence[int], minimum: Sequence[int], guarantee: Sequence[int], fair: Sequence[int]) -> int:
    """Return 0 if the requests of guaranteed resources are inside the guarantee, 1 if inside the fair share, else 2.

    Lists instead of arrays: for a handful of resources, plain Python is faster than NumPy.

    Args:
      used: [R] usage before the gang.
      minimum: [R] requests of the gang.
      guarantee: [R] guarantee of the queue.
      fair: [R] fair share of the queue.
    """
    covered = [
        amount + more <= granted
        for amount, more, granted in zip(used, minimum, guarantee, strict=True)
        if more > 0 and granted > 0
    ]
    if covered and all(covered):
        return 0
    beyond = (
        more > 0 and amount + more > granted
        for amount, more, granted in zip(used, minimum, fair, strict=True)
    )
    return 1 + any(beyond)


def _strict(shares: QueueTable, policies: Sequence[SharingPolicy]) -> list[int]:
    """Return for each row the topmost row with a strict policy on its path to the root, -1 for none."""
    topmost_strict = [-1] * len(shares)
    for row, parent in enumerate(shares.parent.tolist()):
        inherited = topmost_strict[parent] if row else -1
        topmost_strict[row] = inherited if inherited >= 0 else row if policies[row].strict else -1
    return topmost_strict


def _lines(
    shares: QueueTable, policies: Sequence[SharingPolicy], gangs: Sequence[PendingGang], orders: GangPositions
) -> list[list[tuple[float, PendingGang]]]:
    """Return for each row its own gangs with their positions, the next one last."""
    lines: list[list[tuple[float, PendingGang]]] = [[] for _ in range(len(shares))]
    by_queue: dict[str, tuple[list[tuple[float, PendingGang]], FloatArray]] = {}
    for index, gang in enumerate(gangs):
        queue_line = by_queue.get(gang.queue)
        if queue_line is None:
            row = shares.own_gangs_row(gang.queue)
            queue_line = by_queue[gang.queue] = lines[row], orders.positions_under_policy(policies[row].gangs)
        queue_line[0].append((queue_line[1].item(index), gang))
    for line in lines:
        line.sort(key=itemgetter(0), reverse=True)
    return lines


def _drop_resting_gangs_behind_another(
    lines: Sequence[list[tuple[float, PendingGang]]], strict: Sequence[int], resting: Set[str]
) -> None:
    """Keep only the first resting gang in the line of each queue with a strict policy.

    It blocks all gangs behind it, so that the turns of the other resting gangs, possibly thousands, decide nothing.
    """
    for line, topmost_strict in zip(lines, strict, strict=True):
        if topmost_strict < 0 or not resting:
            continue
        kept, rests_ahead = list[tuple[float, PendingGang]](), False
        for entry in reversed(line):  # the next gang of a line is its last entry
            rests = entry[1].members.identity in resting
            if not (rests and rests_ahead):
                kept.append(entry)
            rests_ahead |= rests
        line[:] = reversed(kept)


def requests_of_smallest_placement(gang: PendingGang) -> IntArray:
    """Return the requests [R] of the pods that a gang still needs to start, or of one pod if it needs none.

    The result is an array by resource. If the pods of the gang differ, each amount is the smallest possible sum, and
    the one pod is the first pod of the gang.
    """
    return gang.needs if gang.need else gang.parts[0].pod_class.requests


def pending_requests_of_gang(gang: PendingGang) -> IntArray:
    """Return the total requests of a gang's pending pods, as an array by resource [R]."""
    if len(gang.parts) == 1:
        (part,) = gang.parts
        count = len(part.pods)
        return gang.needs if count == gang.need else part.pod_class.requests * count
    total = np.zeros_like(gang.needs)
    for part in gang.parts:
        total = total + part.pod_class.requests * len(part.pods)
    return total

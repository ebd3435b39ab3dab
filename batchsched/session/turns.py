"""Turns: queues go one after the other, each with its next gang, and every turn counts as if it had been placed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchsched.framework.status import BoolArray, IntArray
from batchsched.ordering.entitlements import siblings_of
from batchsched.ordering.fairness.policy import FairnessPolicy
from batchsched.ordering.policy import FloatArray, GangColumns, Policy, order
from batchsched.ordering.shares import Entitlements, Shares
from batchsched.session.gang import Entitled, Gang


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What queues have, what they are entitled to, and by whose rules.

    Args:
      shares: the tree; its usage is what runs as the session begins.
      entitled: what it entitles to.
      policies: [Q] that of a row divides among its children.
    """

    shares: Shares
    entitled: Entitlements
    policies: tuple[FairnessPolicy, ...]


class Orders:
    """The places of gangs by one policy or another: inside a queue its own order holds, where it states one.

    Args:
      gangs: who waits.
      default: the profile's policy.
      now: seconds since 1970.
    """

    def __init__(self, gangs: Sequence[Gang], default: Policy, now: float) -> None:
        self._gangs = gangs
        self._default = default
        self._now = now
        self._places: dict[int, FloatArray] = {}
        by_seniority = sorted(range(len(gangs)), key=lambda at: gangs[at].seniority)
        self._arrival = np.empty(len(gangs), np.int64)
        self._arrival[by_seniority] = np.arange(len(gangs))

    def places(self, policy: Policy | None) -> FloatArray:
        """[G] the place of every gang by a policy, the profile's for None; half bound ones before all."""
        chosen = policy or self._default
        known = self._places.get(id(chosen))
        if known is None:
            known = self._places[id(chosen)] = self._made(chosen)
        return known

    def _made(self, policy: Policy) -> FloatArray:
        gangs = self._gangs
        columns = GangColumns(
            priority=np.array([gang.priority for gang in gangs], np.int64),
            created=np.array([gang.created for gang in gangs], np.float64),
            estimate=np.array([gang.estimate for gang in gangs], np.float64),
            size=np.array([gang.size for gang in gangs], np.float64),
            share=np.array([gang.share for gang in gangs], np.float64),
            arrival=self._arrival,
        )
        by_policy = np.empty(len(gangs))
        by_policy[order(policy, columns, self._now)] = np.arange(len(gangs))
        stranded = np.array([gang.members.stranded for gang in gangs], np.bool_)
        places = np.empty(len(gangs))
        places[np.lexsort((by_policy, -columns.priority, ~stranded))] = np.arange(len(gangs))
        return places


class Round:
    """The tree while its queues take turns: usage grows as gangs are counted."""

    def __init__(self, standing: Standing, gangs: Sequence[Gang], orders: Orders) -> None:
        shares = standing.shares
        count = len(shares)
        self._entitled = standing.entitled
        self._policies = standing.policies
        self._parent = shares.parent.tolist()
        self._spans = shares.spans().tolist()
        self._usage = shares.usage.copy()
        self._head = np.full(count, math.inf)
        self._candidate = np.zeros_like(self._usage)
        self._best = [-1] * count
        self._lines = _lines(shares, standing.policies, gangs, orders)
        live = shares.with_usage(self._usage)
        self._siblings = {
            row: siblings_of(live, standing.entitled, row, self._head[begin:end])
            for row, (begin, end) in enumerate(self._spans)
            if begin < end
        }
        self._strict = _strict(shares, standing.policies)
        self._ahead: dict[int, Gang] = {}
        for row in reversed(range(count)):
            self._renew(row)

    def __iter__(self) -> "Round":
        return self

    def __next__(self) -> Gang:
        """Take the next turn."""
        if math.isinf(self._head[0]):
            raise StopIteration
        row = 0
        while self._spans[row][0] < self._spans[row][1]:
            row = self._best[row]
        head, gang = self._lines[row].pop()
        path = [row]
        while self._parent[path[-1]] > 0:
            path.append(self._parent[path[-1]])
        gang = replace(gang, entitled=self._what_for(np.array(path), asked_by(gang)))
        if self._strict[row] >= 0:
            gang = self._in_line(self._strict[row], gang)
        gang, rest = self._cut(np.array(path), gang)
        if rest is not None:
            self._lines[row].append((head, rest))
        self._usage[path] += total_of(gang)
        for one in (*path, 0):
            self._renew(one)
        return gang

    def _in_line(self, row: int, gang: Gang) -> Gang:
        """Put a gang behind the one before it in a strict subtree: it starts after that, in no better share."""
        ahead = self._ahead.get(row)
        if ahead is not None:
            gang = replace(gang, behind=ahead.members.identity, entitled=max(gang.entitled, ahead.entitled))
        if gang.need:
            self._ahead[row] = gang
        return gang

    def _what_for(self, path: IntArray, needs: IntArray) -> Entitled:
        """Tell in which share a gang stands: one guarantee on its way to the root is enough, or all fair shares."""
        if self._guaranteed(path, needs).any():
            return Entitled.GUARANTEE
        return Entitled.FAIR if self._fair(path, needs).all() else Entitled.BORROWING

    def _cut(self, path: IntArray, gang: Gang) -> tuple[Gang, Gang | None]:
        """Take surplus off a gang that is not inside the same share; it has a turn of its own."""
        if gang.entitled is Entitled.BORROWING or gang.size == max(1, gang.need) or len(gang.parts) > 1:
            return gang, None
        group = gang.members.group
        if group is not None and group.spec.topology is not None and group.spec.topology.required:
            return gang, None  # one domain takes all of it, and is chosen for all of it
        (part,) = gang.parts
        requests = part.pod_class.requests
        amounts = (self._entitled.guarantee if gang.entitled is Entitled.GUARANTEE else self._entitled.fair)[
            path
        ]
        counts = requests > 0
        if gang.entitled is Entitled.GUARANTEE:
            path_counts = (amounts > 0) & counts
        else:
            path_counts = np.broadcast_to(counts, amounts.shape)
        pods = np.where(path_counts, (amounts - self._usage[path]) // np.maximum(1, requests), gang.size)
        inside = np.where(path_counts.any(axis=1), pods.min(axis=1), 0)
        most = int(inside.max() if gang.entitled is Entitled.GUARANTEE else inside.min())
        taken = min(gang.size, max(1, gang.need, most))
        if taken == gang.size:
            return gang, None
        first, others = part.pods[:taken], part.pods[taken:]
        rest = replace(gang, parts=(replace(part, pods=others),), need=0, needs=0 * gang.needs, follows=True)
        return replace(gang, parts=(replace(part, pods=first),)), rest

    def _guaranteed(self, rows: IntArray | slice, needs: IntArray) -> BoolArray:
        """[Q'] where all that is asked of guaranteed resources is inside the guarantee."""
        guarantee = self._entitled.guarantee[rows]
        covered = (guarantee > 0) & (needs > 0)
        inside = self._usage[rows] + needs <= guarantee
        return np.asarray(covered.any(axis=1) & (inside | ~covered).all(axis=1))

    def _fair(self, rows: IntArray | slice, needs: IntArray) -> BoolArray:
        inside = (self._usage[rows] + needs <= self._entitled.fair[rows]) | (needs == 0)
        return np.asarray(inside.all(axis=1))

    def _renew(self, row: int) -> None:
        """Find out anew who goes next in a row's subtree."""
        begin, end = self._spans[row]
        if begin == end:
            line = self._lines[row]
            self._head[row], needs = (line[-1][0], asked_by(line[-1][1])) if line else (math.inf, None)
            if needs is not None:
                self._candidate[row] = needs
            return
        best = self._next_child(row, slice(begin, end))
        self._best[row] = best
        self._head[row] = self._head[best]
        self._candidate[row] = self._candidate[best]

    def _next_child(self, row: int, below: slice) -> int:
        waiting = np.flatnonzero(np.isfinite(self._head[below]))
        if len(waiting) < 2:
            return int(below.start + (waiting[0] if len(waiting) else 0))
        if self._policies[row].strict:
            return int(below.start + np.argmin(self._head[below]))
        siblings, candidate = self._siblings[row], self._candidate[below]
        stage = np.where(self._guaranteed(below, candidate), 0, np.where(self._fair(below, candidate), 1, 2))
        key = self._policies[row].key(siblings, candidate)
        places = np.lexsort(
            (self._head[below], key, -siblings.priority, stage, ~np.isfinite(self._head[below]))
        )
        return int(below.start + places[0])


def _strict(shares: Shares, policies: Sequence[FairnessPolicy]) -> list[int]:
    """By row, the highest row above whose subtree is strict, -1 for none."""
    found = [-1] * len(shares)
    for row, parent in enumerate(shares.parent.tolist()):
        inherited = found[parent] if row else -1
        found[row] = inherited if inherited >= 0 else row if policies[row].strict else -1
    return found


def _lines(
    shares: Shares, policies: Sequence[FairnessPolicy], gangs: Sequence[Gang], orders: Orders
) -> list[list[tuple[float, Gang]]]:
    """By row, its own gangs with their places, the next one last."""
    lines: list[list[tuple[float, Gang]]] = [[] for _ in range(len(shares))]
    for at, gang in enumerate(gangs):
        row = shares.home(gang.queue)
        lines[row].append((float(orders.places(policies[row].gangs)[at]), gang))
    for line in lines:
        line.sort(key=lambda one: -one[0])
    return lines


def asked_by(gang: Gang) -> IntArray:
    """[R] what a gang needs at least: its minimum, or one pod more where it has that."""
    return gang.needs if gang.need else gang.parts[0].pod_class.requests


def total_of(gang: Gang) -> IntArray:
    """[R] what all the pods of a gang that wait ask for."""
    total = np.zeros_like(gang.needs)
    for part in gang.parts:
        total = total + part.pod_class.requests * len(part.pods)
    return total

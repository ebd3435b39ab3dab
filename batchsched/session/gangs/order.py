"""Whose turn it is, and what each waiting gang is entitled to, as a session begins.

Queues take turns down the tree: at every queue the child goes next whose gang stands inside its guarantee, else one
inside its fair share, else one that borrows; among those of one kind the queue's priority decides, then its policy.
Each turn counts as if the gang had been placed, so that entitlements move with what is asked. What comes out is an
order and, for each gang, the share of its tier.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.decision import SetAside
from batchsched.config.schema import PolicySettings, Profile
from batchsched.errors import InvalidInput
from batchsched.framework.status import IntArray
from batchsched.queues.entitlements import entitlements
from batchsched.queues.gang_order.policy import FloatArray, Policy
from batchsched.queues.queue_table import QueueTable
from batchsched.queues.queue_validation import invalid_settings
from batchsched.queues.sharing import registry
from batchsched.queues.sharing.policy import FairnessPolicy
from batchsched.queues.table_builder import QueueDemand, TotalCapacity, lay_out, policies_of
from batchsched.queues.tree import QueueTree
from batchsched.queues.usage_history import Usage, UsageHistory, by_queue
from batchsched.session.gangs.admission import Admission
from batchsched.session.gangs.fair_share_order import (
    FairShareOrder,
    MeasuredQueues,
    PolicyOrders,
    total_requests,
)
from batchsched.session.gangs.queue_limits import sum_requests
from batchsched.session.placement.statement import GangPlacement
from batchsched.session.tables.gang import PendingGang
from batchsched.session.tables.pending import OrderedGangs
from batchsched.session.tables.session_tables import SessionTables
from batchsched.state.queue_usage import counts_against_queue, queue_of


class QueuePolicies:
    """The policies that the queues of a tree state, made once.

    Args:
      tree: the queues.
      default: the profile's, for queues without a parent.

    Raises:
      InvalidInput: the profile's policy cannot be made.
    """

    def __init__(self, tree: QueueTree, default: PolicySettings | None = None) -> None:
        chosen = default or PolicySettings(name=registry.DEFAULT)
        try:
            self._default = registry.make_sharing_policy(chosen.name, chosen.args)
        except InvalidInput as error:
            field = f"queuePolicy.{error.field.removeprefix('policy.')}"
            raise InvalidInput(error.message, field=field) from error
        self._chosen: dict[str, FairnessPolicy] = {}
        self.set_aside: tuple[SetAside, ...] = ()
        """Policies that cannot be made: their queues have their parent's."""
        for name, queue in sorted(tree.queues.items()):
            choice = queue.spec.policy
            if choice is None:
                continue
            try:
                self._chosen[name] = registry.make_sharing_policy(choice.name, choice.args)
            except InvalidInput as error:
                field = (
                    f"spec.{error.field}"
                    if error.field.startswith("policy")
                    else f"spec.policy.{error.field}"
                )
                self.set_aside += (SetAside("", f"Queue {name}", field, error.message),)

    @classmethod
    def between(cls, tree: QueueTree, profile: Profile) -> "QueuePolicies | None":
        """Return the policies between queues under a profile, None while no queue is entitled to anything.

        Raises:
          InvalidInput: the profile's policy cannot be made.
        """
        entitles = tree.entitles or profile.queue_policy is not None
        return cls(tree, profile.queue_policy) if entitles else None

    @property
    def remember(self) -> bool:
        """True when one of them looks at what was used lately."""
        return any(policy.remembers for policy in (self._default, *self._chosen.values()))

    def of(self, shares: QueueTable) -> tuple[FairnessPolicy, ...]:
        """Return the policy of every row."""
        return policies_of(shares, self._default, self._chosen)


def measure_queues(
    tables: SessionTables,
    policies: QueuePolicies,
    gangs: Sequence[PendingGang],
    scheduler_name: str,
    past: Usage,
) -> MeasuredQueues:
    """Measure what queues have and want, and what that entitles them to.

    Args:
      tables: the tables; held gangs have their places on them already.
      policies: of the queues.
      gangs: who waits.
      scheduler_name: ours; only pods that are ours count against queues.
      past: decayed usage by queue.
    """
    usage = usage_by_queue(tables, scheduler_name)
    asked: dict[str, list[IntArray]] = {name: [amount] for name, amount in usage.items()}
    for gang in gangs:
        asked.setdefault(gang.queue, []).append(total_requests(gang))
    request = {name: np.asarray(amounts).sum(axis=0) for name, amounts in asked.items()}
    capacity = TotalCapacity(
        tables.node_table.resources, tables.node_table.allocatable.sum(axis=0), tables.share_resources
    )
    shares = lay_out(tables.queues, capacity, QueueDemand(usage, request, _as_arrays(tables, past)))
    chosen = policies.of(shares)
    return MeasuredQueues(shares, entitlements(shares, chosen), chosen)


def usage_by_queue(tables: SessionTables, scheduler_name: str) -> dict[str, IntArray]:
    """By queue, [R] what its own pods hold on nodes."""
    there: dict[str, list[Pod]] = {}
    for members in tables.running.values():
        for pod, _ in members.bound.values():
            if counts_against_queue(pod, (scheduler_name,)):
                there.setdefault(queue_of(pod, members.group), []).append(pod)
    return {queue: sum_requests(tables, pods) for queue, pods in there.items()}


def _as_arrays(tables: SessionTables, past: Usage) -> dict[str, FloatArray]:
    """By queue, [R] decayed usage; what no node offers any more is left out."""
    column = tables.node_table.column
    found: dict[str, FloatArray] = {}
    for queue, amounts in past.items():
        found[queue] = np.zeros(len(column))
        for resource, amount in amounts.items():
            if resource in column:
                found[queue][column[resource]] = amount
    return found


class GangOrder:
    """Who is next among the gangs that wait; while no queue is entitled to anything, that is left as it is.

    Args:
      tables: the tables, of which the queues stay.
      policy: the profile's, for queues that state no order of their own.
      profile: how to schedule.
      past: what queues used until now, None for what the frame's snapshot says.
    """

    def __init__(
        self, tables: SessionTables, policy: Policy, profile: Profile, past: UsageHistory | None = None
    ) -> None:
        self._tables = tables
        self._policy = policy
        self._scheduler_name = profile.scheduler_name
        self.policies = QueuePolicies.between(tables.queues, profile)
        self.look_at_nodes()
        self._past = past or UsageHistory(by_queue(tables.snapshot.usage), profile.usage_half_life_seconds)
        self._remembers = self.policies is not None and self.policies.remember
        self.latest: MeasuredQueues | None = None
        """What queues were entitled to as `of` was asked last: whoever waited then, with what ran then."""

    def look_at_nodes(self) -> None:
        """Find what queues state that nodes as they are now do not offer."""
        queues, nodes = self._tables.queues, self._tables.node_table.nodes
        offered = {name for node in nodes for name in node.offered}
        self._misfits = invalid_settings(queues, offered)

    @property
    def set_aside(self) -> tuple[SetAside, ...]:
        """What does not fit in queues, and policies of theirs that cannot be made."""
        return self._misfits + (self.policies.set_aside if self.policies is not None else ())

    def usage(self, now: float) -> Usage:
        """Return decayed usage as of now, nothing when no policy asks for it."""
        return self._past.advance(now, self._held(())) if self._remembers else {}

    def remember(self, walked: Iterable[GangPlacement]) -> None:
        """Take in what is used when a session ends: what ran, and what it placed."""
        if self._remembers:
            self._past.hold(self._held(walked))

    def _held(self, walked: Iterable[GangPlacement]) -> dict[str, dict[str, int]]:
        held = usage_by_queue(self._tables, self._scheduler_name)
        for one in walked:
            mine = held.setdefault(one.gang.queue, np.zeros(len(self._tables.node_table.resources), np.int64))
            mine += one.total(len(mine))
        names = self._tables.node_table.resources
        return {
            queue: {names[at]: int(amounts[at]) for at in np.flatnonzero(amounts)}
            for queue, amounts in held.items()
        }

    def standing(self, gangs: Sequence[PendingGang]) -> MeasuredQueues | None:
        """Return what queues are entitled to while these gangs wait, None when to nothing in particular."""
        if self.policies is None:
            return None
        return measure_queues(self._tables, self.policies, gangs, self._scheduler_name, self._past.usage)

    def of(self, gangs: Sequence[PendingGang], now: float) -> list[PendingGang]:
        """Return gangs in the order of their queues' turns, each with what it is entitled to; half bound ones first."""
        standing = self.latest = self.standing(gangs)
        if standing is None:
            return list(gangs)
        turns = FairShareOrder(standing, gangs, PolicyOrders.of(gangs, self._policy, now))
        return sorted(turns, key=lambda gang: not gang.members.partially_bound)

    def through(self, line: OrderedGangs, admission: Admission, now: float) -> Iterator[int]:
        """Yield the places of a line in the order of turns, which are worked out as far as somebody asks.

        A gang of which surplus is cut has its turn when all of it has. Who is not admitted takes none, and comes last.
        """
        if self.policies is None:
            yield from range(len(line.members))
            return
        admitted = (admission.gang(members) for members in line.members)
        gangs = {at: one for at, one in enumerate(admitted) if isinstance(one, PendingGang) and one.parts}
        some, places = list(gangs.values()), list(gangs)
        standing = measure_queues(self._tables, self.policies, some, self._scheduler_name, self._past.usage)
        orders = PolicyOrders(line.columns.at(places), line.partially_bound[places], self._policy, now)
        turns: Iterable[PendingGang] = FairShareOrder(standing, some, orders)
        if line.partially_bound.any():
            turns = sorted(turns, key=lambda gang: not gang.members.partially_bound)
        place = {gang.members.identity: at for at, gang in gangs.items()}
        left: dict[str, int] = {}
        for gang in turns:
            identity = gang.members.identity
            at = place[identity]
            left[identity] = left.get(identity, gangs[at].size) - gang.size
            if not left[identity]:
                yield at
        yield from (at for at in range(len(line.members)) if at not in gangs)

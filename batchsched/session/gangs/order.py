"""Order of the pending gangs, and the entitlement class of each, when a session begins.

Queues take turns. From the root down, a child with a gang inside its guarantee goes first, then one inside its fair
share, then one that borrows; among equals, the queue's priority decides, then the parent's policy. Each turn counts as
if the gang had been placed. The result is an order, and for each gang the entitlement class of its tier.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import numpy as np

from batchsched.api.decision import SetAside
from batchsched.config.schema import PolicySettings, Profile
from batchsched.errors import InvalidInput
from batchsched.framework.status import IntArray
from batchsched.queues.entitlements import compute_entitlements
from batchsched.queues.gang_order import FloatArray, GangOrderPolicy
from batchsched.queues.queue_table import (
    QueueTable,
    QueueUsageAndDemand,
    build_queue_table,
    resolve_policies,
)
from batchsched.queues.sharing.policy import DEFAULT_SHARING_POLICY, SharingPolicy, make_sharing_policy
from batchsched.queues.tree import QueueTree, find_inconsistent_settings
from batchsched.queues.usage_history import Usage, UsageHistory, past_usage_by_queue
from batchsched.session.gangs.fair_share_order import (
    FairShareOrder,
    GangPositions,
    QueueUsageAndEntitlements,
    pending_requests_of_gang,
)
from batchsched.session.gangs.gang_eligibility import GangEligibilityCheck
from batchsched.session.gangs.queue_limits import total_capacity, usage_by_queue
from batchsched.session.statement import GangPlacement
from batchsched.session.tables.gang import EntitlementClass, PendingGang
from batchsched.session.tables.pending import OrderedGangs
from batchsched.session.tables.session_tables import SessionTables


class QueueSharingPolicies:
    """The sharing policy of each queue in the queue tree.

    Args:
      tree: the queues.
      default: policy settings of the profile, for queues without a parent.

    Raises:
      InvalidInput: the profile's policy does not exist, or its arguments are invalid.
    """

    def __init__(self, tree: QueueTree, default: PolicySettings | None = None) -> None:
        chosen = default or PolicySettings(name=DEFAULT_SHARING_POLICY)
        try:
            self._default = make_sharing_policy(chosen.name, chosen.args)
        except InvalidInput as error:
            field = f"queuePolicy.{error.field.removeprefix('policy.')}"
            raise InvalidInput(error.message, field=field) from error
        self._tree = tree
        self._chosen: dict[str, SharingPolicy] = {}
        self.invalid_policies: tuple[SetAside, ...] = ()
        """Invalid policies of Queues; these queues use the policy of their parent."""
        for name, queue in sorted(tree.queues.items()):
            choice = queue.spec.policy
            if choice is None:
                continue
            try:
                self._chosen[name] = make_sharing_policy(choice.name, choice.args)
            except InvalidInput as error:
                field = (
                    f"spec.{error.field}"
                    if error.field.startswith("policy")
                    else f"spec.policy.{error.field}"
                )
                self.invalid_policies += (SetAside("", f"Queue {name}", field, error.message),)

    @classmethod
    def from_tree(cls, tree: QueueTree, queue_policy: PolicySettings | None) -> "QueueSharingPolicies | None":
        """Return the sharing policies; None if no queue has an entitlement and no `queuePolicy` is set.

        Args:
          tree: the queues.
          queue_policy: the `queuePolicy` of the profile, or None. With it, the queues divide the cluster in any case.

        Raises:
          InvalidInput: the profile's policy cannot be made.
        """
        divides = tree.has_entitlements or queue_policy is not None
        return cls(tree, queue_policy) if divides else None

    @property
    def reads_past_usage(self) -> bool:
        """True if the sharing policy of any queue reads the past usage of queues."""
        return any(policy.remembers for policy in (self._default, *self._chosen.values()))

    @property
    def has_strict_queue(self) -> bool:
        """True if a gang that does not fit blocks the gangs behind it in some queue."""
        return any(policy.strict for policy in (self._default, *self._chosen.values()))

    def is_strict(self, queue: str) -> bool:
        """Return True if a gang of a queue that does not fit blocks the gangs behind it in the queue.

        The policy of the queue or of a queue above it is strict.
        """
        above = (self._chosen.get(name) for name in self._tree.queue_and_ancestors(queue))
        return self._default.strict or any(policy is not None and policy.strict for policy in above)

    def policies_by_table_row(self, shares: QueueTable) -> tuple[SharingPolicy, ...]:
        """Return the sharing policy of each queue, in the order of the queue table's rows."""
        return resolve_policies(shares, self._default, self._chosen)

    def gang_orders_by_queue(
        self, shares: QueueTable, queues: Iterable[str]
    ) -> dict[str, GangOrderPolicy | None]:
        """Return the gang order policy of each queue; None for a queue that uses the policy of the profile.

        Args:
          shares: the table of all queues.
          queues: names of queues in the table.
        """
        policies = self.policies_by_table_row(shares)
        return {name: policies[shares.own_gangs_row(name)].gangs for name in queues}


def orders_gangs_by_priority_first(profile: Profile, policies: QueueSharingPolicies | None) -> bool:
    """Return whether gangs are ordered by priority first, and only then by the policy of the profile or queue.

    With selection `ordered` and without entitlements, only the policy counts.

    Args:
      profile: the profile.
      policies: of the queues; None if no queue has an entitlement.
    """
    return policies is not None or profile.selection == "weight"


def compute_usage_and_entitlements(
    tables: SessionTables,
    policies: QueueSharingPolicies,
    gangs: Sequence[PendingGang],
    scheduler_name: str,
    past: Usage,
) -> QueueUsageAndEntitlements:
    """Return the usage of all queues, and the entitlements that follow from usage, requests and policies.

    Args:
      tables: the tables, with all bound pods on their nodes.
      policies: of the queues.
      gangs: the pending gangs.
      scheduler_name: scheduler name of the profile; pods of other schedulers count against no queue.
      past: decayed usage by queue.
    """
    usage = usage_by_queue(tables, scheduler_name)
    requests_by_queue: dict[str, list[IntArray]] = {name: [amount] for name, amount in usage.items()}
    # Fair shares divide the capacity by demand, so pending requests count as well as usage.
    for gang in gangs:
        requests_by_queue.setdefault(gang.queue, []).append(pending_requests_of_gang(gang))
    request = {name: np.asarray(amounts).sum(axis=0) for name, amounts in requests_by_queue.items()}
    demand = QueueUsageAndDemand(usage, request, _as_arrays(tables, past))
    shares = build_queue_table(tables.queues, total_capacity(tables), demand)
    chosen = policies.policies_by_table_row(shares)
    return QueueUsageAndEntitlements(shares, compute_entitlements(shares, chosen), chosen)


def _as_arrays(tables: SessionTables, past: Usage) -> dict[str, FloatArray]:
    """Return by queue [R] the decayed usage, without resources that no node offers."""
    column = tables.node_table.column
    arrays: dict[str, FloatArray] = {}
    for queue, amounts in past.items():
        arrays[queue] = np.zeros(len(column))
        for resource, amount in amounts.items():
            if resource in column:
                arrays[queue][column[resource]] = amount
    return arrays


def ignored_policy_reason(profile: Profile, queues: QueueTree) -> str:
    """Return why sessions ignore the gang order that a profile's `policy` names; "" if they use it.

    Return "" also if the profile has the default policy.
    """
    default = type(profile)().policy
    reserves = profile.backfill != "none"  # backfill reads the order to choose the gang with the reservation
    if (
        profile.policy == default
        or reserves
        or profile.gang_order_has_effect(entitled=queues.has_entitlements)
    ):
        return ""
    return (
        f"selection: weight starts gangs by priority and weight, and no queue has an entitlement, so the sessions of "
        f"this cluster do not read policy ({profile.policy.name}); set selection: ordered to start gangs in its order"
    )


class GangOrder:
    """The component that puts pending gangs in order by the fair shares of their queues.

    If no queue has an entitlement, only the profile's policy orders the gangs.

    Args:
      tables: the tables; their queues do not change during the life of this object.
      policy: order of gangs for queues that state none.
      profile: the profile.
      past: past usage of the queues, None to start from the usage in the snapshot.
    """

    def __init__(
        self,
        tables: SessionTables,
        policy: GangOrderPolicy,
        profile: Profile,
        past: UsageHistory | None = None,
    ) -> None:
        self._tables = tables
        self._policy = policy
        self._scheduler_name = profile.scheduler_name
        self.policies = QueueSharingPolicies.from_tree(tables.queues, profile.queue_policy)
        self.record_inconsistent_queue_settings()
        self._past = past or UsageHistory(
            past_usage_by_queue(tables.snapshot.usage), profile.usage_half_life_seconds
        )
        self._reads_past_usage = self.policies is not None and self.policies.reads_past_usage
        self.latest: QueueUsageAndEntitlements | None = None
        """Usage and entitlements as measured by the last call of `iterate_gangs`; preemption reads them."""

        self.entitled: dict[str, EntitlementClass] = {}
        """By identity, the class in which a gang had its first turn in the last run of `iterate_gang_indexes`."""
        self.ahead: dict[str, str] = {}
        """By identity of each gang of a strict queue that had its turn: the gang that must start first, "" if none."""

    @property
    def has_strict_queue(self) -> bool:
        """True if a gang that does not fit blocks the gangs behind it in some queue."""
        return self.policies is not None and self.policies.has_strict_queue

    def is_strict(self, queue: str) -> bool:
        """Return True if a gang of a queue that does not fit blocks the gangs behind it in the queue."""
        return self.policies is not None and self.policies.is_strict(queue)

    def record_inconsistent_queue_settings(self) -> None:
        """Record inconsistent settings of queues, such as a guarantee above the guarantee of the parent."""
        queues, nodes = self._tables.queues, self._tables.node_table.nodes
        offered = {name for node in nodes for name in node.allocatable_quantities}
        self._misfits = find_inconsistent_settings(queues, offered)

    @property
    def ignored_queue_fields(self) -> tuple[SetAside, ...]:
        """The ignored fields of Queues, such as invalid policies and guarantees above that of the parent."""
        return self._misfits + (self.policies.invalid_policies if self.policies is not None else ())

    def update_decayed_usage(self, now: float) -> Usage:
        """Update the decayed past usage of queues to `now` and return it, or {} if no policy reads it."""
        return self._past.advance(now, self._usage_of_queues(())) if self._reads_past_usage else {}

    def record_usage_after_session(self, placements: Iterable[GangPlacement]) -> None:
        """Record the usage of the queues at the end of a session: running pods and pods that the session placed."""
        if self._reads_past_usage:
            self._past.set_current_usage(self._usage_of_queues(placements))

    def _usage_of_queues(self, placements: Iterable[GangPlacement]) -> dict[str, dict[str, int]]:
        usage = usage_by_queue(self._tables, self._scheduler_name)
        for placement in placements:
            queue_usage = usage.setdefault(
                placement.gang.queue, np.zeros(len(self._tables.node_table.resources), np.int64)
            )
            queue_usage += placement.total_requests(len(queue_usage))
        names = self._tables.node_table.resources
        return {
            queue: {names[resource]: int(amounts[resource]) for resource in np.flatnonzero(amounts)}
            for queue, amounts in usage.items()
        }

    def compute_usage_and_entitlements(
        self, gangs: Sequence[PendingGang]
    ) -> QueueUsageAndEntitlements | None:
        """Return the usage and the entitlements of all queues for a session with these pending gangs.

        Return None if no queue has an entitlement.
        """
        if self.policies is None:
            return None
        return compute_usage_and_entitlements(
            self._tables, self.policies, gangs, self._scheduler_name, self._past.usage
        )

    def iterate_gangs(
        self,
        line: OrderedGangs,
        admitted: Mapping[int, PendingGang],
        now: float,
        resting: Set[str] = frozenset(),
    ) -> Iterator[PendingGang]:
        """Yield the gangs of the session in fair-share order, each with its entitlement class.

        Partially bound gangs come first.

        Args:
          line: the pending gangs in the policy's order.
          admitted: the gangs that may be tried, by index into `line`.
          now: seconds since 1970.
          resting: identities of the gangs that are not tried; of a strict queue, only the first of them has a turn.
        """
        gangs, indexes = list(admitted.values()), list(admitted)
        standing = self.latest = self.compute_usage_and_entitlements(gangs)
        if standing is None:
            return iter(gangs)
        stranded = line.partially_bound[indexes]
        orders = GangPositions(line.columns.select_gangs(indexes), stranded, self._policy, now)
        turns = FairShareOrder(standing, gangs, orders, resting)
        # Turns are computed lazily, which a sort would prevent.
        return (
            iter(sorted(turns, key=lambda gang: not gang.members.is_partially_bound))
            if stranded.any()
            else turns
        )

    def iterate_gang_indexes(
        self,
        line: OrderedGangs,
        gang_eligibility: GangEligibilityCheck,
        now: float,
        resting: Set[str] = frozenset(),
    ) -> Iterator[int]:
        """Yield the index of each pending gang in fair-share order; each index is computed when it is needed.

        If surplus is cut off a gang, its index comes when its last pod has its turn. Gangs that are not admitted
        have no turn and come last.
        """
        self.entitled, self.ahead = {}, {}
        if self.policies is None:
            yield from range(len(line.members))
            return
        answers = (gang_eligibility.eligible_gang_or_refusal(members) for members in line.members)
        gangs = {
            index: gang for index, gang in enumerate(answers) if isinstance(gang, PendingGang) and gang.parts
        }
        index_of_gang = {gang.members.identity: index for index, gang in gangs.items()}
        pending_pods = {identity: gangs[index].pending_pod_count for identity, index in index_of_gang.items()}
        for gang in self.iterate_gangs(line, gangs, now, resting):
            identity = gang.members.identity
            self.entitled.setdefault(identity, gang.entitled)
            self.ahead.setdefault(identity, gang.behind)
            pending_pods[identity] -= gang.pending_pod_count
            if not pending_pods[identity]:
                yield index_of_gang[identity]
        yield from (index for index in range(len(line.members)) if index not in gangs)

"""Report on queues: the usage, the entitlement and the pending gangs of each queue.

report_queues(snapshot, profile, now) -> QueueTreeReport    the tree, as the next session finds it
report_pending_gangs(snapshot, profile, now) -> tuple[PendingGangReport, ...]    only the gangs, in their order
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.nodes.node_table import PODS
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import IntArray
from batchsched.queues.gang_order import AutoOrder, make_gang_order_policy
from batchsched.queues.queue_table import OWN_PODGROUPS_SUFFIX
from batchsched.queues.sharing.sibling_queues import UNLIMITED
from batchsched.queues.usage_history import UsageHistory, past_usage_by_queue
from batchsched.session.gangs.fair_share_order import FairShareOrder, GangPositions, pending_requests_of_gang
from batchsched.session.gangs.order import (
    QueueSharingPolicies,
    compute_usage_and_entitlements,
    orders_gangs_by_priority_first,
)
from batchsched.session.gangs.queue_limits import (
    counted_pods_by_queue_and_user,
    running_gang_identities_by_queue,
)
from batchsched.session.tables.gang import GangState, PendingGang
from batchsched.session.tables.session_tables import Pause, SessionTables, do_not_pause

Amounts = dict[str, int]
"""By resource, in base units; resources of which there is nothing are left out."""


class QueueReportBase(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base class of the objects in a queue report."""


class PendingGangReport(QueueReportBase, frozen=True):
    """A pending gang in a queue report: its queue, its requests and how long it has waited.

    Args:
      pod_group: namespace/name.
      queue: name of its queue.
      share: its entitlement class in lower case; "all" if no queue has an entitlement.
      priority: its priority.
      waited: seconds since it was submitted, 0 if that time is unknown.
      requests: requests of its pending pods.
      position: its position among the pending gangs of its queue, 1 for the first.
    """

    pod_group: str
    queue: str
    share: str
    waited: float
    requests: Amounts = msgspec.field(name="wanted")
    priority: int = 0
    position: int = 0


class QueueReport(QueueReportBase, frozen=True):
    """The usage, the entitlement and the pending gangs of one queue, including all queues below it.

    Args:
      name: of the queue.
      parent: "" for a child of the root.
      depth: 0 for a child of the root.
      weight: weight of its spec.
      priority: priority of its spec.
      policy: name of the policy that divides among its children.
      guarantee: effective guarantee; less than that of the spec if the parent has less.
      limit: limit of its spec.
      fair_share: fair share at the present requests.
      allocated: requests of its bound pods.
      borrowed: the part of `allocated` above the guarantee.
      pending: requests of its pending pods.
      running: number of running gangs, including pods without a PodGroup.
      waiting: number of pending gangs, including pods without a PodGroup.
      longest_wait: seconds for which the oldest pending gang has waited, 0 if there is none or the time is unknown.
      namespaces: selector of the namespaces that may use it, its own or that of an ancestor; "" for all namespaces.
    """

    name: str
    parent: str
    depth: int
    weight: float
    priority: int
    policy: str
    guarantee: Amounts
    limit: Amounts
    fair_share: Amounts
    allocated: Amounts
    borrowed: Amounts
    pending: Amounts
    running: int
    waiting: int
    longest_wait: float
    namespaces: str = ""


class QueueTreeReport(QueueReportBase, frozen=True):
    """A report on all queues and all pending gangs.

    Args:
      capacity: allocatable resources of all nodes.
      queues: parents before their children, siblings by name.
      waiting: pending gangs in the order of their turns.
    """

    capacity: Amounts
    queues: tuple[QueueReport, ...]
    waiting: tuple[PendingGangReport, ...]


def report_queues(snapshot: Snapshot, profile: Profile, now: float) -> QueueTreeReport:
    """Return a report on all queues and pending gangs of a snapshot, as the next session would find them.

    Args:
      snapshot: the cluster.
      profile: the profile of the scheduler.
      now: seconds since 1970.

    Raises:
      InvalidInput: the profile names a plugin or a policy that does not exist.
    """
    return _QueueReporter(snapshot, profile, now).report_all_queues()


def report_pending_gangs(
    snapshot: Snapshot, profile: Profile, now: float, pause: Pause = do_not_pause
) -> tuple[PendingGangReport, ...]:
    """Return a report on all pending gangs in the order in which the next session tries them.

    Args:
      snapshot: the cluster.
      profile: the profile of the scheduler.
      now: seconds since 1970.
      pause: called between parts of the work.

    Raises:
      InvalidInput: the profile names a plugin or a policy that does not exist.
    """
    reporter = _QueueReporter(snapshot, profile, now, pause)
    pause()
    return reporter.report_pending_gangs()


class _QueueReporter:
    """Computes the report from the tables of a session."""

    def __init__(self, snapshot: Snapshot, profile: Profile, now: float, pause: Pause = do_not_pause) -> None:
        self._now = now
        self._tables = tables = SessionTables(snapshot, standard_registry().create_pipeline(profile), pause)
        pause()
        tables.update_pending_gangs_and_indexes()
        pause()
        self._gangs = [gang for gang in map(tables.pending_gang, self._waiting()) if gang.parts]
        chosen = QueueSharingPolicies(tables.queues, profile.queue_policy)
        past = UsageHistory(past_usage_by_queue(snapshot.usage), profile.usage_half_life_seconds)
        pause()
        self._standing = compute_usage_and_entitlements(
            tables, chosen, self._gangs, profile.scheduler_name, past.usage
        )
        order = make_gang_order_policy(profile.policy.name, profile.policy.args)
        if isinstance(order, AutoOrder):
            order.use_candidate(snapshot.chosen_policy)
        line = tables.pending_gangs.order_by_policy(order, now, [gang.members for gang in self._gangs])
        gangs = [tables.pending_gang(members) for members in line.members]
        pause()
        self._entitles = tables.queues.has_entitlements or profile.queue_policy is not None
        by_priority = orders_gangs_by_priority_first(profile, chosen if self._entitles else None)
        orders = GangPositions(line.columns, line.partially_bound, order, now, by_priority=by_priority)
        orders_by_queue = (
            chosen.gang_orders_by_queue(self._standing.shares, tables.queues.queues) if self._entitles else {}
        )
        positions = orders.positions_in_queues([gang.queue for gang in gangs], orders_by_queue)
        self._position = {gang.members.identity: at for gang, at in zip(gangs, positions, strict=True)}
        # Without entitlements, sessions in strict order try the gangs in the order of the profile.
        turns = FairShareOrder(self._standing, gangs, orders) if by_priority else gangs
        # Surplus that was cut off a gang has a turn of its own, but is no second pending gang.
        self._turns = [gang for gang in turns if not gang.follows]
        counted = counted_pods_by_queue_and_user(tables, profile.scheduler_name)
        self._running = {
            queue: len(gangs) for queue, gangs in running_gang_identities_by_queue(counted).items()
        }

    def _waiting(self) -> Iterable[GangState]:
        queues, access = self._tables.queues, self._tables.queue_access
        return (
            gang
            for gang in self._tables.gangs.values()
            if gang.pending and gang.queue in queues and access.allows_namespace(gang.queue, gang.namespace)
        )

    def report_all_queues(self) -> QueueTreeReport:
        """Return the report on all queues, all pending gangs and the capacity of the cluster."""
        shares = self._standing.shares
        rows = [
            row
            for row in self._depth_first(0)
            if row and not shares.names[row].endswith(OWN_PODGROUPS_SUFFIX)
        ]
        waiting: defaultdict[str, list[PendingGang]] = defaultdict(list)
        for gang in self._gangs:
            for name in self._tables.queues.queue_and_ancestors(gang.queue):
                waiting[name].append(gang)
        return QueueTreeReport(
            capacity=self._amounts(shares.capacity),
            queues=tuple(self._queue(row, waiting[shares.names[row]]) for row in rows),
            waiting=self.report_pending_gangs(),
        )

    def report_pending_gangs(self) -> tuple[PendingGangReport, ...]:
        """Return one report for each pending gang, in the order in which the next session tries the gangs."""
        return tuple(
            PendingGangReport(
                pod_group=gang.key,
                queue=gang.queue,
                share=gang.entitled.name_in_decision if self._entitles else "all",
                priority=gang.priority,
                waited=self._since(gang.created),
                requests=self._amounts(pending_requests_of_gang(self._tables.pending_gang(gang.members))),
                position=self._position[gang.members.identity],
            )
            for gang in self._turns
        )

    def _depth_first(self, row: int) -> list[int]:
        children = np.flatnonzero(self._standing.shares.parent == row).tolist()
        return [row, *(one for child in children for one in self._depth_first(child))]

    def _queue(self, row: int, waiting: Sequence[PendingGang]) -> QueueReport:
        """Return the report on a queue, given the pending gangs of it and of the queues below it."""
        shares, entitled = self._standing.shares, self._standing.entitled
        name, usage = shares.names[row], shares.usage[row]
        chain = shares.row_and_ancestors_without_root(row)
        guarantee = entitled.guarantee[row]
        pending = sum((pending_requests_of_gang(gang) for gang in waiting), np.zeros_like(usage))
        return QueueReport(
            name=name,
            parent=shares.names[int(shares.parent[row])],
            depth=len(chain) - 1,
            weight=float(shares.weight[row]),
            priority=int(shares.priority[row]),
            policy=self._standing.policies[row].name,
            namespaces=self._namespaces(name),
            guarantee=self._amounts(guarantee),
            limit=self._amounts(shares.limit[row]),
            fair_share=self._amounts(entitled.fair[row]),
            allocated=self._amounts(usage),
            borrowed=self._amounts(np.maximum(0, usage - guarantee)),
            pending=self._amounts(pending),
            running=sum(
                count
                for queue, count in self._running.items()
                if name in self._tables.queues.queue_and_ancestors(queue)
            ),
            waiting=len(waiting),
            longest_wait=max((self._since(gang.created) for gang in waiting), default=0.0),
        )

    def _namespaces(self, queue: str) -> str:
        selecting = self._tables.queue_access.find_queue_with_namespace_selector(queue)
        return "" if selecting is None else str(selecting.spec.namespace_selector)

    def _since(self, created: float) -> float:
        """Return the seconds since a creation time, 0 if it is unknown."""
        return max(0.0, self._now - created) if created else 0.0

    def _amounts(self, row: IntArray) -> Amounts:
        shown = np.flatnonzero((row > 0) & (row < UNLIMITED)).tolist()
        names = self._tables.node_table.resources
        return {names[index]: int(row[index]) for index in shown if names[index] != PODS}

"""A refused gang in the tables of a cluster: its pending pods, its limits, and the nodes that its pods may use."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.crd.topology import TopologyLevel
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.errors import PluginError
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.plugin_support.node_selection import (
    REFUSING_EFFECTS,
    mask_nodes_with_labels,
    untolerated_taint_counts,
)
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import BoolArray
from batchsched.queues.tree import QueueLimit
from batchsched.session.gangs.queue_limits import QueueLimits, compute_remaining_limits
from batchsched.session.tables.gang import GangPart, PendingGang
from batchsched.session.tables.session_tables import Pause, SessionTables, do_not_pause
from batchsched.solver.problem import UNLIMITED


def build_session_tables(
    snapshot: Snapshot, profile: Profile, now: float, pause: Pause = do_not_pause
) -> SessionTables:
    """Build the session tables from a Snapshot, for a session at the time `now` (seconds since 1970)."""
    tables = SessionTables(snapshot, standard_registry().create_pipeline(profile), pause)
    pause()
    tables.set_time(now)
    tables.update_pending_gangs_and_indexes()
    return tables


@dataclass(frozen=True, eq=False)
class GangView:
    """A view of one pending gang in a session's tables, which computes values that explain its refusal.

    Args:
      tables: the tables of the cluster.
      gang: the gang.
      scheduler_name: scheduler name of the profile.
    """

    tables: SessionTables
    gang: PendingGang
    scheduler_name: str

    @classmethod
    def from_tables(cls, tables: SessionTables, scheduler_name: str, key: str) -> "GangView | None":
        """Return the `GangView` of the gang with this `namespace/name`; None if it has no pending pod."""
        members = tables.find_gang(key)
        if members is None or not members.pending:
            return None
        gang = tables.pending_gang(members)
        return cls(tables, gang, scheduler_name) if gang.parts else None

    @classmethod
    def from_snapshot(
        cls, snapshot: Snapshot, profile: Profile, now: float, key: str, pause: Pause = do_not_pause
    ) -> "GangView | None":
        """Build tables from a Snapshot; return the `GangView` of a gang, or None if no pod is pending."""
        return cls.from_tables(
            build_session_tables(snapshot, profile, now, pause), profile.scheduler_name, key
        )

    @cached_property
    def pending_pods(self) -> tuple[Pod, ...]:
        """The pending pods of the gang."""
        return tuple(pod for part in self.gang.parts for pod in part.pods)

    @cached_property
    def distinct_pods(self) -> tuple[Pod, ...]:
        """One pending pod of the gang for each distinct pod spec."""
        return tuple({id(pod.spec): pod for pod in self.pending_pods}.values())

    @cached_property
    def node_selector_mask(self) -> BoolArray:
        """A mask [D, N] of `distinct_pods` and nodes: True where the pod's nodeSelector selects the node."""
        table = self.tables.node_table
        return np.array(
            [mask_nodes_with_labels(table, pod.spec.node_selector or {}) for pod in self.distinct_pods]
        )

    @cached_property
    def toleration_mask(self) -> BoolArray:
        """A mask [D, N] of `distinct_pods` and nodes: True where the pod tolerates the taints of the node."""
        table, pods = self.tables.node_table, self.distinct_pods
        return np.array(
            [untolerated_taint_counts(table, pod.tolerations, REFUSING_EFFECTS) == 0 for pod in pods]
        )

    @cached_property
    def filter_results(self) -> tuple[FilterResult | None, ...]:
        """The results of the Filter plugins by gang part (equal pods); None for a part if a plugin failed."""
        return tuple(self._filter_result(part) for part in self.gang.parts)

    def _filter_result(self, part: GangPart) -> FilterResult | None:
        try:
            return self.tables.pipeline.find_nodes_that_pass_filters(part.pod_class, self.tables.node_table)
        except PluginError:
            return None

    @cached_property
    def feasible_node_mask(self) -> BoolArray:
        """A mask [P, N] of gang parts (equal pods) and nodes: True where all Filters accept the pods."""
        rows = np.zeros((len(self.gang.parts), len(self.tables.node_table.nodes)), np.bool_)
        for row, result in enumerate(self.filter_results):
            if result is not None and result.status.ok:
                rows[row] = result.fits
        return rows

    @cached_property
    def required_level(self) -> TopologyLevel | None:
        """The topology level that the gang requires for all its pods; None if it requires no known level."""
        group = self.gang.members.group
        topology = group.spec.topology if group is not None else None
        return self._find_level(topology.name, topology.required) if topology is not None else None

    @cached_property
    def required_levels_with_subgroups(self) -> tuple[TopologyLevel, ...]:
        """The existing topology levels that the gang or its subGroups require."""
        group = self.gang.members.group
        if group is None:
            return ()
        levels = [self.required_level] + [
            self._find_level(group.spec.topology_name_of_subgroup(subgroup), subgroup.topology.required)
            for subgroup in group.spec.sub_groups
            if subgroup.topology is not None
        ]
        return tuple(level for level in levels if level is not None)

    def _find_level(self, topology: str, level: str | None) -> TopologyLevel | None:
        """Return a level, given the name of its Topology and its own name; None if there is none."""
        specs = [item.spec for item in self.tables.snapshot.topologies if item.name == topology]
        index = specs[0].find_level_index(level) if specs and level is not None else None
        return None if index is None else specs[0].levels[index]

    @cached_property
    def queue_limits(self) -> QueueLimits:
        """The limits of all queues, with the amounts that each limit still allows."""
        return compute_remaining_limits(self.tables, self.scheduler_name)

    @cached_property
    def restricting_limit_indexes(self) -> list[int]:
        """The indexes of the queue limits that restrict the gang."""
        if self.gang.queue not in self.tables.queues:
            return []
        return self.queue_limits.finder.indexes_of_limits_that_may_refuse(
            self.tables, self.gang.members.queue_and_user
        )

    @property
    def minimum_requests(self) -> dict[str, int]:
        """The least amount of each resource, except `pods`, that the gang needs to reach its minimum."""
        return {
            resource: int(amount)
            for resource, amount in zip(self.tables.node_table.resources, self.gang.needs, strict=True)
            if amount > 0 and resource != "pods"
        }

    def remaining_amount_of_limit(self, row: int, resource: str) -> int | None:
        """Return how much of a resource a limit still allows: None if unlimited, negative if the limit is exceeded."""
        column = self.tables.node_table.column.get(resource)
        if column is None:
            return None
        amount = int(self.queue_limits.remaining[row, column])
        return None if amount >= UNLIMITED else amount

    def limit_description(self, limit: QueueLimit) -> str:
        """Return the name of a queue limit for messages, such as `queue team-a for user alice`."""
        return f"queue {limit.name} for user {limit.user}" if limit.user else f"queue {limit.name}"

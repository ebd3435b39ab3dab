"""Numbers of pods that match spread constraints, by domain, for the Filter and the Score of a pod class."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from batchsched.api.core.node import HOSTNAME_LABEL
from batchsched.api.core.pod import Pod
from batchsched.framework.constrain import sum_by_domain
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.node_selection import (
    REFUSING_EFFECTS,
    mask_nodes_selected_by_pod,
    untolerated_taint_counts,
)
from batchsched.framework.status import BoolArray, IndexArray, IntArray
from batchsched.plugins.pod_topology_spread.constraints import SpreadConstraint
from batchsched.solver.problem import FloatArray

NO_DOMAIN = 2**31 - 1
"""The global minimum if there is no domain: the largest count in kube-scheduler."""


@dataclass(slots=True, eq=False)
class HardSpreadConstraintCounts:
    """A DoNotSchedule spread constraint of one pod class, with the numbers of matching pods by domain.

    There are D domains and N nodes.

    Args:
      codes: [N] the index of each node's domain; -1 if the label is missing.
      eligible: [N] nodes that count.
      seen: [D] domains with an eligible node.
      counts: [D+1] matching pods on eligible nodes; the last, for a missing label, is 0.
      itself: 1 if the class matches its own selector, else 0.
    """

    constraint: SpreadConstraint
    codes: IndexArray
    eligible: BoolArray
    seen: BoolArray
    counts: IntArray
    itself: int
    _lowest: int | None = field(default=None, init=False)

    def global_minimum(self) -> int:
        """Return the smallest number of matching pods in any domain; 0 if there are fewer domains than minDomains."""
        if self._lowest is None:
            seen = self.counts[:-1][self.seen]
            if len(seen) < self.constraint.min_domains:
                self._lowest = 0
            else:
                self._lowest = int(seen.min()) if len(seen) else NO_DOMAIN
        return self._lowest

    def add_matching_pods(self, node: int, by: int) -> None:
        """Add `by` matching pods to the count of a node's domain; a negative number removes pods."""
        if self.eligible[node]:
            self.counts[self.codes[node]] += by
            self._lowest = None

    def clone(self) -> "HardSpreadConstraintCounts":
        """Return an independent copy of the spread constraint's pod counts."""
        return replace(self, counts=self.counts.copy())


def nodes_included_by_policies(table: NodeTable, pod: Pod, constraint: SpreadConstraint) -> BoolArray:
    """Return a mask [N] of the nodes that a spread constraint's nodeAffinityPolicy and nodeTaintsPolicy include.

    Topology keys do not matter here.
    """
    mask = np.ones(len(table.nodes), np.bool_)
    if constraint.honor_affinity:
        mask &= mask_nodes_selected_by_pod(table, pod)
    if constraint.honor_taints:
        mask &= untolerated_taint_counts(table, pod.tolerations, REFUSING_EFFECTS) == 0
    return mask


def nodes_with_topology_keys(table: NodeTable, constraints: tuple[SpreadConstraint, ...]) -> BoolArray:
    """Return a mask [N] of the nodes that have the topology keys of all given spread constraints.

    Other nodes count for none of them.
    """
    mask = np.ones(len(table.nodes), np.bool_)
    for constraint in constraints:
        mask &= table.label_indexes_and_values(constraint.topology_key)[0] >= 0
    return mask


def matching_pod_counts_by_node(table: NodeTable, constraint: SpreadConstraint) -> IntArray:
    """Return for each node [N] the number of pods that a spread constraint counts.

    Terminating pods do not count, and an empty selector counts no pods.

    Source: `countPodsMatchSelector` of kube-scheduler.
    """
    if constraint.selection.selects_whole_namespaces:
        return np.zeros(len(table.nodes), np.int64)
    return table.pod_table.count_pods_matching_selector_by_node(constraint.selection, terminating=False)


def count_matching_pods_by_domain(
    table: NodeTable, pod: Pod, constraints: tuple[SpreadConstraint, ...]
) -> tuple[HardSpreadConstraintCounts, ...]:
    """Count the matching pods in each domain, for each DoNotSchedule spread constraint of a pod.

    Source: `calPreFilterState` of kube-scheduler.
    """
    labelled = nodes_with_topology_keys(table, constraints)
    spreads = []
    for constraint in constraints:
        codes, values = table.label_indexes_and_values(constraint.topology_key)
        eligible = labelled & nodes_included_by_policies(table, pod, constraint)
        seen = np.zeros(len(values), np.bool_)
        seen[codes[eligible]] = True
        counts = sum_by_domain(
            codes, np.where(eligible, matching_pod_counts_by_node(table, constraint), 0), len(values)
        )
        itself = int(constraint.selection.matches_labels(pod.labels))
        spreads.append(HardSpreadConstraintCounts(constraint, codes, eligible, seen, counts, itself))
    return tuple(spreads)


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleAnywayConstraint:
    """A ScheduleAnyway spread constraint of one pod class, with its penalty for each node.

    Args:
      has: [N] whether the node has the label of the topology key.
      cost: [N] count × weight + (maxSkew - 1).
    """

    has: BoolArray
    cost: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleAnywayConstraints:
    """All ScheduleAnyway spread constraints of a pod class, with the penalties that they give to nodes.

    Args:
      each: the spread constraints.
      ignored: [N] whether the node gets no score.
    """

    each: tuple[ScheduleAnywayConstraint, ...]
    ignored: BoolArray


def compute_schedule_anyway_penalties(
    nodes: Nodes, pod: Pod, constraints: tuple[SpreadConstraint, ...], *, all_keys: bool
) -> ScheduleAnywayConstraints:
    """Compute the penalty that each ScheduleAnyway spread constraint of a pod gives to each node.

    The penalty grows with the number of matching pods.

    Pods on all nodes of the table count. With `all_keys`, nodes without a key neither count nor have a score.

    Source: `initPreScoreState`, `PreScore` and `Score` of kube-scheduler.
    """
    table = nodes.table
    ignored = np.zeros(len(table.nodes), np.bool_)
    if all_keys:
        ignored = ~nodes_with_topology_keys(table, constraints)
    fitting = np.zeros(len(table.nodes), np.bool_)
    fitting[nodes.where] = True
    fitting &= ~ignored
    return ScheduleAnywayConstraints(
        tuple(_preference(table, pod, one, fitting, ~ignored) for one in constraints), ignored
    )


def _preference(
    table: NodeTable, pod: Pod, constraint: SpreadConstraint, fitting: BoolArray, labelled: BoolArray
) -> ScheduleAnywayConstraint:
    codes, values = table.label_indexes_and_values(constraint.topology_key)
    matching = matching_pod_counts_by_node(table, constraint)
    if constraint.topology_key == HOSTNAME_LABEL:
        # For the host name only the pods on the node count, whatever the inclusion policies.
        size, counts = int(fitting.sum()), matching
    else:
        # As in kube-scheduler, a node without the label is in the domain of the empty value.
        missing = values.index("") if "" in values else len(values)
        filled = np.where(codes < 0, missing, codes)
        size = len(np.unique(filled[fitting]))
        counted = labelled & nodes_included_by_policies(table, pod, constraint)
        counts = sum_by_domain(filled, np.where(counted, matching, 0), len(values))[filled]
    weight = math.log(size + 2)
    cost = counts.astype(np.float64) * weight + (constraint.max_skew - 1)
    return ScheduleAnywayConstraint(codes >= 0, cost)

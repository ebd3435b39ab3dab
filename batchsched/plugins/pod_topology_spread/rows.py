"""Solver rows for DoNotSchedule spread constraints: limits on the numbers of pods by class and domain.

The pipeline checks a pod against the pods at its placement; a row describes the end of the session. Within a
session pods are only added, so counts by domain never fall, nor does the global minimum. Below, e_z is the number
of matching pods in domain z at the start, n_z at the end, M the global minimum at the end, and s is maxSkew. All
counts are over the nodes that are eligible for the class; these are also the partition of the rows.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from batchsched.api.core.pod import TopologySpreadConstraint
from batchsched.framework.constrain import (
    EVERY_NODE,
    CandidatePods,
    CandidateSet,
    ConstraintDomains,
    ConstraintRow,
    Sense,
    exclusion_row,
    sum_by_domain,
)
from batchsched.framework.nodes.label_index import LabelSetIndex
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.status import BoolArray, IndexArray, IntArray
from batchsched.plugins.pod_topology_spread.constraints import (
    DO_NOT_SCHEDULE,
    SpreadConstraint,
    spread_constraints_with_action,
)
from batchsched.plugins.pod_topology_spread.counts import (
    matching_pod_counts_by_node,
    nodes_included_by_policies,
    nodes_with_topology_keys,
)
from batchsched.solver.problem import UNLIMITED

PLUGIN = "PodTopologySpread"
UNEVEN = "spread over {key} would exceed maxSkew"
UNLABELLED = "node lacks a topology key of the pod's spread constraints"


@dataclass(slots=True, eq=False)
class SharedSpreadConstraint:
    """A DoNotSchedule spread constraint, the pending pods that have it, and the pending pods that it counts.

    Two constraints are the same if their selector, topology key, maxSkew, minDomains and eligible nodes are equal.

    Args:
      codes: [N] the index of each eligible node's domain; -1 for other nodes.
      strays: [N] nodes that have all topology keys and are not eligible. Only other plugins refuse the pods there.
      itself: whether the candidates match the selector.
      members, matching: candidates with the constraint; all candidates that it counts.
    """

    constraint: SpreadConstraint
    codes: IndexArray
    strays: BoolArray
    itself: bool
    matching: tuple[CandidatePods, ...]
    members: list[CandidatePods] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class DomainCounts:
    """The numbers of matching pods by topology domain when a session begins.

    The methods compute bounds of the smallest of these numbers at the end of the session.

    Args:
      seen: [D] domains with an eligible node.
      existing: [D] current number of matching pods.
      landable: [D] domains in which a matching pod may be placed.
    """

    seen: BoolArray
    existing: IntArray
    landable: BoolArray

    def reachable_global_minimum(self, pods: int) -> int:
        """Return the largest global minimum that is possible after `pods` more matching pods are placed.

        The global minimum is the number of matching pods in the domain that has the fewest. To bring every domain to
        level M, Σ_z max(0, M - e_z) pods are needed, so a level with a larger sum is impossible. A domain where no pod
        can be placed keeps its level.
        """
        closed = self.existing[self.seen & ~self.landable]
        level = reachable_minimum(self.existing[self.seen & self.landable], pods)
        return min(level, int(closed.min())) if len(closed) else level

    def required_global_minimum(self, pods: int, skew: int) -> int:
        """Return the smallest global minimum with which `pods` more matching pods fit within maxSkew.

        That is the smallest m with Σ_z max(0, s + m - e_z) ≥ pods.
        """
        open_ = self.existing[self.seen & self.landable]
        if not len(open_):
            return UNLIMITED
        level = reachable_minimum(open_, pods)
        if int(np.maximum(0, level - open_).sum()) < pods:
            level += 1
        return level - skew


def reachable_minimum(existing: IntArray, pods: int) -> int:
    """Return the largest number m for which `pods` new pods suffice to fill every domain to at least m pods.

    That is the largest level with Σ max(0, level - existing) ≤ pods; UNLIMITED without domains.
    """
    if not len(existing):
        return UNLIMITED
    rising = np.sort(existing)
    width = np.arange(1, len(rising) + 1)
    # If only the k domains with the fewest pods are filled, the level is (pods + their sum) / k. The right k is the
    # one with a level not above the next domain.
    levels = (pods + np.cumsum(rising)) // width
    following = np.append(rising[1:], UNLIMITED)
    return int(levels[np.argmax(levels < following)])


def spread_constraint_rows(
    batch: CandidateSet, table: NodeTable, defaults: tuple[TopologySpreadConstraint, ...]
) -> Sequence[ConstraintRow]:
    """Return the solver's linear constraints for the DoNotSchedule spread constraints of the pending pods."""
    constrained = [
        (candidate, spread_constraints_with_action(candidate.pod_class.pod, DO_NOT_SCHEDULE, defaults, table))
        for candidate in batch.candidates
    ]
    rows = list(_unlabelled(batch, table, constrained))
    for family in _families(batch, table, constrained):
        rows.extend(_family_rows(batch, table, family))
    return rows


def _unlabelled(
    batch: CandidateSet,
    table: NodeTable,
    constrained: Iterable[tuple[CandidatePods, tuple[SpreadConstraint, ...]]],
) -> Iterator[ConstraintRow]:
    """Yield Σ x ≤ 0 on the nodes without a key: the Filter refuses them whatever is placed."""
    of_keys: dict[frozenset[str], list[int]] = {}
    for candidate, constraints in constrained:
        if constraints:
            keys = frozenset(one.topology_key for one in constraints)
            of_keys.setdefault(keys, []).append(candidate.index)
    for keys, classes in of_keys.items():
        lacking = np.zeros(len(table.nodes), np.bool_)
        for key in keys:
            lacking |= table.label_indexes_and_values(key)[0] < 0
        if lacking.any():
            yield exclusion_row(PLUGIN, UNLABELLED, batch, classes, lacking)


def _families(
    batch: CandidateSet,
    table: NodeTable,
    constrained: Iterable[tuple[CandidatePods, tuple[SpreadConstraint, ...]]],
) -> Iterable[SharedSpreadConstraint]:
    index = LabelSetIndex()
    for candidate in batch.candidates:
        index.add_label_set(candidate.pod_class.pod.namespace, candidate.pod_class.pod.labels)
    families: dict[Hashable, SharedSpreadConstraint] = {}
    for candidate, constraints in constrained:
        pod = candidate.pod_class.pod
        labelled = nodes_with_topology_keys(table, constraints) if constraints else None
        for constraint in constraints:
            # An empty selector counts no pod, so the skew never exceeds 1.
            if constraint.selection.selects_whole_namespaces or labelled is None:
                continue
            eligible = labelled & nodes_included_by_policies(table, pod, constraint)
            itself = constraint.selection.matches_labels(pod.labels)
            identity = (
                constraint.selection.selector_key,
                constraint.topology_key,
                constraint.max_skew,
                constraint.min_domains,
            )
            key = (identity, itself, eligible.tobytes(), labelled.tobytes())
            if key not in families:
                codes = np.where(
                    eligible, table.label_indexes_and_values(constraint.topology_key)[0], -1
                ).astype(np.int32)
                matching = tuple(
                    batch.candidates[number]
                    for number in index.matching_label_set_numbers(constraint.selection)
                )
                families[key] = SharedSpreadConstraint(
                    constraint, codes, labelled & ~eligible, itself, matching
                )
            if candidate not in families[key].members[-1:]:  # stated twice
                families[key].members.append(candidate)
    return families.values()


def _family_rows(
    batch: CandidateSet, table: NodeTable, family: SharedSpreadConstraint
) -> Iterator[ConstraintRow]:
    inside = family.codes >= 0
    if not inside.any():
        return
    size = len(table.label_indexes_and_values(family.constraint.topology_key)[1])
    existing = sum_by_domain(
        family.codes, np.where(inside, matching_pod_counts_by_node(table, family.constraint), 0), size
    )[:-1]
    seen, landable = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    seen[family.codes[inside]] = True
    for candidate in family.matching:
        landable[family.codes[inside & _fits(candidate)]] = True
    levels = DomainCounts(seen, existing, landable)
    domains = ConstraintDomains.from_domain_numbers(batch, family.codes)
    yield from _upper(family, levels, domains)
    if family.itself and int(seen.sum()) >= family.constraint.min_domains:
        for members in _rigid_gangs(family.members):
            yield from _lower(family, levels, domains, members)


def _upper(
    family: SharedSpreadConstraint, levels: DomainCounts, domains: ConstraintDomains
) -> Iterator[ConstraintRow]:
    """Yield rows: no domain exceeds the highest possible minimum by more than maxSkew.

    Consider the last pod of the members that is placed in z. It found n pods there, and the minimum m. The Filter
    accepted it: n + 1 ≤ s + m if members match themselves. All earlier pods of the members count, so e_z + Σ x_z -
    1 ≤ n, and m is at most the highest level with all other pods. Therefore Σ x_z ≤ s + highest - e_z; without a
    pod in z, Σ x_z = 0 satisfies max(0, …). Members that do not match themselves only need n ≤ s + m: a domain with
    e_z > s + highest is closed to them. With fewer domains than minDomains, m is always 0.

    Pods of a gang are placed only if the gang is, so the right side may be multiplied by its y.
    """
    enough = int(levels.seen.sum()) >= family.constraint.min_domains
    coming = sum(one.count for one in family.matching) - int(family.itself)
    limit = family.constraint.max_skew + (levels.reachable_global_minimum(coming) if enough else 0)
    count = sum(one.count for one in family.members)
    closed = np.where(levels.existing > limit, 0, count)
    right = np.clip(limit - levels.existing, 0, count) if family.itself else closed
    if (right[levels.seen] >= count).all():
        return
    gangs = {one.gang for one in family.members}
    row_right = domains.row_limits(right)
    alone = len(gangs) == 1 and domains.partition != EVERY_NODE
    yield ConstraintRow(
        partition=domains.partition,
        classes=_indexes(family.members),
        coefficients=np.ones(len(family.members), np.int64),
        right=np.zeros(len(row_right), np.int64) if alone else row_right,
        gangs=np.asarray(sorted(gangs) if alone else [], np.int32),
        gang_coefficients=-row_right[:, np.newaxis] if alone else np.zeros((len(row_right), 0), np.int64),
        plugin=PLUGIN,
        reason=UNEVEN.format(key=family.constraint.topology_key),
    )


def _lower(
    family: SharedSpreadConstraint,
    levels: DomainCounts,
    domains: ConstraintDomains,
    members: Sequence[CandidatePods],
) -> Iterator[ConstraintRow]:
    """Yield rows: a gang that is placed completely also fills the domains with the fewest pods.

    All T pods of `members`, of one rigid gang, are placed if the gang is. As above, e_z + x_z ≤ s + M in each
    domain with one of them, so T = Σ x_z ≤ Σ_z max(0, s + M - e_z) over the domains where they may be placed. M is
    at least the least level that satisfies this. Every domain then ends with at least M matching pods of any class:
    Σ_matching x_z ≥ (least - e_z)·y.

    With maxSkew 1 and no other matching pods, each pod is placed in a domain with the minimum in any order, so the
    T pods end at the reachable minimum. A pod on a node that does not count would be missing in the sum T: if it can
    reach such nodes, there is no row.
    """
    fitting = np.zeros(len(family.codes), np.bool_)
    for candidate in members:
        fitting |= _fits(candidate)
    if (fitting & family.strays).any():
        return
    own = np.zeros_like(levels.landable)
    own[family.codes[fitting & (family.codes >= 0)]] = True
    reach = DomainCounts(levels.seen, levels.existing, own)
    placed = sum(one.count for one in members)
    level = reach.required_global_minimum(placed, family.constraint.max_skew)
    if family.constraint.max_skew == 1 and len(members) == len(family.matching):
        level = max(level, reach.reachable_global_minimum(placed))
    if level >= UNLIMITED:
        return
    right = domains.row_limits(np.maximum(0, level - levels.existing), 0)
    if right.any():
        yield ConstraintRow(
            partition=domains.partition,
            classes=_indexes(family.matching),
            coefficients=np.ones(len(family.matching), np.int64),
            right=np.zeros(len(right), np.int64),
            sense=Sense.AT_LEAST,
            gangs=np.asarray([members[0].gang], np.int32),
            gang_coefficients=-right[:, np.newaxis],
            plugin=PLUGIN,
            reason=UNEVEN.format(key=family.constraint.topology_key),
        )


def _rigid_gangs(members: Sequence[CandidatePods]) -> Iterable[list[CandidatePods]]:
    of_gang: dict[int, list[CandidatePods]] = {}
    for candidate in members:
        if candidate.rigid:
            of_gang.setdefault(candidate.gang, []).append(candidate)
    return of_gang.values()


def _fits(candidate: CandidatePods) -> BoolArray | np.bool_:
    return np.True_ if candidate.fits is None else candidate.fits


def _indexes(candidates: Iterable[CandidatePods]) -> IndexArray:
    return np.asarray([one.index for one in candidates], np.int32)

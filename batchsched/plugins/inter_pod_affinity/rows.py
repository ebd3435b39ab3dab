"""Solver rows for required affinity and anti-affinity: limits on the numbers of pods by class and domain.

Within a session pods are only added. A refusal that exists now therefore exists at the end, and two pods that
exclude each other in both orders are never in one domain at the end.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from batchsched.api.core.pod import PodAffinityTerm
from batchsched.framework.constrain import (
    CandidatePods,
    CandidateSet,
    ConstraintDomains,
    ConstraintRow,
    exclusion_row,
    pod_limit_row,
)
from batchsched.framework.nodes.label_index import LabelSetIndex, PodSelector, selector_key
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.status import BoolArray, IndexArray, IntArray
from batchsched.plugins.inter_pod_affinity.terms import (
    AffinityTerm,
    DomainMatchCounts,
    combined_selector,
    existing_term_matches_pending_pod,
    pod_affinity_of,
    pod_anti_affinity_of,
    pod_with_namespace_labels,
    resolve_terms,
    topology_keys,
)
from batchsched.solver.problem import NONE, UNLIMITED

PLUGIN = "InterPodAffinity"
APART = "pods must not share a domain of {key}"
TOGETHER = "pods must share a domain of {key} with pods that they need"
CLOSED = "pods that are there keep the pod away, or the node lacks a topology key"


@dataclass(slots=True, eq=False)
class AffinityCandidateIndex:
    """An index for solver rows: it finds pending pods by label, and the topology domain of each node."""

    batch: CandidateSet
    table: NodeTable
    index: LabelSetIndex = field(default_factory=LabelSetIndex)

    def __post_init__(self) -> None:
        for candidate in self.batch.candidates:
            self.index.add_label_set(candidate.pod_class.pod.namespace, candidate.pod_class.pod.labels)

    def select_candidates(self, selection: PodSelector) -> list[CandidatePods]:
        """Return the pending pods that the selector `selection` matches, grouped by gang and pod class."""
        return [self.batch.candidates[at] for at in self.index.matching_label_set_numbers(selection)]

    def domain_indexes(self, key: str) -> IndexArray:
        """Return an array [N] with the index of each node's topology domain; -1 if a node has no domain."""
        return self.table.label_indexes_and_values(key)[0]


def affinity_constraint_rows(batch: CandidateSet, table: NodeTable) -> Sequence[ConstraintRow]:
    """Return the solver's linear constraints for required pod affinity and anti-affinity of the pending pods."""
    candidates = AffinityCandidateIndex(batch, table)
    return [*_closed(candidates), *_apart(candidates), *_together(candidates)]


def _closed(candidates: AffinityCandidateIndex) -> Iterator[ConstraintRow]:
    """Yield Σ x ≤ 0 on nodes that refuse a class whatever is placed.

    These are nodes in a domain with a pod that matches the class's anti-affinity, or has anti-affinity that matches
    the class; and nodes without a topology key of the class's affinity.
    """
    refused: dict[int, BoolArray] = {}
    for class_index, mask in (
        *_excluded_by_existing(candidates),
        *_excluded_by_own_terms(candidates),
        *_unlabelled(candidates),
    ):
        refused[class_index] = refused[class_index] | mask if class_index in refused else mask
    sharing: dict[bytes, tuple[BoolArray, list[int]]] = {}
    for class_index, mask in sorted(refused.items(), key=lambda pair: pair[0]):
        if mask.any():
            sharing.setdefault(mask.tobytes(), (mask, []))[1].append(class_index)
    for mask, classes in sharing.values():
        yield exclusion_row(PLUGIN, CLOSED, candidates.batch, classes, mask)


def _excluded_by_existing(candidates: AffinityCandidateIndex) -> Iterator[tuple[int, BoolArray]]:
    """Yield classes, and nodes where the anti-affinity of an existing pod matches them."""
    for group in candidates.table.pod_table.affinity_groups:
        repulsion = group.affinity.pod_anti_affinity
        for raw_term in repulsion.required_terms if repulsion is not None else ():
            tally: DomainMatchCounts | None = None
            for candidate in candidates.select_candidates(
                PodSelector.from_label_selector(raw_term.label_selector)
            ):
                if not existing_term_matches_pending_pod(
                    raw_term,
                    group.namespace,
                    pod_with_namespace_labels(candidate.pod_class.pod, candidates.table),
                ):
                    continue
                if tally is None:
                    tally = DomainMatchCounts(candidates.table)
                    tally.add_pod_counts_of_affinity_group(raw_term.topology_key, group)
                yield (
                    candidate.index,
                    tally.counts_by_domain(raw_term.topology_key)[
                        candidates.domain_indexes(raw_term.topology_key)
                    ]
                    > 0,
                )


def _excluded_by_own_terms(candidates: AffinityCandidateIndex) -> Iterator[tuple[int, BoolArray]]:
    """Yield classes, and nodes where an existing pod matches their anti-affinity."""
    for candidate in candidates.batch.candidates:
        pod = candidate.pod_class.pod
        for term in resolve_terms(pod_anti_affinity_of(pod).required_terms, pod, candidates.table):
            tally = DomainMatchCounts(candidates.table)
            counts = candidates.table.pod_table.count_pods_matching_selector_by_node(term.selection)
            if tally.add_pod_counts(term.topology_key, counts):
                yield (
                    candidate.index,
                    tally.counts_by_domain(term.topology_key)[candidates.domain_indexes(term.topology_key)]
                    > 0,
                )


def _unlabelled(candidates: AffinityCandidateIndex) -> Iterator[tuple[int, BoolArray]]:
    """Yield classes, and nodes without a topology key of their affinity."""
    for candidate in candidates.batch.candidates:
        for term in pod_affinity_of(candidate.pod_class.pod).required_terms:
            yield candidate.index, candidates.domain_indexes(term.topology_key) < 0


def _apart(candidates: AffinityCandidateIndex) -> Iterator[ConstraintRow]:
    """Yield rows for each distinct anti-affinity term of the candidates.

    A pod is refused if its own term matches a pod in the domain, as a term of a pending pod is read; and if the
    term of a pod in the domain matches it, as a term of an existing pod is read. Holders of a term that matches
    themselves exclude each other in both orders: a domain has at most one of them. A holder and another pod exclude
    each other in both orders if both readings match that other pod, which is then a target.
    """
    holders: dict[Hashable, tuple[PodAffinityTerm, AffinityTerm, list[CandidatePods]]] = {}
    for candidate in candidates.batch.candidates:
        pod = candidate.pod_class.pod
        raw_terms = pod_anti_affinity_of(pod).required_terms
        for raw, term in zip(raw_terms, resolve_terms(raw_terms, pod, candidates.table), strict=True):
            key = (
                term.topology_key,
                term.selection.selector_key,
                raw.namespaces,
                selector_key(raw.namespace_selector),
                pod.namespace,
            )
            members = holders.setdefault(key, (raw, term, []))[2]
            if candidate not in members[-1:]:  # stated twice
                members.append(candidate)
    for raw, term, members in holders.values():
        yield from _of_term(candidates, raw, term, members)


def _of_term(
    candidates: AffinityCandidateIndex, raw: PodAffinityTerm, term: AffinityTerm, holders: list[CandidatePods]
) -> Iterator[ConstraintRow]:
    """Yield rows for one term. A domain has three kinds of pods.

    These are exclusive holders P, other holders H, and targets D that do not hold the term.

    Σ_P x ≤ 1, and with P excluding D:       |D|·Σ_P x + Σ_D x ≤ |D|,           where |D| pods of D are pending at
    most.
    H excluding T, the targets in P and D:   |T|·Σ_H x + |H|·Σ_T x ≤ |H|·|T|,   |T| = 1 when all of T is in P.

    Each row holds if either side is 0, and never are both sides above 0. The last row states its two sides, since the
    sum admits some pods of both.
    """
    namespace = holders[0].pod_class.pod.namespace
    matched = candidates.select_candidates(term.selection)
    own = {one.index for one in holders}
    names = {one.index for one in matched}
    exclusive = [one for one in holders if one.index in names]
    non_targets = [one for one in holders if one.index not in names]
    targets = [
        candidate
        for candidate in matched
        if existing_term_matches_pending_pod(
            raw, namespace, pod_with_namespace_labels(candidate.pod_class.pod, candidates.table)
        )
    ]
    free = [one for one in targets if one.index not in own]
    codes = candidates.domain_indexes(term.topology_key)
    if not (codes >= 0).any():
        return
    domains = ConstraintDomains.from_domain_numbers(candidates.batch, codes)
    reason = APART.format(key=term.topology_key)
    if exclusive and (free or _count(exclusive) > 1):
        weight = max(1, _count(free))
        yield _row(domains, [(exclusive, weight), (free, 1)], weight, reason)
    if non_targets and targets:
        most = _count(targets) if free else 1
        row = _row(
            domains, [(non_targets, most), (targets, _count(non_targets))], most * _count(non_targets), reason
        )
        yield replace(row, on_second_side=np.isin(row.classes, [one.index for one in targets]))


def _together(candidates: AffinityCandidateIndex) -> Iterator[ConstraintRow]:
    """Yield rows for each distinct set of affinity terms of the candidates.

    Let K be the candidates with the terms, F those that match all of them, and z a domain without a matching pod
    now. If a matching pod exists anywhere, the exception for the first pod does not apply, now or later. A pod of K
    is placed in z only after a pod of F; the first of F in z is not in K, by the same rule: Σ_K x ≤ |K|·Σ_(F
    without K) x.

    If no matching pod exists, the exception applies only to pods that match themselves. For the others of K, those
    outside F: Σ x ≤ |K|·Σ_F x. For the first pod and those equal to it see `_register_colocation`.
    """
    sets: dict[Hashable, tuple[tuple[AffinityTerm, ...], list[CandidatePods]]] = {}
    for candidate in candidates.batch.candidates:
        pod = candidate.pod_class.pod
        terms = resolve_terms(pod_affinity_of(pod).required_terms, pod, candidates.table)
        if terms:
            selector_key = tuple((term.topology_key, term.selection.selector_key) for term in terms)
            sets.setdefault(selector_key, (terms, []))[1].append(candidate)
    for terms, members in sets.values():
        affinity_matches = DomainMatchCounts(candidates.table)
        selection = combined_selector(terms)
        counts = candidates.table.pod_table.count_pods_matching_selector_by_node(selection)
        for key in topology_keys(terms):
            affinity_matches.add_pod_counts(key, counts)
        matching = candidates.select_candidates(selection)
        names, own = {one.index for one in matching}, {one.index for one in members}
        if affinity_matches.has_nonzero_count():
            bound, seeds = members, [one for one in matching if one.index not in own]
        else:
            bound, seeds = [one for one in members if one.index not in names], matching
            if own >= names:
                _register_colocation(candidates, terms, members)
        if not bound:
            continue
        for key in topology_keys(terms):
            codes = candidates.domain_indexes(key)
            if not (codes >= 0).any():
                continue
            right = np.where(affinity_matches.counts_by_domain(key)[:-1] > 0, _count(bound), 0)
            yield _row(
                ConstraintDomains.from_domain_numbers(candidates.batch, codes),
                [(bound, 1), (seeds, -_count(bound))],
                right,
                TOGETHER.format(key=key),
            )


def _register_colocation(
    candidates: AffinityCandidateIndex, terms: tuple[AffinityTerm, ...], members: Sequence[CandidatePods]
) -> None:
    """Register gangs and subgroups that end in one domain. This is no linear row, but a required topology level.

    No pod matches now, and only pods of K will. The first pod of K uses the exception, and every later one needs a
    pod of K in its domain, so all of K is in the domain of the first. This is registered for gangs if all their
    classes are in K, otherwise for their subgroups with all classes in K, and for the key with the most domains.
    """
    own = {one.index for one in members}
    split = {one.gang for one in candidates.batch.candidates if one.index not in own}
    split_subgroups = {one.subgroup for one in candidates.batch.candidates if one.index not in own}
    finest = max(topology_keys(terms), key=lambda key: len(candidates.table.label_indexes_and_values(key)[1]))
    for gang in sorted({one.gang for one in members} - split):
        candidates.batch.gathered.setdefault(gang, finest)
    for subgroup in sorted({one.subgroup for one in members if one.gang in split} - split_subgroups - {NONE}):
        candidates.batch.gathered_subgroups.setdefault(subgroup, finest)


def _count(candidates: Iterable[CandidatePods]) -> int:
    return sum(one.count for one in candidates)


def _row(
    domains: ConstraintDomains,
    sides: Sequence[tuple[Sequence[CandidatePods], int]],
    right: int | IntArray,
    reason: str,
) -> ConstraintRow:
    """Return the row Σ factor · Σ x ≤ right for every domain. A candidate on two sides counts with both factors."""
    factors: dict[int, int] = {}
    for candidates, factor in sides:
        for candidate in candidates:
            factors[candidate.index] = factors.get(candidate.index, 0) + factor
    values = np.full(int(domains.codes.max()) + 1, right) if isinstance(right, int) else right
    limits = domains.row_limits(values.astype(np.int64), UNLIMITED)
    return pod_limit_row(PLUGIN, reason, domains.partition, factors, limits)

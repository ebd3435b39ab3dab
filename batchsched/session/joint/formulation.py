"""The formulation: turns gangs, queues and topology of a session into the solver's problem."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.gang import gang_key_from_identity
from batchsched.config.schema import Profile
from batchsched.errors import PluginError
from batchsched.framework.constrain import CandidatePods, CandidateSet
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import BoolArray, IntArray
from batchsched.session.gangs.queue_limits import QueueLimits
from batchsched.session.statement import GangPlacement
from batchsched.session.tables.bound_domains import count_bound_pods_by_domain, domain_with_most_bound_pods
from batchsched.session.tables.gang import EntitlementClass, GangPart, GangState, PendingGang
from batchsched.session.tables.session_tables import SessionTables
from batchsched.session.tables.topology_levels import RequestedLevels, TopologyLevels
from batchsched.solver.problem import (
    ALL_NODES,
    NONE,
    ConstraintRow,
    IndexArray,
    Problem,
    ProblemClassKinds,
    ProblemGangs,
    ProblemNodes,
    ProblemPodClasses,
    ProblemQuotas,
    ProblemSubgroups,
    RunningSlicePodCounts,
    UsedPreferredDomains,
)
from batchsched.solver.rank_layout import RankedPodClass
from batchsched.solver.relaxation.budget import ExplanationBudget


@dataclass(frozen=True, slots=True, eq=False)
class FeasibleNodes:
    """The nodes that may accept pods of one class, now or later in the session, with the nodes' scores.

    Args:
      scan: the answers of PreFilter and Filter on the tables as they are; None if a plugin failed.
      mask: [N] nodes that no filter refuses for the whole session. A node is included if it is only full, or if a
        filter may accept it once another pod is placed.
      lasting: [N] nodes that filters refuse at most because of capacity or of other pods, so that they may accept the
        node when running pods end.
      score: [N] total score where `mask` is set, 0 elsewhere.
      failure: message of the plugin's failure, "" for none; the masks are empty then.
      plugin: the plugin that failed.
      steady: True if `lasting` depends only on node and pod objects: it is valid as long as these do not change.
      shrinking: True if placed pods can only remove nodes from `mask`: no filter accepts a refused node later.
    """

    scan: FilterResult | None
    mask: BoolArray
    lasting: BoolArray
    score: IntArray
    failure: str = ""
    plugin: str = ""
    steady: bool = False
    shrinking: bool = False


class FeasibleNodesByPodClass:
    """The feasible nodes and their scores for each pod class of a session, computed when first needed.

    Answers depend on the pods in the node table. Make a new object after pods were placed.

    Args:
      tables: nodes and pods as the session finds them.
      scores: also compute scores; victims are chosen without them.
    """

    def __init__(self, tables: SessionTables, *, scores: bool = True) -> None:
        self._tables = tables
        self._scores = scores
        # The class is part of the value: its id may be used again once it is gone.
        self._feasible_nodes: dict[int, tuple[PodClass, FeasibleNodes]] = {}

    def feasible_nodes_of(self, pod_class: PodClass) -> FeasibleNodes:
        """Return the feasible nodes and their scores for a pod class.

        Classes that differ only in priority share a result, if no plugin reads the priority.
        """
        first = pod_class.pod_class_for_result_cache
        entry = self._feasible_nodes.get(id(first))
        if entry is None:
            entry = self._feasible_nodes[id(first)] = (first, self._compute(first))
        return entry[1]

    def precompute_feasible_nodes(self, classes: Iterable[PodClass]) -> None:
        """Compute the feasible nodes and scores of pod classes now instead of when they are first needed.

        The caller can then measure the time of the plugins separately.
        """
        for pod_class in classes:
            self.feasible_nodes_of(pod_class)

    def _compute(self, pod_class: PodClass) -> FeasibleNodes:
        tables, pipeline = self._tables, self._tables.pipeline
        node_count = len(tables.node_table.nodes)
        no_node = np.zeros(node_count, np.bool_)
        score = np.zeros(node_count, np.int64)
        try:
            results = tables.result_cache.results_of_pod_class(pod_class)
            scan = pipeline.find_nodes_that_pass_filters(pod_class, tables.node_table, results)
            if not scan.status.ok:
                return FeasibleNodes(scan, no_node, no_node, score)
            mask = np.ones(node_count, np.bool_) if scan.outside is None else ~scan.outside
            lasting = mask.copy()
            for plugin, verdict in zip(scan.plugins, scan.verdicts, strict=True):
                if not verdict.reasons:
                    continue  # it accepts every node
                if plugin in pipeline.unaffected_filters:
                    lasting &= verdict.feasible_mask
                if plugin in pipeline.steady_filters:
                    mask &= verdict.feasible_mask
            asks_extender = pipeline.extenders.is_interested(pod_class.pod)
            steady = pipeline.unaffected_filters.issuperset(scan.narrowed_by) and not asks_extender
            shrinking = pipeline.never_reopening_filters.issuperset(scan.plugins)
            # An extender is asked once for the class, so about every node that a pod of it may get.
            for url, verdict in pipeline.extenders.filter(pod_class.pod, mask, tables.node_table):
                scan = scan.with_refusals(((url, verdict),))
                mask &= verdict.feasible_mask
                lasting &= ~verdict.unresolvable
            if self._scores and mask.any():
                feasible = results.feasible_node_indexes(mask)
                score[feasible] = pipeline.score(pod_class, feasible, tables.node_table, scan.state, results)
            return FeasibleNodes(scan, mask, lasting, score, steady=steady, shrinking=shrinking)
        except PluginError as error:
            # A failing plugin costs the gangs of this class their place, not the session.
            no_score = np.zeros(node_count, np.int64)
            return FeasibleNodes(None, no_node, no_node, no_score, str(error), error.plugin)


SECONDS_PER_DAY = 86400.0
AGE_BONUS = 0.5
"""A gang that is a day older than the youngest pending one weighs 1 + AGE_BONUS times as much."""
STRICT_ORDER: Final = "strict-fifo"
"""Plugin name in the rows that keep gangs of strict queues in order; their reason is the key of the gang ahead."""


@dataclass(frozen=True, slots=True, eq=False)
class Formulation:
    """A solver problem, with the gangs, equal pods, tiers and queue limits to which its indexes refer.

    Args:
      problem: the tables of the solver.
      gangs: gang by gang number.
      parts: (gang number, part) by class number.
      tiers: (entitlement class, priority) by tier number. Partially bound gangs have tiers of their own, before the
        others.
      quotas: the queue limits, in the order of the problem's quotas.
      failures: message of the plugin that failed in Constrain, by number of the gang over which it failed.
      gathered: node label that must have one value for all pods of a gang because of a plugin's rule, by gang number.
      gathered_subgroups: the same for the pods of a subgroup, by number of the subgroup.
      ranked: the pod classes with ranks, and the topology levels that the cost of these ranks counts.
    """

    problem: Problem
    gangs: tuple[PendingGang, ...]
    parts: tuple[tuple[int, GangPart], ...]
    tiers: tuple[tuple[EntitlementClass, int], ...]
    quotas: QueueLimits
    failures: dict[int, str] = field(default_factory=dict)
    gathered: dict[int, str] = field(default_factory=dict)
    gathered_subgroups: dict[int, str] = field(default_factory=dict)
    ranked: tuple[RankedPodClass, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class FormulationInput:
    """The values from which a session formulates solver problems, such as tables, profile and remaining queue limits.

    The value is frozen: after a gang was placed, make a new one with what the queues still allow.

    Args:
      tables: nodes, gangs and classes.
      profile: the scheduling profile.
      levels: topology levels and their domains.
      quotas: what the queues still allow.
      feasible_nodes: the feasible nodes and scores of each pod class.
      explanations: the work that explanations of refusals may still cost in this session.
    """

    tables: SessionTables
    profile: Profile
    levels: TopologyLevels
    quotas: QueueLimits
    feasible_nodes: FeasibleNodesByPodClass
    explanations: ExplanationBudget = field(default_factory=ExplanationBudget)

    def after_placements(self, placements: Sequence[GangPlacement]) -> Self:
        """Return the input with queue limits that are reduced by the requests of the given placements."""
        return replace(self, quotas=self.quotas.after_placements(self.tables, placements))

    def with_fresh_feasible_nodes(self) -> Self:
        """Return the input without cached Filter results and scores, for use after pods were placed."""
        return replace(self, feasible_nodes=FeasibleNodesByPodClass(self.tables))


def age_factor(created: float, youngest: float) -> float:
    """Return the age factor of a gang's weight: 1 for the youngest gang, 1.5 for a gang that is a day older.

    The factor is 1 + 0.5 · min(1, (age - age of the youngest) / 24 h).

    Source: the weight of a gang in the decision format.
    """
    return 1.0 + AGE_BONUS * min(1.0, max(0.0, youngest - created) / SECONDS_PER_DAY)


def formulate_problem(
    inputs: FormulationInput,
    gangs: Sequence[PendingGang],
    youngest: float,
    *,
    lasting: bool = False,
    units: Sequence[Sequence[Pod]] = (),
) -> Formulation:
    """Return the solver problem of placing the given gangs, with the objects to which its indexes refer.

    Args:
      inputs: tables, levels, quotas and feasible nodes.
      gangs: the gangs, in the order that decides between equals.
      youngest: seconds since 1970 at which the youngest pending gang was submitted.
      lasting: use masks that stay true when running pods end, for questions about a later time.
      units: running pods that may be evicted; the rows state how evictions relax them.
    """
    tables = inputs.tables
    parts = tuple((number, part) for number, gang in enumerate(gangs) for part in gang.parts)
    tiers = sorted({gang.tier_sort_key for gang in gangs})
    number_of_tier = {tier: number for number, tier in enumerate(tiers)}
    subs = _Subgroups(inputs, gangs)
    choices = [inputs.levels.requested_levels_of_gang(gang.members.group) for gang in gangs]
    factors = [age_factor(gang.created, youngest) for gang in gangs]
    used = _used_domains(inputs, gangs, choices)
    # Classes that differ in priority alone are one kind: none of their plugins reads the priority.
    kinds = {
        id(part.pod_class.pod_class_for_result_cache): part.pod_class.pod_class_for_result_cache
        for _, part in parts
    }
    kind_number = {class_id: number for number, class_id in enumerate(kinds)}
    kind = [kind_number[id(part.pod_class.pod_class_for_result_cache)] for _, part in parts]
    mask, score = _stack_kinds(
        inputs.feasible_nodes, list(kinds.values()), len(tables.node_table.nodes), lasting=lasting
    )
    batch = CandidateSet(
        [
            CandidatePods(
                index,
                part.pod_class,
                number,
                len(part.pods),
                gangs[number].pending_pod_count == gangs[number].need,
                mask[kind[index]],
                subs.subgroup_number(number, part.subgroup),
            )
            for index, (number, part) in enumerate(parts)
        ],
        units,
    )
    rows, failures = _plugin_rows(tables, batch)
    rows += _precedence(gangs)
    gathered: dict[int, str] = {}
    for number, key in batch.gathered.items():
        # A level that the PodGroup requires is the narrower rule. A gang with bound pods is pinned by these already.
        if choices[number].required == NONE and gangs[number].has_no_bound_pod:
            gathered[number] = key
            choices[number] = replace(
                choices[number], required=inputs.levels.find_or_add_label_level(key, tables.node_table)
            )
    gathered_subgroups: dict[int, str] = {}
    for number, key in batch.gathered_subgroups.items():
        if subs.choices[number].required == NONE and gangs[subs.gang[number]].has_no_bound_pod:
            gathered_subgroups[number] = key
            level = inputs.levels.find_or_add_label_level(key, tables.node_table)
            subs.choices[number] = replace(subs.choices[number], required=level)
    problem = Problem(
        nodes=ProblemNodes(
            # An overcommitted node offers nothing; a negative amount would free room elsewhere in sums.
            free=np.maximum(0, tables.free_resources()),
            capacity=tables.offered_capacity(),
            levels=inputs.levels.domains,
            partitions=tuple(batch.partitions),
        ),
        kinds=ProblemClassKinds(mask=mask, score=score),
        classes=ProblemPodClasses(
            demand=_stack([part.pod_class.requests for _, part in parts], len(tables.node_table.resources)),
            kind=_ints(kind),
            gang=_ints([number for number, _ in parts]),
            subgroup=_ints([subs.subgroup_number(number, part.subgroup) for number, part in parts]),
            count=_ints([len(part.pods) for _, part in parts]),
            weight=np.array(
                [tables.dominant_share(part.pod_class.requests) * factors[number] for number, part in parts],
                np.float64,
            ),
        ),
        gangs=ProblemGangs(
            need=_ints([gang.need for gang in gangs]),
            tier=_ints([number_of_tier[gang.tier_sort_key] for gang in gangs]),
            rank=np.arange(len(gangs), dtype=np.int32),
            required=_ints([choice.required for choice in choices]),
            preferred=_ints([choice.preferred for choice in choices]),
            pinned=_ints(
                [
                    domain_with_most_bound_pods(inputs.levels, gang.members, choice.required, ())
                    for gang, choice in zip(gangs, choices, strict=True)
                ]
            ),
            fresh=np.array([gang.has_no_bound_pod for gang in gangs], np.bool_),
            allowed=np.array([number not in failures for number in range(len(gangs))], np.bool_),
            min_children=_ints([_least_subgroups(gang.members) for gang in gangs]),
            slice_level=_ints([choice.slices for choice in choices]),
            slice_size=_ints([_slice_size(gang.members) for gang in gangs]),
        ),
        subgroups=ProblemSubgroups(
            gang=_ints(subs.gang),
            need=_ints(subs.need),
            required=_ints([choice.required for choice in subs.choices]),
            preferred=_ints([choice.preferred for choice in subs.choices]),
            pinned=_ints(subs.pinned),
            parent=_ints(subs.parent),
            min_children=_ints(subs.min_children),
            slice_level=_ints([choice.slices for choice in subs.choices]),
            slice_size=_ints(subs.slice_size),
        ),
        used_domains=UsedPreferredDomains(
            gang=_ints([entry[0] for entry in used + subs.used]),
            subgroup=_ints([entry[1] for entry in used + subs.used]),
            level=_ints([entry[2] for entry in used + subs.used]),
            domain=_ints([entry[3] for entry in used + subs.used]),
        ),
        running_slice_pods=_running_slice_pods(inputs, gangs, choices, subs),
        quotas=ProblemQuotas(
            covers=inputs.quotas.mask_of_limits_by_gang(
                tables, [gang.members.queue_and_user for gang in gangs]
            ),
            free=inputs.quotas.remaining_amounts,
            gangs=inputs.quotas.remaining_gang_starts,
        ),
        rows=rows,
        pod_resource=0,
        ordered=inputs.profile.selection == "ordered",
        spread=inputs.profile.placement == "spread",
    )
    # The sort key of a tier holds the negative priority; decisions state the priority itself.
    tier_names = tuple((entitled, -negative_priority) for _, entitled, negative_priority in tiers)
    ranked = _ranked_classes(inputs.levels, gangs, parts)
    return Formulation(
        problem=problem,
        gangs=tuple(gangs),
        parts=parts,
        tiers=tier_names,
        quotas=inputs.quotas,
        failures=failures,
        gathered=gathered,
        gathered_subgroups=gathered_subgroups,
        ranked=ranked,
    )


def _ranked_classes(
    levels: TopologyLevels, gangs: Sequence[PendingGang], parts: Sequence[tuple[int, GangPart]]
) -> tuple[RankedPodClass, ...]:
    """Return the pod classes of gangs that name a rank label and an existing topology."""
    ranked = []
    for index, (number, part) in enumerate(parts):
        members = gangs[number].members
        spec = members.group.spec if members.group is not None else None
        if spec is None or spec.topology is None or spec.rank_label is None:
            continue
        named = spec.topology_name_of_subgroup(spec.sub_groups[part.subgroup]) if part.subgroup >= 0 else ""
        if chain := levels.level_indexes_of_topology(named or spec.topology.name):
            on_nodes = [node for _, node in members.bound.values() if node >= 0]
            ranked.append(RankedPodClass(index, chain, _ints(on_nodes)))
    return tuple(ranked)


def _precedence(gangs: Sequence[PendingGang]) -> tuple[ConstraintRow, ...]:
    """Return a row for each gang that may start only if another one of the session starts: y_behind - y_ahead <= 0."""
    numbers = {gang.members.identity: number for number, gang in enumerate(gangs) if gang.need}
    return tuple(
        ConstraintRow(
            partition=ALL_NODES,
            classes=_ints([]),
            coefficients=np.zeros(0, np.int64),
            right=np.zeros(1, np.int64),
            gangs=_ints([number, numbers[gang.behind]]),
            gang_coefficients=np.array([[1, -1]], np.int64),
            plugin=STRICT_ORDER,
            reason=gang_key_from_identity(gang.behind),
        )
        for number, gang in enumerate(gangs)
        if gang.need and gang.behind in numbers
    )


def _plugin_rows(
    tables: SessionTables, batch: CandidateSet
) -> tuple[tuple[ConstraintRow, ...], dict[int, str]]:
    """Return the rows that the plugins' Constrain adds for a batch, and messages of failures by gang number.

    If a plugin fails, each gang is asked about by itself, and those over which it fails again are left out. A plugin
    that fails only over several gangs together loses its rows: the statement's filters replace them, and the decision
    reports the failure.
    """
    try:
        return tables.pipeline.constrain(batch, tables.node_table), {}
    except PluginError:
        failures = _failures_by_gang(tables, batch)
    # The order matters: a gang that fails alone must not cost the other gangs the rows of that plugin.
    rest = batch.restricted_to_gangs({candidate.gang for candidate in batch.candidates} - failures.keys())
    failed_plugins = set[str]()
    while True:
        try:
            return tables.pipeline.constrain(rest, tables.node_table, frozenset(failed_plugins)), failures
        except PluginError as error:
            tables.record_plugin_failure(error)
            failed_plugins.add(error.plugin)


def _failures_by_gang(tables: SessionTables, batch: CandidateSet) -> dict[int, str]:
    """Ask the plugins about each gang by itself; return the messages of failures by gang number."""
    failures: dict[int, str] = {}
    for gang in sorted({candidate.gang for candidate in batch.candidates}):
        try:
            tables.pipeline.constrain(batch.restricted_to_gangs({gang}), tables.node_table)
        except PluginError as error:
            failures[gang] = str(error)
    return failures


def problem_at_later_time(inputs: FormulationInput, gang: PendingGang) -> Problem:
    """Return the solver problem of placing one gang at a later time, when running gangs may have ended.

    Its masks contain each node that the Filter plugins may accept at that time.

    Set `free` before use: it holds the free resources of the session in which the problem was made. The problem is
    cached with the gang if nothing else in it depends on other gangs.
    """
    cache = gang.members.cache
    cached = cache.problem_at_later_time
    if cached is not None and cached[0] is cache.pending and not inputs.quotas.limits:
        return cached[1]
    formulation = formulate_problem(inputs, [gang], gang.created, lasting=True)
    problem = formulation.problem
    # Rows and quotas depend on other gangs, and a mask that is not steady on pods that land: neither may be cached.
    steady = not formulation.failures and all(
        inputs.feasible_nodes.feasible_nodes_of(part.pod_class).steady for part in gang.parts
    )
    if steady and cache.pending is not None and not problem.rows and not inputs.quotas.limits:
        cache.problem_at_later_time = (cache.pending, problem)
    return problem


def _stack_kinds(
    feasible_nodes: FeasibleNodesByPodClass, kinds: Sequence[PodClass], nodes: int, *, lasting: bool
) -> tuple[BoolArray, IntArray]:
    """Return [K, N] the mask and the score of each kind of pods."""
    if not kinds:
        return np.zeros((0, nodes), np.bool_), np.zeros((0, nodes), np.int64)
    entries = [feasible_nodes.feasible_nodes_of(pod_class) for pod_class in kinds]
    masks = [entry.lasting if lasting else entry.mask for entry in entries]
    return np.stack(masks), np.stack([entry.score for entry in entries])


class _Subgroups:
    """The subGroups of all gangs, numbered consecutively, as columns."""

    def __init__(self, inputs: FormulationInput, gangs: Sequence[PendingGang]) -> None:
        self.gang: list[int] = []
        self.need: list[int] = []
        self.choices: list[RequestedLevels] = []
        self.pinned: list[int] = []
        self.parent: list[int] = []
        self.min_children: list[int] = []
        self.slice_size: list[int] = []
        self.names: list[str] = []
        self.used: list[tuple[int, int, int, int]] = []
        self._first: list[int] = []
        for number, gang in enumerate(gangs):
            self._first.append(len(self.gang))
            group = gang.members.group
            if group is None or not group.spec.sub_groups:
                continue
            placed, tree = gang.members.count_bound_pods_by_subgroup(), group.spec.subgroup_tree
            for index, (sub, choice) in enumerate(
                zip(group.spec.sub_groups, inputs.levels.requested_levels_of_subgroups(group), strict=True)
            ):
                names = tree.names_in_subtree(index)
                self.used += _used(inputs, gang.members, choice.preferred, number, len(self.gang), names)
                self.gang.append(number)
                self.need.append(max(0, tree.minimums[index] - placed.get(sub.name, 0)))
                self.choices.append(choice)
                self.pinned.append(
                    domain_with_most_bound_pods(inputs.levels, gang.members, choice.required, names)
                )
                self.parent.append(self.subgroup_number(number, tree.parents[index]))
                self.min_children.append(NONE if sub.min_sub_groups is None else sub.min_sub_groups)
                self.slice_size.append(
                    sub.topology_slices.slice_size(sub.min_member) if sub.topology_slices else 0
                )
                self.names.append(sub.name)

    def subgroup_number(self, gang: int, subgroup: int) -> int:
        return self._first[gang] + subgroup if subgroup >= 0 else NONE


def _least_subgroups(members: GangState) -> int:
    """The number of subGroups without a parent that must run, NONE for all of them."""
    least = members.group.spec.min_sub_groups if members.group is not None else None
    return NONE if least is None else least


def _slice_size(members: GangState) -> int:
    spec = members.group.spec if members.group is not None else None
    return (
        spec.topology_slices.slice_size(spec.min_member)
        if spec is not None and spec.topology_slices is not None
        else 0
    )


def _running_slice_pods(
    inputs: FormulationInput,
    gangs: Sequence[PendingGang],
    choices: Sequence[RequestedLevels],
    subs: _Subgroups,
) -> RunningSlicePodCounts:
    """The bound pods of gangs and subGroups with slices, by domain; pods that are being deleted do not count."""
    groups = [(number, NONE, choice.slices, "") for number, choice in enumerate(choices)]
    groups += [
        (gang, sub, choice.slices, name)
        for sub, (gang, choice, name) in enumerate(zip(subs.gang, subs.choices, subs.names, strict=True))
    ]
    rows = [
        (gang, sub, domain, pods)
        for gang, sub, level, name in groups
        if level != NONE
        for domain, pods in sorted(
            count_bound_pods_by_domain(
                inputs.levels, gangs[gang].members, level, (name,) if name else (), terminating=False
            ).items()
        )
        if domain != NONE
    ]
    columns = [_ints(column) for column in zip(*rows, strict=True)]
    return RunningSlicePodCounts(*columns) if rows else RunningSlicePodCounts()


def _used_domains(
    inputs: FormulationInput, gangs: Sequence[PendingGang], choices: Sequence[RequestedLevels]
) -> list[tuple[int, int, int, int]]:
    used = []
    for number, (gang, choice) in enumerate(zip(gangs, choices, strict=True)):
        used += _used(inputs, gang.members, choice.preferred, number, NONE, ())
    return used


def _used(
    inputs: FormulationInput,
    members: GangState,
    level: int,
    gang: int,
    sub: int,
    subgroups: Collection[str],
) -> list[tuple[int, int, int, int]]:
    if level == NONE or not members.bound:
        return []
    return [
        (gang, sub, level, domain)
        for domain in sorted(count_bound_pods_by_domain(inputs.levels, members, level, subgroups))
    ]


def _ints(values: Sequence[int]) -> IndexArray:
    return np.array(values, np.int32)


def _stack(rows: Sequence[IntArray], width: int) -> IntArray:
    return np.stack(rows) if rows else np.zeros((0, width), np.int64)

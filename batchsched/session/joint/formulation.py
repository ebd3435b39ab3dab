"""The formulation: gangs, queues and topology become the solver's arrays."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from batchsched.api.core.pod import SUB_GROUP_LABEL
from batchsched.config.schema import Profile
from batchsched.framework.constrain import Batch, Candidate
from batchsched.framework.pod_class import PodClass
from batchsched.session.gangs.queue_limits import QueueLimits
from batchsched.session.joint.plugin_rows import rows_of
from batchsched.session.placement.class_feasibility import FeasibilityByClass
from batchsched.session.tables.gang import EntitlementClass, GangPart, PendingGang, PodGroupState
from batchsched.session.tables.session_tables import SessionTables
from batchsched.session.tables.topology_levels import LevelChoice, Levels
from batchsched.solver.problem import (
    ALL_NODES,
    NONE,
    IndexArray,
    Problem,
    ProblemClasses,
    ProblemGangs,
    ProblemKinds,
    ProblemNodes,
    ProblemQuotas,
    ProblemSubgroups,
    Row,
    UsedDomains,
)

DAY = 86400.0
AGE_BONUS = 0.5
"""A gang that is a day older than the youngest one weighs half as much again."""


@dataclass(frozen=True, slots=True, eq=False)
class Formulation:
    """A problem, and what its numbers stand for.

    Args:
      problem: the arrays.
      gangs: by gang number.
      parts: by class number, (gang number, part).
      tiers: (share, priority) by tier; gangs that are half bound have tiers of their own, above the others.
      quotas: by quota number.
      failures: which plugin broke in Constrain, by the number of the gang over which it did.
      gathered: gangs that a plugin's rule keeps in one domain of a node label, by number.
    """

    problem: Problem
    gangs: tuple[PendingGang, ...]
    parts: tuple[tuple[int, GangPart], ...]
    tiers: tuple[tuple[EntitlementClass, int], ...]
    quotas: QueueLimits
    failures: dict[int, str] = field(default_factory=dict)
    gathered: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class SessionContext:
    """What stays the same while a session's gangs are formulated: tables, levels, what queues allow."""

    tables: SessionTables
    profile: Profile
    levels: Levels
    quotas: QueueLimits
    feasibility: FeasibilityByClass


def age_bonus(created: float, youngest: float) -> float:
    """Return 1 + 0.5 · min(1, (age - age of the youngest pending gang) / 24 h).

    Source: the weight of a gang in the decision format.
    """
    return 1.0 + AGE_BONUS * min(1.0, max(0.0, youngest - created) / DAY)


def formulate(
    context: SessionContext, gangs: Sequence[PendingGang], youngest: float, *, lasting: bool = False
) -> Formulation:
    """Make the problem of one session.

    Args:
      context: tables, levels, quotas and surveys.
      gangs: in the policy's order.
      youngest: seconds since 1970 at which the youngest pending gang was submitted.
      lasting: take masks that stay true when running pods end, for questions about later.
    """
    tables = context.tables
    parts = tuple((number, part) for number, gang in enumerate(gangs) for part in gang.parts)
    kinds = _Kinds(context.feasibility)
    tiers = sorted({gang.tier for gang in gangs})
    tier_of = {one: number for number, one in enumerate(tiers)}
    subs = _Subgroups(context, gangs)
    choices = [context.levels.of(gang.members.group) for gang in gangs]
    bonus = [age_bonus(gang.created, youngest) for gang in gangs]
    used = _used_domains(context, gangs, choices)
    kind = [kinds.number(part.pod_class) for _, part in parts]
    mask, score = kinds.arrays(len(tables.node_table.nodes), lasting)
    batch = Batch(
        [
            Candidate(
                at,
                part.pod_class,
                number,
                len(part.pods),
                gangs[number].size == gangs[number].need,
                mask[kind[at]],
            )
            for at, (number, part) in enumerate(parts)
        ]
    )
    rows, failures = rows_of(tables, batch)
    rows += _precedence(gangs)
    gathered: dict[int, str] = {}
    for number, key in batch.gathered.items():
        if choices[number].required == NONE and gangs[number].fresh:
            gathered[number] = key
            choices[number] = replace(
                choices[number], required=context.levels.of_label(key, tables.node_table)
            )
    problem = Problem(
        nodes=ProblemNodes(
            free=np.maximum(0, tables.free_resources()),
            capacity=tables.capacity(),
            levels=context.levels.domains,
            partitions=tuple(batch.partitions),
        ),
        kinds=ProblemKinds(mask=mask, score=score),
        classes=ProblemClasses(
            demand=_stack([part.pod_class.requests for _, part in parts], len(tables.node_table.resources)),
            kind=_ints(kind),
            gang=_ints([number for number, _ in parts]),
            subgroup=_ints([subs.number(number, part.subgroup) for number, part in parts]),
            count=_ints([len(part.pods) for _, part in parts]),
            weight=np.array(
                [tables.dominant_share(part.pod_class.requests) * bonus[number] for number, part in parts],
                np.float64,
            ),
        ),
        gangs=ProblemGangs(
            need=_ints([gang.need for gang in gangs]),
            tier=_ints([tier_of[gang.tier] for gang in gangs]),
            rank=np.arange(len(gangs), dtype=np.int32),
            required=_ints([choice.required for choice in choices]),
            preferred=_ints([choice.preferred for choice in choices]),
            pinned=_ints(
                [
                    pinned(context, gang.members, choice.required, "")
                    for gang, choice in zip(gangs, choices, strict=True)
                ]
            ),
            fresh=np.array([gang.fresh for gang in gangs], np.bool_),
            allowed=np.array([number not in failures for number in range(len(gangs))], np.bool_),
        ),
        subgroups=ProblemSubgroups(
            gang=_ints(subs.gang),
            need=_ints(subs.need),
            required=_ints([choice.required for choice in subs.choices]),
            preferred=_ints([choice.preferred for choice in subs.choices]),
            pinned=_ints(subs.pinned),
        ),
        used_domains=UsedDomains(
            gang=_ints([one[0] for one in used + subs.used]),
            subgroup=_ints([one[1] for one in used + subs.used]),
            level=_ints([one[2] for one in used + subs.used]),
            domain=_ints([one[3] for one in used + subs.used]),
        ),
        quotas=ProblemQuotas(
            covers=context.quotas.members(tables, [gang.members.owner for gang in gangs]),
            free=context.quotas.free,
            gangs=context.quotas.gangs,
        ),
        rows=rows,
        pod_resource=0,
        ordered=context.profile.selection == "ordered",
        spread=context.profile.placement == "spread",
    )
    named = tuple((share, -least) for _, share, least in tiers)
    return Formulation(problem, tuple(gangs), parts, named, context.quotas, failures, gathered)


def _precedence(gangs: Sequence[PendingGang]) -> tuple[Row, ...]:
    """A row for each gang that starts only after another of the session: y_behind - y_ahead <= 0."""
    numbers = {gang.members.identity: number for number, gang in enumerate(gangs) if gang.need}
    return tuple(
        Row(
            partition=ALL_NODES,
            classes=_ints([]),
            coefficients=np.zeros(0, np.int64),
            right=np.zeros(1, np.int64),
            gangs=_ints([number, numbers[gang.behind]]),
            gang_coefficients=np.array([[1, -1]], np.int64),
            plugin="strict-fifo",
            reason=f"{gang.behind} comes first",
        )
        for number, gang in enumerate(gangs)
        if gang.need and gang.behind in numbers
    )


def lasting_problem(context: SessionContext, gang: PendingGang) -> Problem:
    """Return the problem of a gang by itself that stays true when running gangs end; `free` is not to be used.

    It is kept with the gang where nothing in it follows from what others do.
    """
    cache = gang.members.cache
    cached = cache.lasting_problem
    if cached is not None and cached[0] is cache.pending and not context.quotas.limits:
        return cached[1]
    formulation = formulate(context, [gang], gang.created, lasting=True)
    problem = formulation.problem
    steady = not formulation.failures and all(
        context.feasibility.of(part.pod_class).steady for part in gang.parts
    )
    if steady and cache.pending is not None and not problem.rows and not context.quotas.limits:
        cache.lasting_problem = (cache.pending, problem)
    return problem


class _Kinds:
    """Distinct classes, numbered as they come; those that differ in priority alone have one number."""

    def __init__(self, feasibility: FeasibilityByClass) -> None:
        self._feasibility = feasibility
        self._numbers: dict[int, int] = {}
        self._classes: list[PodClass] = []

    def number(self, pod_class: PodClass) -> int:
        first = pod_class.first
        known = self._numbers.get(id(first))
        if known is None:
            known = self._numbers[id(first)] = len(self._classes)
            self._classes.append(first)
        return known

    def arrays(self, nodes: int, lasting: bool) -> "tuple[np.ndarray, np.ndarray]":
        looked = [self._feasibility.of(pod_class) for pod_class in self._classes]
        if not looked:
            return np.zeros((0, nodes), np.bool_), np.zeros((0, nodes), np.int64)
        return np.stack([one.lasting if lasting else one.mask for one in looked]), np.stack(
            [one.score for one in looked]
        )


class _Subgroups:
    """The subGroups of all gangs, numbered through."""

    def __init__(self, context: SessionContext, gangs: Sequence[PendingGang]) -> None:
        self.gang: list[int] = []
        self.need: list[int] = []
        self.choices: list[LevelChoice] = []
        self.pinned: list[int] = []
        self.used: list[tuple[int, int, int, int]] = []
        self._first: list[int] = []
        for number, gang in enumerate(gangs):
            self._first.append(len(self.gang))
            group = gang.members.group
            if group is None or not group.spec.sub_groups:
                continue
            for sub, choice in zip(group.spec.sub_groups, context.levels.of_subgroups(group), strict=True):
                bound = sum(
                    pod.labels.get(SUB_GROUP_LABEL) == sub.name for pod, _ in gang.members.bound.values()
                )
                self.used += _used(context, gang.members, choice.preferred, number, len(self.gang), sub.name)
                self.gang.append(number)
                self.need.append(max(0, sub.min_member - bound))
                self.choices.append(choice)
                self.pinned.append(pinned(context, gang.members, choice.required, sub.name))

    def number(self, gang: int, subgroup: int) -> int:
        return self._first[gang] + subgroup if subgroup >= 0 else NONE


def _domains_of(context: SessionContext, members: PodGroupState, level: int, subgroup: str) -> Counter[int]:
    """Count the bound members by domain of a level; of one subGroup, or of all for ""."""
    domains = context.levels.domains[level]
    return Counter(
        int(domains[node])
        for pod, node in members.bound.values()
        if node >= 0 and (not subgroup or pod.labels.get(SUB_GROUP_LABEL) == subgroup)
    )


def pinned(context: SessionContext, members: PodGroupState, level: int, subgroup: str) -> int:
    """Return the domain where members run already; where they run in several, that of most of them.

    Args:
      context: the levels.
      members: of the gang.
      level: the required level, NONE for none.
      subgroup: the subGroup whose members count, "" for all.
    """
    if level == NONE or not members.bound:
        return NONE
    domains = _domains_of(context, members, level, subgroup)
    domains.pop(NONE, None)
    return min(domains, key=lambda domain: (-domains[domain], domain), default=NONE)


def _used_domains(
    context: SessionContext, gangs: Sequence[PendingGang], choices: Sequence[LevelChoice]
) -> list[tuple[int, int, int, int]]:
    used = []
    for number, (gang, choice) in enumerate(zip(gangs, choices, strict=True)):
        used += _used(context, gang.members, choice.preferred, number, NONE, "")
    return used


def _used(
    context: SessionContext, members: PodGroupState, level: int, gang: int, sub: int, subgroup: str
) -> list[tuple[int, int, int, int]]:
    if level == NONE or not members.bound:
        return []
    return [(gang, sub, level, domain) for domain in sorted(_domains_of(context, members, level, subgroup))]


def _ints(values: Sequence[int]) -> IndexArray:
    return np.array(values, np.int32)


def _stack(
    rows: Sequence["np.ndarray[tuple[int], np.dtype[np.int64]]"], width: int
) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    return np.stack(rows) if rows else np.zeros((0, width), np.int64)

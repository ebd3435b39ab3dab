"""The optimum of tiny problems by honest enumeration: the yardstick of the solver's tests.

It shares nothing with the solver but the dataclasses. Every placement is tried gang by gang and class by class;
a branch is left when a node or a quota overflows or its best continuation is lexicographically below the best
found. Up to about 6 nodes, 4 gangs and 12 pods.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from batchsched.solver.problem import ALL_NODES, EVERY_NODE, NONE, ConstraintRow, Problem, Sense

Counts = dict[tuple[int, int], int]


@dataclass
class Best:
    """values: what is compared, tier values first, then gangs, then minus the preferred cost."""

    values: tuple[float, ...] = ()
    tiers: tuple[float, ...] = ()
    gangs: int = 0
    cost: float = 0.0
    counts: Counts = field(default_factory=dict)


def brute(problem: Problem) -> Best:
    """The lexicographically best legal placement: tiers, gangs taken, preferred cost."""
    tiers = int(max(problem.gangs.tier, default=-1)) + 1
    order = sorted(
        range(len(problem.gangs.need)),
        key=lambda g: (int(problem.gangs.tier[g]), int(problem.gangs.rank[g]), g),
    )
    best = Best()
    options = [sorted(map(partial(option, problem, g), gang_placements(problem, g))) for g in order]
    most = [max(-found.loss for found in each) for each in options]
    cheapest = [min(found.cost for found in each) for each in options]
    limits = np.concatenate(
        [
            problem.nodes.free.ravel(),
            np.maximum(problem.quotas.free, 0).ravel(),
            np.maximum(problem.quotas.gangs, 0),
        ]
    )
    seen: dict[tuple[int, bytes], tuple[float, ...]] = {}

    def hope(position: int, values: list[float], gangs: int, cost: float) -> tuple[float, ...]:
        values = list(values)
        for later in range(position, len(order)):
            values[int(problem.gangs.tier[order[later]])] += most[later]
        cost += sum(cheapest[position:])
        return (*(round(v, 9) for v in values), gangs + len(order) - position, -round(cost, 9))

    def walk(position: int, counts: Counts, state: np.ndarray, values: list[float], gangs: int, cost: float):
        key = hope(position, values, gangs, cost)
        if (best.values and key <= best.values) or key <= seen.get((position, state.tobytes()), ()):
            return
        seen[position, state.tobytes()] = key
        if position == len(order):
            if legal(problem, counts):
                best.values, best.tiers, best.gangs = key, tuple(values), gangs
                best.cost, best.counts = cost, dict(counts)
            return
        tier = int(problem.gangs.tier[order[position]])
        for found in options[position]:
            after = state + found.footprint
            if np.all(after[: len(limits)] <= limits):
                now = list(values)
                now[tier] -= found.loss
                merged = counts | found.counts
                walk(position + 1, merged, after, now, gangs + found.taken, cost + found.cost)

    walk(0, {}, footprint(problem, NONE, {}), [0.0] * tiers, 0, 0.0)
    return best


@dataclass(order=True)
class Option:
    """One placement of one gang: what it is worth (negated, so that the best sorts first) and costs."""

    loss: float
    cost: float
    taken: bool
    counts: Counts = field(compare=False)
    footprint: np.ndarray = field(compare=False)


def option(problem: Problem, gang: int, counts: Counts) -> Option:
    taken = effective_need(problem, gang) == 0 or bool(counts)
    cost = preferred(problem, counts, gang)
    return Option(-worth(problem, counts), cost, taken, counts, footprint(problem, gang, counts))


def footprint(problem: Problem, gang: int, counts: Counts) -> np.ndarray:
    """What a gang's placement adds to nodes, quotas, quotas' gangs, rows and the counts that cuts name.

    Two placements of equal footprints leave the same choices to all later gangs. A gang NONE adds nothing.
    """
    used = np.zeros(problem.nodes.free.shape, np.int64)
    asked = np.zeros(problem.nodes.free.shape[1], np.int64)
    for (c, n), k in counts.items():
        used[n] += problem.classes.demand[c] * k
        asked += problem.classes.demand[c] * k
    member = np.zeros(len(problem.quotas.gangs), np.int64)
    if gang != NONE and len(member):
        member = problem.quotas.covers[:, gang].astype(np.int64)
    counted = bool(counts) and bool(problem.gangs.fresh[gang]) and effective_need(problem, gang) > 0
    rows = [
        row_left(problem, row, d, counts, {gang} if counts else set())
        for row in problem.rows
        for d in range(len(row.right))
    ]
    rows += [
        pods
        for row in problem.rows
        for d in range(len(row.right))
        for pods in side_pods(problem, row, d, counts)
    ]
    named = [
        counts.get((int(c), int(n)), 0)
        for cut in problem.cuts
        for c, n in zip(cut.classes, cut.nodes, strict=True)
    ]
    return np.concatenate(
        [used.ravel(), (member[:, None] * asked).ravel(), member * int(counted), rows, named]
    ).astype(np.int64)


def side_pods(problem: Problem, row: ConstraintRow, d: int, counts: Counts) -> tuple[int, ...]:
    """The pods in a domain of each side of a row; nothing if the row has no sides."""
    if row.on_second_side is None:
        return ()
    inside = row.domain_by_node(problem.nodes)
    sides = [row.classes[row.on_second_side == second].tolist() for second in (False, True)]
    return tuple(sum(k for (c, n), k in counts.items() if c in side and inside[n] == d) for side in sides)


def row_left(problem: Problem, row: ConstraintRow, d: int, counts: Counts, taken: set[int]) -> int:
    if row.partition == EVERY_NODE:
        nodes = {d}
    elif row.partition == ALL_NODES:
        nodes = set(range(len(problem.nodes.free)))
    else:
        nodes = {n for n in range(len(problem.nodes.free)) if problem.nodes.partitions[row.partition][n] == d}
    pairs = zip(row.classes, row.coefficients, strict=True)
    left = sum(int(a) * counts.get((int(c), n), 0) for c, a in pairs for n in nodes)
    return left + sum(int(row.gang_coefficients[d, j]) for j, g in enumerate(row.gangs) if int(g) in taken)


def worth(problem: Problem, counts: Counts) -> float:
    return sum(float(problem.classes.weight[c]) * k for (c, _), k in counts.items())


def effective_need(problem: Problem, gang: int) -> int:
    subs = [
        int(problem.subgroups.need[s])
        for s in range(len(problem.subgroups.gang))
        if problem.subgroups.gang[s] == gang
    ]
    return max(int(problem.gangs.need[gang]), sum(subs))


def gangs_taken(problem: Problem, counts: Counts) -> list[bool]:
    placed = [0] * len(problem.gangs.need)
    for (c, _), k in counts.items():
        placed[int(problem.classes.gang[c])] += k
    return [effective_need(problem, g) == 0 or placed[g] > 0 for g in range(len(problem.gangs.need))]


def gang_placements(problem: Problem, gang: int) -> Iterator[Counts]:
    """Every placement of one gang that is legal by itself: masks, counts, needs, domains."""
    yield {}
    if not problem.gangs.allowed[gang]:
        return
    classes = [c for c in range(len(problem.classes.gang)) if problem.classes.gang[c] == gang]
    per_class = [list(class_placements(problem, c)) for c in classes]

    def join(position: int, counts: Counts) -> Iterator[Counts]:
        if position == len(classes):
            if counts and gang_legal(problem, gang, counts):
                yield dict(counts)
            return
        for option in per_class[position]:
            yield from join(position + 1, counts | option)

    yield from join(0, {})


def class_placements(problem: Problem, c: int) -> Iterator[Counts]:
    nodes = [n for n in range(len(problem.nodes.free)) if problem.kinds.mask[problem.classes.kind[c], n]]

    def spread(position: int, left: int, counts: Counts) -> Iterator[Counts]:
        if position == len(nodes):
            yield dict(counts)
            return
        n = nodes[position]
        for k in range(left + 1):
            if any(
                problem.classes.demand[c, r] > 0
                and problem.classes.demand[c, r] * k > problem.nodes.free[n, r]
                for r in range(problem.nodes.free.shape[1])
            ):
                break
            yield from spread(position + 1, left - k, counts | ({(c, n): k} if k else {}))

    yield from spread(0, int(problem.classes.count[c]), {})


def gang_legal(problem: Problem, gang: int, counts: Counts) -> bool:
    need = effective_need(problem, gang)
    if sum(counts.values()) < need:
        return False
    groups = [(gang, NONE, problem.gangs.required[gang], problem.gangs.pinned[gang], 0)]
    for s in range(len(problem.subgroups.gang)):
        if problem.subgroups.gang[s] == gang:
            minimum = int(problem.subgroups.need[s]) if need else 0
            groups.append((gang, s, problem.subgroups.required[s], problem.subgroups.pinned[s], minimum))
    for _, sub, level, pinned, minimum in groups:
        mine = {k: v for k, v in counts.items() if sub == NONE or problem.classes.subgroup[k[0]] == sub}
        if sub != NONE and sum(mine.values()) < minimum:
            return False
        if level != NONE:
            domains = {int(problem.nodes.levels[level, n]) for _, n in mine}
            if -1 in domains or len(domains) > 1 or (pinned != NONE and domains - {int(pinned)}):
                return False
    return True


def legal(problem: Problem, counts: Counts) -> bool:
    """Rows and cuts, for a placement that keeps everything else."""
    taken = {g for g, yes in enumerate(gangs_taken(problem, counts)) if yes}
    always = {g for g in taken if effective_need(problem, g) == 0}
    for row in problem.rows:
        for d in range(len(row.right)):
            left, nothing = row_left(problem, row, d, counts, taken), row_left(problem, row, d, {}, always)
            right = int(row.right[d])
            if row.on_second_side is not None and all(side_pods(problem, row, d, counts)):
                return False
            if row.sense == Sense.AT_MOST and left > max(right, nothing):
                return False
            if row.sense == Sense.AT_LEAST and left < min(right, nothing):
                return False
    for cut in problem.cuts:
        same = zip(cut.classes, cut.nodes, cut.counts, strict=True)
        if all(counts.get((int(c), int(n)), 0) == int(k) for c, n, k in same):
            return False
    return True


def preferred(problem: Problem, counts: Counts, only: int | None = None) -> float:
    cost = 0.0
    groups = [(g, NONE, int(problem.gangs.preferred[g])) for g in range(len(problem.gangs.need))]
    groups += [
        (int(problem.subgroups.gang[s]), s, int(problem.subgroups.preferred[s]))
        for s in range(len(problem.subgroups.gang))
    ]
    for gang, sub, level in groups:
        if level == NONE or only not in (None, gang):
            continue
        mine = [
            c
            for c in range(len(problem.classes.gang))
            if problem.classes.gang[c] == gang and (sub == NONE or problem.classes.subgroup[c] == sub)
        ]
        weight = sum(float(problem.classes.weight[c]) * int(problem.classes.count[c]) for c in mine)
        domains = {int(problem.nodes.levels[level, n]) for (c, n), k in counts.items() if c in mine}
        domains |= {
            int(problem.used_domains.domain[u])
            for u in range(len(problem.used_domains.gang))
            if (problem.used_domains.gang[u], problem.used_domains.subgroup[u], problem.used_domains.level[u])
            == (gang, sub, level)
        }
        cost += weight * max(0, len(domains) - 1)
    return cost

"""The independent check that solutions and victim sets are legal, and that their reported values are true.

The check shares no code with the rest of the solver, only the dataclasses: a mistake made in both places would not be
found.

Shapes: C classes, D domains, G gangs, N nodes, P placements, Q quotas, R resources, T tiers, U units.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchsched.solver.problem import (
    ALL_NODES,
    EVERY_NODE,
    NONE,
    BoolArray,
    ConstraintRow,
    IntArray,
    Problem,
    Sense,
    Solution,
)
from batchsched.solver.verify_trees import (
    find_slice_faults,
    find_subgroup_tree_faults,
    list_children_by_subgroup,
    mask_gangs_with_trees,
    subgroups_and_all_below,
)
from batchsched.solver.victims.victim_problem import VictimProblem, VictimSolution

_TOLERANCE: Final = 1e-9
_MAX_FAULTS_PER_CHECK: Final = 20
"""Maximum faults that one check reports."""


def find_solution_faults(problem: Problem, solution: Solution) -> tuple[str, ...]:
    """Return the faults of a solution, one sentence each; the result is empty if the solution is legal.

    Each check reports at most `_MAX_FAULTS_PER_CHECK` faults.

    Checked are: the triples themselves, masks, capacity, class counts, all or nothing (gangs and subgroups),
    domains, allowed, quotas, rows and their sides, cuts, and the reported objective, bound and taken gangs. A row that
    is violated before anything is placed must not become more violated.
    """
    malformed = tuple(_form(problem, solution))
    if malformed:
        return malformed
    checks = (
        *_placement_checks(problem, solution),
        _rows(problem, solution),
        _cuts(problem, solution),
        _account(problem, solution),
    )
    return tuple(fault for check in checks for fault in _limit_faults(check))


def find_victim_faults(problem: VictimProblem, answer: VictimSolution) -> tuple[str, ...]:
    """Return all faults of a victim set, one sentence each; the result is empty if the set is correct.

    Checked are: the units and their cost, bonds, limits and cuts, the placement on the capacity after the evictions,
    and that the placement needs each eviction. Rows of plugins are not checked: the session sends the placement
    through the pipeline.
    """
    units = answer.units.tolist()
    if units != sorted(set(units)) or any(not 0 <= unit < len(problem.cost) for unit in units):
        return ("the units are not in order, or one of them does not exist",)
    after = _problem_after_eviction(problem, set(units))
    values = np.zeros(int(after.gangs.tier[0]) + 1)  # the value of the placement is not checked
    placement = Solution(answer.classes, answer.nodes, answer.counts, np.ones(1, np.bool_), values, values)
    malformed = tuple(_form(after, placement))
    if malformed:
        return malformed
    checks = (
        _eviction_cost(problem, answer),
        _eviction_limits(problem, set(units)),
        *_placement_checks(after, placement),
        _unneeded_units(problem, set(units), after, placement),
    )
    return tuple(fault for check in checks for fault in check)


def _placement_checks(problem: Problem, solution: Solution) -> tuple[Iterator[str], ...]:
    return (
        _masks(problem, solution),
        _counts(problem, solution),
        _capacity(problem, solution),
        _all_or_nothing(problem, solution),
        _parts(problem, solution),
        find_subgroup_tree_faults(problem, solution),
        find_slice_faults(problem, solution),
        _domains(problem, solution),
        _quotas(problem, solution),
    )


def _limit_faults(faults: Iterator[str]) -> Iterator[str]:
    for number, fault in enumerate(faults):
        if number == _MAX_FAULTS_PER_CHECK:
            yield "and more of the same"
            return
        yield fault


def _form(problem: Problem, solution: Solution) -> Iterator[str]:
    tiers = int(problem.gangs.tier.max()) + 1 if len(problem.gangs.tier) else 0
    if not len(solution.classes) == len(solution.nodes) == len(solution.counts):
        yield "classes, nodes and counts have different lengths"
        return
    if len(solution.taken) != len(problem.gangs.need):
        yield f"taken names {len(solution.taken)} gangs, the problem has {len(problem.gangs.need)}"
    if len(solution.objective) != tiers or len(solution.bound) != tiers:
        yield f"objective and bound must have one value for each of {tiers} tiers"
    for name, index, end in (
        ("class", solution.classes, len(problem.classes.gang)),
        ("node", solution.nodes, len(problem.nodes.free)),
    ):
        if len(index) and (int(index.min()) < 0 or int(index.max()) >= end):
            yield f"a {name} outside 0..{end - 1} is named"
    if np.any(solution.counts <= 0):
        yield "a count is not positive"
    key = solution.classes.astype(np.int64) * len(problem.nodes.free) + solution.nodes
    if np.any(np.diff(key) <= 0):
        yield "the triples are not sorted by class and node, or one is named twice"


def _masks(problem: Problem, solution: Solution) -> Iterator[str]:
    passes = problem.kinds.mask[problem.classes.kind[solution.classes], solution.nodes]
    for p in np.flatnonzero(~passes).tolist():
        yield f"class {solution.classes[p]} is on node {solution.nodes[p]}, which its mask refuses"


def _counts(problem: Problem, solution: Solution) -> Iterator[str]:
    total = _sum(solution.classes, solution.counts.astype(np.int64), len(problem.classes.gang))
    for c in np.flatnonzero(total > problem.classes.count).tolist():
        yield f"class {c} has {problem.classes.count[c]} pods and {total[c]} are placed"


def _capacity(problem: Problem, solution: Solution) -> Iterator[str]:
    used = _requests_by_node(problem, solution)
    for n, r in np.argwhere((used > problem.nodes.free) & (used > 0)).tolist():
        yield f"node {n} has {problem.nodes.free[n, r]} of resource {r} free and {used[n, r]} is placed"


def _requests_by_node(problem: Problem, solution: Solution) -> IntArray:
    """What the placement requests on each node [N, R]."""
    requests = problem.classes.demand[solution.classes] * solution.counts.astype(np.int64)[:, None]
    used = np.zeros(problem.nodes.free.shape, np.int64)
    np.add.at(used, solution.nodes, requests)
    return used


def _placed(problem: Problem, solution: Solution) -> IntArray:
    """Pods placed of each gang [G]."""
    gangs = problem.classes.gang[solution.classes]
    return _sum(gangs, solution.counts.astype(np.int64), len(problem.gangs.need))


def _minimum(problem: Problem) -> list[int]:
    """Pods that each gang still needs, never less than its subgroups need together; of a tree, its own minimum."""
    inside, tree = [0] * len(problem.gangs.need), mask_gangs_with_trees(problem)
    for gang, need in zip(problem.subgroups.gang.tolist(), problem.subgroups.need.tolist(), strict=True):
        inside[gang] += 0 if tree[gang] else need
    return [max(one, other) for one, other in zip(problem.gangs.need.tolist(), inside, strict=True)]


def _all_or_nothing(problem: Problem, solution: Solution) -> Iterator[str]:
    placed = _placed(problem, solution).tolist()
    for g, need in enumerate(_minimum(problem)):
        taken = bool(solution.taken[g])
        if placed[g] and not problem.gangs.allowed[g]:
            yield f"gang {g} is not allowed and {placed[g]} of its pods are placed"
        if need == 0:
            if not taken:
                yield f"gang {g} needs nothing more and is not reported as taken"
            continue
        if taken and not problem.gangs.allowed[g]:
            yield f"gang {g} is not allowed and is reported as taken"
        if taken and placed[g] < need:
            yield f"gang {g} is reported as taken with {placed[g]} of the {need} pods it needs"
        if not taken and placed[g]:
            yield f"gang {g} is not taken and {placed[g]} of its pods are placed"


def _parts(problem: Problem, solution: Solution) -> Iterator[str]:
    inside = problem.classes.subgroup[solution.classes]
    member = inside != NONE
    placed = _sum(inside[member], solution.counts[member].astype(np.int64), len(problem.subgroups.gang))
    minimum, tree = _minimum(problem), mask_gangs_with_trees(problem)
    for s in range(len(problem.subgroups.gang)):
        gang = int(problem.subgroups.gang[s])
        if (
            not tree[gang]
            and minimum[gang]
            and solution.taken[gang]
            and placed[s] < problem.subgroups.need[s]
        ):
            yield f"subgroup {s} of gang {gang} needs {problem.subgroups.need[s]} pods and {placed[s]} are placed"


def _domains(problem: Problem, solution: Solution) -> Iterator[str]:
    gangs = problem.classes.gang[solution.classes]
    subs = problem.classes.subgroup[solution.classes]
    for g in np.flatnonzero(problem.gangs.required != NONE).tolist():
        nodes = solution.nodes[gangs == g]
        yield from _required_domain(
            problem, f"gang {g}", nodes, int(problem.gangs.required[g]), int(problem.gangs.pinned[g])
        )
    placed_nodes: dict[int, list[int]] = {}
    for s, node in zip(subs.tolist(), solution.nodes.tolist(), strict=True):
        placed_nodes.setdefault(s, []).append(node)
    children = list_children_by_subgroup(problem)
    for s in np.flatnonzero(problem.subgroups.required != NONE).tolist():
        below = subgroups_and_all_below([s], children)
        nodes = np.array([node for inner in below for node in placed_nodes.get(inner, ())], np.int32)
        pinned = int(problem.subgroups.pinned[s])
        yield from _required_domain(
            problem, f"subgroup {s}", nodes, int(problem.subgroups.required[s]), pinned
        )


def _required_domain(
    problem: Problem, name: str, nodes: NDArray[np.int32], level: int, pinned: int
) -> Iterator[str]:
    domains = sorted(set(problem.nodes.levels[level][nodes].tolist()))
    if -1 in domains:
        yield f"{name} has pods on nodes without a domain of its required level {level}"
    if len(domains) > 1:
        yield f"{name} is in domains {domains} of its required level {level}"
    if pinned != NONE and any(domain not in (-1, pinned) for domain in domains):
        yield f"{name} is pinned to domain {pinned} of level {level} and is in {domains}"


def _quotas(problem: Problem, solution: Solution) -> Iterator[str]:
    if not len(problem.quotas.gangs):
        return
    gangs = problem.classes.gang[solution.classes]
    requests = problem.classes.demand[solution.classes] * solution.counts.astype(np.int64)[:, None]
    # Gangs that need nothing more were counted when they started.
    fresh = solution.taken & problem.gangs.fresh & (np.array(_minimum(problem), np.int64) > 0)
    by_gang = np.zeros((len(problem.gangs.need), requests.shape[1]), np.int64)
    np.add.at(by_gang, gangs, requests)
    member = problem.quotas.covers.astype(np.int64)
    used, count = member @ by_gang, member @ fresh
    remaining, remaining_gangs = np.maximum(problem.quotas.free, 0), np.maximum(problem.quotas.gangs, 0)
    for q, r in np.argwhere(used > remaining).tolist():
        yield f"quota {q} leaves {problem.quotas.free[q, r]} of resource {r} and {used[q, r]} is placed"
    for q in np.flatnonzero(count > remaining_gangs).tolist():
        yield f"quota {q} leaves room for {problem.quotas.gangs[q]} gangs and {count[q]} are taken"


def _rows(problem: Problem, solution: Solution) -> Iterator[str]:
    always = np.array(_minimum(problem), np.int64) == 0
    for number, row in enumerate(problem.rows):
        left_sides = _left_sides(problem, solution, row, solution.taken)
        # A row that is violated before anything is placed must only not become more violated.
        nothing = np.zeros(len(row.right), np.int64)
        if len(row.gangs):
            nothing = row.gang_coefficients @ always[row.gangs].astype(np.int64)
        if row.sense == Sense.AT_MOST:
            broken = left_sides > np.maximum(row.right, nothing)
        else:
            broken = left_sides < np.minimum(row.right, nothing)
        name = f"row {number} ({row.plugin}: {row.reason})" if row.plugin else f"row {number}"
        for d in np.flatnonzero(broken).tolist():
            relation = "at most" if row.sense == Sense.AT_MOST else "at least"
            yield f"{name} asks for {relation} {row.right[d]} in domain {d} and has {left_sides[d]}"
        for d in _domains_with_both_sides(problem, solution, row):
            yield f"{name} excludes two sides from each other, and both have pods in domain {d}"


def _domains_with_both_sides(problem: Problem, solution: Solution, row: ConstraintRow) -> list[int]:
    """The domains of a row in which pods of both sides are placed."""
    if row.on_second_side is None:
        return []
    domains = _domains_of_placements(problem, solution, row)
    present = np.zeros((2, len(row.right)), np.bool_)
    for side in (0, 1):
        members = row.classes[row.on_second_side == bool(side)]
        present[side, domains[np.isin(solution.classes, members) & (domains >= 0)]] = True
        if row.used_side is not None:
            present[side] |= row.used_side == side
    both: list[int] = np.flatnonzero(present.all(axis=0)).tolist()
    return both


def _domains_of_placements(problem: Problem, solution: Solution, row: ConstraintRow) -> NDArray[np.integer]:
    """The domain of a row in which each placement [P] is; negative for none."""
    if row.partition == EVERY_NODE:
        return solution.nodes
    if row.partition == ALL_NODES:
        return np.zeros(len(solution.nodes), np.int64)
    return problem.nodes.partitions[row.partition][solution.nodes]


def _left_sides(problem: Problem, solution: Solution, row: ConstraintRow, taken: BoolArray) -> IntArray:
    """A row's left side in each of its domains [D]."""
    factor = np.zeros(len(problem.classes.gang), np.int64)
    np.add.at(factor, row.classes, row.coefficients)
    domains = _domains_of_placements(problem, solution, row)
    inside = domains >= 0
    left_sides = _sum(domains[inside], (factor[solution.classes] * solution.counts)[inside], len(row.right))
    if len(row.gangs):
        left_sides = left_sides + row.gang_coefficients @ taken[row.gangs].astype(np.int64)
    return left_sides


def _cuts(problem: Problem, solution: Solution) -> Iterator[str]:
    if not problem.cuts:
        return
    triples = zip(solution.classes.tolist(), solution.nodes.tolist(), solution.counts.tolist(), strict=True)
    have = {(c, n): k for c, n, k in triples}
    for number, cut in enumerate(problem.cuts):
        refused = zip(cut.classes.tolist(), cut.nodes.tolist(), cut.counts.tolist(), strict=True)
        if len(cut.classes) and all(have.get((c, n), 0) == k for c, n, k in refused):
            yield f"cut {number}: the placement of gang {cut.gang} that was refused is repeated"


def _account(problem: Problem, solution: Solution) -> Iterator[str]:
    worth = [0.0] * len(solution.objective)
    for c, k in zip(solution.classes.tolist(), solution.counts.tolist(), strict=True):
        worth[int(problem.gangs.tier[problem.classes.gang[c]])] += float(problem.classes.weight[c]) * k
    for t, (value, reported, bound) in enumerate(zip(worth, solution.objective, solution.bound, strict=True)):
        if abs(value - reported) > _TOLERANCE * max(abs(value), abs(reported)):
            yield f"tier {t} has the value {value} and the solution reports {reported}"
        if not bound >= reported - _TOLERANCE * abs(reported):
            yield f"tier {t} has the bound {bound} below its objective {reported}"


def _problem_after_eviction(problem: VictimProblem, leaving: set[int]) -> Problem:
    """The gang's problem with what the nodes and quotas have left without some units."""
    free, quota_left = problem.free.copy(), problem.quota_left.copy()
    gangs_left = problem.gangs_left.copy()
    for unit, node, freed in zip(problem.unit.tolist(), problem.node.tolist(), problem.freed, strict=True):
        if unit in leaving:
            free[node] += freed
            for quota in np.flatnonzero(problem.quota_unit[:, unit]).tolist():
                quota_left[quota] += freed
    for unit in leaving:
        gangs_left[problem.quota_unit[:, unit]] += int(problem.ends[unit])
    gang = problem.pending
    return replace(
        gang,
        nodes=replace(gang.nodes, free=free),
        quotas=replace(gang.quotas, free=quota_left, gangs=gangs_left),
    )


def _eviction_cost(problem: VictimProblem, answer: VictimSolution) -> Iterator[str]:
    cost = sum(int(problem.cost[unit]) for unit in answer.units.tolist())
    if cost != answer.cost:
        yield f"the units cost {cost} and the answer says {answer.cost}"
    if answer.bound > answer.cost:
        yield f"the bound {answer.bound} is above the cost {cost}"
    if answer.greedy >= 0 and cost > answer.greedy:
        yield f"the units cost {cost}, a greedy's {answer.greedy}"


def _eviction_limits(problem: VictimProblem, leaving: set[int]) -> Iterator[str]:
    for unit, other in zip(problem.bond_unit.tolist(), problem.bond_with.tolist(), strict=True):
        if unit in leaving and other not in leaving:
            yield f"unit {unit} leaves and unit {other} does not"
    inside = np.isin(problem.limit_unit, list(leaving))
    used = _sum(problem.limit_row[inside], problem.limit_amount[inside], len(problem.limit))
    for row in np.flatnonzero(used > np.maximum(problem.limit, 0)).tolist():
        yield f"limit {row} allows {problem.limit[row]} and {used[row]} is taken"
    for number, cut in enumerate(problem.cuts):
        if leaving <= set(cut.tolist()):
            yield f"cut {number} is not kept"


def _unneeded_units(
    problem: VictimProblem, leaving: set[int], after: Problem, placement: Solution
) -> Iterator[str]:
    """Each evicted unit must hold room that the placement uses, or another evicted unit must require its eviction."""
    if len(after.quotas.gangs) or problem.cuts:  # a unit may be needed for another reason than room
        return
    bonds = zip(problem.bond_unit.tolist(), problem.bond_with.tolist(), strict=True)
    required = {other for unit, other in bonds if unit in leaving}
    used = _requests_by_node(after, placement)
    for unit in sorted(leaving - required):
        shares = problem.unit == unit
        nodes = problem.node[shares]
        remaining = after.nodes.free[nodes] - problem.freed[shares]
        if not np.any((used[nodes] > 0) & (remaining < used[nodes])):
            yield f"unit {unit} leaves and the placement does without its room"


def _sum(index: NDArray[np.integer], amounts: IntArray, length: int) -> IntArray:
    """Amounts [P] summed by index [P], as exact integers [length]."""
    total = np.zeros(length, np.int64)
    np.add.at(total, index, amounts)
    return total

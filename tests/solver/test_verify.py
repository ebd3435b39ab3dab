"""The checker: silent on sound solutions, and it catches each kind of planted fault."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchsched.solver.exact import solve_exact
from batchsched.solver.problem import (
    ALL_NODES,
    NONE,
    UNLIMITED,
    ConstraintRow,
    Cut,
    Problem,
    ProblemSubgroups,
    Sense,
    Solution,
    SolverBudget,
)
from batchsched.solver.verify import find_solution_faults
from tests.solver.instances import problem_of, problems

Planted = tuple[Problem, Solution]
BUDGET = SolverBudget(deterministic=5.0)


def solution_of(problem: Problem, triples: list[tuple[int, int, int]], taken: list[bool]) -> Solution:
    classes, nodes, counts = (np.array(part, np.int32) for part in zip(*triples, strict=True))
    tiers = int(problem.gangs.tier.max()) + 1
    worth = np.bincount(
        problem.gangs.tier[problem.classes.gang[classes]],
        problem.classes.weight[classes] * counts,
        minlength=tiers,
    )
    return Solution(classes, nodes, counts, np.array(taken), worth.astype(float), worth.astype(float))


def restated(problem: Problem, solution: Solution) -> Solution:
    """The same placement with an objective that is true, so that only the planted fault is one."""
    tiers = len(solution.objective)
    value = problem.classes.weight[solution.classes] * solution.counts
    worth = np.bincount(
        problem.gangs.tier[problem.classes.gang[solution.classes]], value, minlength=tiers
    ).astype(float)
    return replace(solution, objective=worth, bound=np.maximum(worth, solution.bound))


def one(index: int, dtype: type = np.int32) -> np.ndarray:
    return np.array([index], dtype)


def overfull_node(problem: Problem, solution: Solution) -> Planted | None:
    """What is free on a placed pod's node shrinks below what it asks for."""
    c, n = solution.classes[0], solution.nodes[0]
    asks = np.flatnonzero(problem.classes.demand[c])
    if not len(asks):
        return None
    free = problem.nodes.free.copy()
    free[n, asks[0]] = problem.classes.demand[c, asks[0]] * solution.counts[0] - 1
    return replace(problem, nodes=replace(problem.nodes, free=free)), solution


def masked_node(problem: Problem, solution: Solution) -> Planted:
    mask = problem.kinds.mask.copy()
    mask[problem.classes.kind[solution.classes[0]], solution.nodes[0]] = False
    return replace(problem, kinds=replace(problem.kinds, mask=mask)), solution


def pod_too_many(problem: Problem, solution: Solution) -> Planted:
    counts = solution.counts.copy()
    counts[0] += problem.classes.count[solution.classes[0]]
    roomy = replace(problem, nodes=replace(problem.nodes, free=problem.nodes.free * 10))
    return roomy, restated(roomy, replace(solution, counts=counts))


def partial_gang(problem: Problem, solution: Solution) -> Planted | None:
    gang = problem.classes.gang[solution.classes[0]]
    if problem.gangs.need[gang] == 0:
        return None
    need = problem.gangs.need.copy()
    need[gang] = solution.counts[problem.classes.gang[solution.classes] == gang].sum() + 1
    return replace(problem, gangs=replace(problem.gangs, need=need)), solution


def pods_of_a_refused_gang(problem: Problem, solution: Solution) -> Planted | None:
    gang = problem.classes.gang[solution.classes[0]]
    if problem.gangs.need[gang] == 0:
        return None
    taken = solution.taken.copy()
    taken[gang] = False
    return problem, replace(solution, taken=taken)


def gang_called_taken(problem: Problem, solution: Solution) -> Planted | None:
    refused = np.flatnonzero(~solution.taken)
    if not len(refused):
        return None
    taken = solution.taken.copy()
    taken[refused[0]] = True
    return problem, replace(solution, taken=taken)


def gang_called_refused_though_it_needs_nothing(problem: Problem, solution: Solution) -> Planted | None:
    full = np.flatnonzero(problem.gangs.need == 0)
    full = full[~np.isin(full, problem.subgroups.gang)]
    if not len(full):
        return None
    taken = solution.taken.copy()
    taken[full[0]] = False
    return problem, replace(solution, taken=taken)


def gang_not_allowed(problem: Problem, solution: Solution) -> Planted:
    allowed = problem.gangs.allowed.copy()
    allowed[problem.classes.gang[solution.classes[0]]] = False
    return replace(problem, gangs=replace(problem.gangs, allowed=allowed)), solution


def subgroup_below_its_need(problem: Problem, solution: Solution) -> Planted | None:
    """A subgroup loses a pod, its gang gains one elsewhere."""
    in_parts = problem.classes.subgroup[solution.classes] >= 0
    gangs = problem.classes.gang[solution.classes]
    for p in np.flatnonzero(in_parts & (problem.gangs.need[gangs] > 0)):
        sub_need = problem.subgroups.need.copy()
        sub = problem.classes.subgroup[solution.classes[p]]
        held = solution.counts[problem.classes.subgroup[solution.classes] == sub].sum()
        sub_need[sub] = held + 1
        others = sub_need[problem.subgroups.gang == gangs[p]].sum()
        if others <= solution.counts[gangs == gangs[p]].sum():
            return replace(problem, subgroups=replace(problem.subgroups, need=sub_need)), solution
    return None


def split_domain(problem: Problem, solution: Solution) -> Planted | None:
    gangs = problem.classes.gang[solution.classes]
    for gang in np.unique(gangs):
        nodes = np.unique(solution.nodes[gangs == gang])
        if len(nodes) > 1 and problem.gangs.required[gang] < 0:
            required, levels = problem.gangs.required.copy(), problem.nodes.levels.copy()
            required[gang] = 0
            levels[0] = np.arange(levels.shape[1])
            bare = np.full_like(problem.gangs.required, -1)
            bare[gang] = 0
            return replace(
                problem,
                gangs=replace(problem.gangs, required=bare, pinned=np.full_like(bare, -1)),
                nodes=replace(problem.nodes, levels=levels),
            ), solution
    return None


def node_without_the_label(problem: Problem, solution: Solution) -> Planted:
    gang, node = problem.classes.gang[solution.classes[0]], solution.nodes[0]
    required, levels = problem.gangs.required.copy(), problem.nodes.levels.copy()
    required[gang] = 1
    levels[1, node] = -1
    return replace(
        problem, gangs=replace(problem.gangs, required=required), nodes=replace(problem.nodes, levels=levels)
    ), solution


def domain_beside_the_pin(problem: Problem, solution: Solution) -> Planted | None:
    gang, node = problem.classes.gang[solution.classes[0]], solution.nodes[0]
    if problem.nodes.levels[1, node] < 0:
        return None
    required, pinned = problem.gangs.required.copy(), problem.gangs.pinned.copy()
    required[gang], pinned[gang] = 1, problem.nodes.levels[1, node] + 1
    return replace(problem, gangs=replace(problem.gangs, required=required, pinned=pinned)), solution


def subgroup_outside_its_domain(problem: Problem, solution: Solution) -> Planted | None:
    inside = np.flatnonzero(problem.classes.subgroup[solution.classes] >= 0)
    if not len(inside):
        return None
    sub, node = problem.classes.subgroup[solution.classes[inside[0]]], solution.nodes[inside[0]]
    if problem.nodes.levels[1, node] < 0:
        return None
    required, pinned = problem.subgroups.required.copy(), problem.subgroups.pinned.copy()
    required[sub], pinned[sub] = 1, problem.nodes.levels[1, node] + 1
    return replace(problem, subgroups=replace(problem.subgroups, required=required, pinned=pinned)), solution


def quota_overdrawn(problem: Problem, solution: Solution) -> Planted | None:
    c = solution.classes[0]
    asks = np.flatnonzero(problem.classes.demand[c])
    if not len(asks):
        return None
    free = np.full((1, problem.nodes.free.shape[1]), UNLIMITED)
    free[0, asks[0]] = problem.classes.demand[c, asks[0]] * solution.counts[0] - 1
    member = np.zeros((1, len(problem.gangs.need)), np.bool_)
    member[0, problem.classes.gang[c]] = True
    return replace(
        problem, quotas=replace(problem.quotas, covers=member, free=free, gangs=one(UNLIMITED, np.int64))
    ), solution


def gang_over_the_quota(problem: Problem, solution: Solution) -> Planted | None:
    gang = problem.classes.gang[solution.classes[0]]
    if problem.gangs.need[gang] == 0:
        return None
    fresh = np.zeros(len(problem.gangs.need), np.bool_)
    member = np.zeros((1, len(problem.gangs.need)), np.bool_)
    fresh[gang] = member[0, gang] = True
    free = np.full((1, problem.nodes.free.shape[1]), UNLIMITED)
    none = one(0, np.int64)
    return replace(
        problem,
        gangs=replace(problem.gangs, fresh=fresh),
        quotas=replace(problem.quotas, covers=member, free=free, gangs=none),
    ), solution


def row_broken(problem: Problem, solution: Solution) -> Planted:
    c = solution.classes[0]
    held = solution.counts[solution.classes == c].sum()
    row = ConstraintRow(
        ALL_NODES, one(c), one(2, np.int64), one(2 * held - 1, np.int64), plugin="Ports", reason="taken"
    )
    return replace(problem, rows=(*problem.rows, row)), solution


def sides_of_a_row_in_one_domain(problem: Problem, solution: Solution) -> Planted | None:
    pair = np.unique(solution.classes)[:2]
    if len(pair) < 2:
        return None
    sides, loose = np.array([False, True]), one(UNLIMITED, np.int64)
    row = ConstraintRow(ALL_NODES, pair, np.ones(2, np.int64), loose, on_second_side=sides)
    return replace(problem, rows=(*problem.rows, row)), solution


def side_of_a_row_next_to_the_other_one(problem: Problem, solution: Solution) -> Planted:
    first, loose = np.zeros(1, np.bool_), one(UNLIMITED, np.int64)
    row = ConstraintRow(
        ALL_NODES, solution.classes[:1], one(1, np.int64), loose, on_second_side=first, used_side=one(1)
    )
    return replace(problem, rows=(*problem.rows, row)), solution


def floor_row_broken(problem: Problem, solution: Solution) -> Planted | None:
    c = solution.classes[0]
    gang = problem.classes.gang[c]
    if problem.gangs.need[gang] == 0:
        return None
    held = solution.counts[solution.classes == c].sum()
    least = np.array([[-(held + 1)]], np.int64)
    ones, zero = one(1, np.int64), one(0, np.int64)
    row = ConstraintRow(ALL_NODES, one(c), ones, zero, Sense.AT_LEAST, one(gang), least)
    return replace(problem, rows=(*problem.rows, row)), solution


def cut_repeated(problem: Problem, solution: Solution) -> Planted:
    gang = int(problem.classes.gang[solution.classes[0]])
    cut = Cut(gang, solution.classes, solution.nodes, solution.counts)
    return replace(problem, cuts=(*problem.cuts, cut)), solution


def objective_overstated(problem: Problem, solution: Solution) -> Planted:
    more = solution.objective * 1.001 + 0.001
    return problem, replace(solution, objective=more, bound=more + 1)


def bound_below_the_objective(problem: Problem, solution: Solution) -> Planted | None:
    if not solution.objective.any():
        return None
    return problem, replace(solution, bound=solution.objective * 0.999)


def bound_not_a_number(problem: Problem, solution: Solution) -> Planted:
    return problem, replace(solution, bound=solution.bound * np.nan)


def tier_missing(problem: Problem, solution: Solution) -> Planted:
    return problem, replace(solution, objective=solution.objective[:-1], bound=solution.bound[:-1])


def triple_named_twice(problem: Problem, solution: Solution) -> Planted:
    twice: dict[str, Any] = {
        name: np.append(getattr(solution, name), getattr(solution, name)[-1:])
        for name in ("classes", "nodes", "counts")
    }
    return problem, replace(solution, **twice)


def count_of_zero(problem: Problem, solution: Solution) -> Planted:
    return problem, replace(solution, counts=solution.counts * 0)


def node_that_is_not_there(problem: Problem, solution: Solution) -> Planted:
    return problem, replace(solution, nodes=solution.nodes + len(problem.nodes.free))


def node_below_the_first(problem: Problem, solution: Solution) -> Planted:
    nodes = solution.nodes.copy()
    nodes[0] = -1
    return problem, replace(solution, nodes=nodes)


def class_below_the_first(problem: Problem, solution: Solution) -> Planted:
    classes = solution.classes.copy()
    classes[0] = -1
    return problem, replace(solution, classes=classes)


def lengths_that_differ(problem: Problem, solution: Solution) -> Planted:
    return problem, replace(solution, counts=solution.counts[:-1])


FAULTS: dict[Callable[[Problem, Solution], Planted | None], str] = {
    overfull_node: "free and",
    masked_node: "mask refuses",
    pod_too_many: "pods and",
    partial_gang: "pods it needs",
    pods_of_a_refused_gang: "is not taken and",
    gang_called_taken: "reported as taken",
    gang_called_refused_though_it_needs_nothing: "not reported as taken",
    gang_not_allowed: "not allowed",
    subgroup_below_its_need: "subgroup",
    split_domain: "is in domains",
    node_without_the_label: "without a domain",
    domain_beside_the_pin: "is pinned",
    subgroup_outside_its_domain: "is pinned",
    quota_overdrawn: "quota 0 leaves",
    gang_over_the_quota: "gangs and",
    row_broken: "Ports: taken) asks for at most",
    sides_of_a_row_in_one_domain: "both have pods",
    side_of_a_row_next_to_the_other_one: "both have pods",
    floor_row_broken: "asks for at least",
    cut_repeated: "is repeated",
    objective_overstated: "the solution reports",
    bound_below_the_objective: "below its objective",
    bound_not_a_number: "has the bound nan",
    tier_missing: "one value for each",
    triple_named_twice: "named twice",
    count_of_zero: "not positive",
    node_that_is_not_there: "outside",
    node_below_the_first: "a node outside",
    class_below_the_first: "a class outside",
    lengths_that_differ: "different lengths",
}


@pytest.mark.properties
@given(problems(), st.sampled_from(list(FAULTS)))
def test_each_kind_of_planted_fault_is_caught(problem: Problem, plant: Callable):
    solution = solve_exact(problem, BUDGET, seed=0)
    assume(len(solution.classes) > 0)
    assert find_solution_faults(problem, solution) == ()
    planted = plant(problem, solution)
    assume(planted is not None)
    faults = find_solution_faults(*planted)
    assert any(FAULTS[plant] in fault for fault in faults), faults


@pytest.mark.parametrize("plant", FAULTS)
def test_the_fault_is_caught_in_a_session_of_plain_gangs(plant: Callable):
    """A session where every fault can be planted, so that no kind goes untried whatever hypothesis draws."""
    pair = {"pods": 1, "demand": [1]}
    gangs = [pair | {"pods": 2}, pair | {"pods": 9}, pair | {"need": 0}, pair]
    problem = problem_of([[1], [2], [1]], gangs, levels=[[0, 0, 0], [0, 0, 0]])
    problem = replace(
        problem,
        classes=replace(
            problem.classes,
            gang=np.array([0, 1, 2, 0], np.int32),
            subgroup=np.array([0, -1, -1, 1], np.int32),
        ),
        gangs=replace(problem.gangs, need=np.array([2, 9, 0, 9], np.int32)),
        subgroups=replace(
            problem.subgroups,
            gang=np.zeros(2, np.int32),
            need=np.ones(2, np.int32),
            required=np.full(2, -1, np.int32),
            preferred=np.full(2, -1, np.int32),
            pinned=np.full(2, -1, np.int32),
        ),
    )
    solution = solution_of(problem, [(0, 0, 1), (0, 1, 1), (2, 2, 1), (3, 1, 1)], [True, False, True, False])
    assert find_solution_faults(problem, solution) == ()
    planted = plant(problem, solution)
    assert planted is not None
    assert any(FAULTS[plant] in fault for fault in find_solution_faults(*planted))


def test_many_trees_are_verified_in_linear_time():
    gangs = 2000
    leaf, none = np.tile([False, True, True], gangs), np.full(3 * gangs, NONE, np.int32)
    parent = np.repeat(np.arange(0, 3 * gangs, 3), 3)
    each = {name: np.zeros(gangs, np.int32) for name in ("tier", "rank")}
    each |= {name: np.full(gangs, -1, np.int32) for name in ("required", "preferred", "pinned")}
    problem = problem_of(
        [[2 * gangs]],
        [{"pods": 1, "demand": [1]}] * (2 * gangs),
        levels=[[0]],
        gang=np.repeat(np.arange(gangs, dtype=np.int32), 2),
        subgroup=np.flatnonzero(leaf).astype(np.int32),
        need=np.full(gangs, 2, np.int32),
        fresh=np.ones(gangs, np.bool_),
        allowed=np.ones(gangs, np.bool_),
        **each,
    )
    problem = replace(
        problem,
        subgroups=ProblemSubgroups(
            gang=np.repeat(np.arange(gangs, dtype=np.int32), 3),
            need=leaf.astype(np.int32),
            required=np.zeros(3 * gangs, np.int32),
            preferred=none,
            pinned=none,
            parent=np.where(leaf, parent, NONE).astype(np.int32),
            slice_level=np.where(leaf, 0, NONE).astype(np.int32),
            slice_size=leaf.astype(np.int32),
        ),
    )
    solution = solution_of(problem, [(c, 0, 1) for c in range(2 * gangs)], [True] * gangs)
    started = time.process_time()
    assert find_solution_faults(problem, solution) == ()
    assert time.process_time() - started < 2


def test_a_solution_without_placements_is_valid():
    problem = problem_of([[4]], [{"pods": 2, "demand": [3]}])
    none = np.zeros(0, np.int32)
    empty = Solution(none, none, none, np.array([False]), np.zeros(1), np.array([6.0]))
    assert find_solution_faults(problem, empty) == ()


def test_long_lists_of_faults_are_truncated():
    problem = problem_of([[4]], [{"pods": 1, "demand": [1]}] * 40)
    triples = [(c, 0, 1) for c in range(40)]
    crowded = solution_of(
        replace(
            problem,
            kinds=replace(problem.kinds, mask=~problem.kinds.mask),
            nodes=replace(problem.nodes, free=problem.nodes.free * 10),
        ),
        triples,
        [True] * 40,
    )
    faults = find_solution_faults(
        replace(
            problem,
            kinds=replace(problem.kinds, mask=~problem.kinds.mask),
            nodes=replace(problem.nodes, free=problem.nodes.free * 10),
        ),
        crowded,
    )
    assert faults[-1] == "and more of the same"
    assert len(faults) == 21

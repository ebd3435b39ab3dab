"""Trees of subgroups and slices: against the exhaustive search, in every stage that places gangs."""

from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from typing_extensions import override

from batchsched.solver import tree_search
from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import (
    NONE,
    Problem,
    ProblemSubgroups,
    RunningSlicePodCounts,
    Solution,
    SolverBudget,
)
from batchsched.solver.stage import solve_problem
from batchsched.solver.tree_search import find_placement_or_proof
from batchsched.solver.verify import find_solution_faults
from tests.solver.tree_instances import legal, placements, random_tree

seeds = st.integers(0, 2**32 - 1)


def counts_of(problem: Problem, solution) -> np.ndarray:
    counts = np.zeros((len(problem.classes.count), len(problem.nodes.free)), np.int64)
    counts[solution.classes, solution.nodes] = solution.counts
    return counts


def feasible(problem: Problem) -> bool:
    return next(placements(problem), None) is not None


@given(seeds, st.booleans())
def test_greedy_places_a_tree_whole_or_not_at_all(seed, running):
    problem = random_tree(seed, running=running)
    solution = solve_greedy(problem)
    assert find_solution_faults(problem, solution) == ()
    counts = counts_of(problem, solution)
    assert not counts.any() or legal(problem, counts)


@given(seeds, st.booleans())
def test_solver_places_a_tree_exactly_if_the_exhaustive_search_does(seed, running):
    problem = random_tree(seed, running=running)
    if problem.gangs.need[0] == 0:
        return
    solution = solve_problem(problem, SolverBudget())
    assert find_solution_faults(problem, solution) == ()
    counts = counts_of(problem, solution)
    assert bool(solution.taken[0]) == feasible(problem)
    assert not counts.any() or legal(problem, counts)


@given(seeds, st.booleans())
@example(530, True)  # all pods of the gang are running
def test_search_finds_a_placement_or_proves_that_there_is_none(seed, running):
    problem = random_tree(seed, running=running)
    if problem.gangs.need[0] == 0:
        return
    search = find_placement_or_proof(problem, 1.0, 0)
    assert search.proved == (search.solution is None)
    assert (search.solution is not None) == feasible(problem)
    if search.solution is not None:
        assert find_solution_faults(problem, search.solution) == ()


@given(seeds, st.booleans())
def test_verifier_finds_a_fault_exactly_in_placements_that_break_a_tree(seed, running):
    rng = np.random.default_rng(seed)
    problem = random_tree(seed, running=running, nodes=3)
    if problem.gangs.need[0] == 0:
        return
    kinds, nodes = problem.kinds, problem.nodes
    # Whatever the nodes and filters allow: only the tree decides.
    problem = replace(
        problem,
        kinds=replace(kinds, mask=np.ones_like(kinds.mask)),
        nodes=replace(nodes, free=np.full_like(nodes.free, 99)),
    )
    drawn = [np.bincount(rng.integers(0, 4, k), minlength=4)[:3] for k in problem.classes.count]
    counts = np.array(drawn).reshape(-1, 3)
    if rng.random() < 0.7:  # few placements over all nodes keep a tree
        counts = np.zeros_like(counts)
        counts[:, rng.integers(0, 3)] = problem.classes.count * (rng.random(len(counts)) < 0.8)
    classes, on = (index.astype(np.int32) for index in np.nonzero(counts))
    worth = np.array([counts.sum()], np.float64)
    solution = Solution(classes, on, counts[classes, on].astype(np.int32), np.ones(1, np.bool_), worth, worth)
    if counts.any():
        assert (find_solution_faults(problem, solution) == ()) == legal(problem, counts)


def test_search_that_has_spent_its_units_keeps_the_first_placement(monkeypatch):
    class SpentByOneCall(CpSatBudget):
        @override
        def maximise(self, *model, **options):
            assert self.remaining > 0
            answer = super().maximise(*model, **options)
            self.remaining = 0.0
            return answer

    monkeypatch.setattr(tree_search, "CpSatBudget", SpentByOneCall)
    problem = sliced_gang(np.full(4, 4), np.arange(4), 2, 2)
    search = find_placement_or_proof(problem, 1.0, 0)
    assert search.solution is not None
    assert find_solution_faults(problem, search.solution) == ()


COARSE = SolverBudget(exact_variables=0)
"""A budget with which the tiered model decides also about small problems."""


@given(seeds)
def test_tiered_stage_and_its_completion_place_a_tree_exactly_if_it_fits(seed):
    problem = random_tree(seed)
    solution = solve_problem(problem, COARSE)
    assert find_solution_faults(problem, solution) == ()
    assert bool(solution.taken[0]) == feasible(problem)


@given(seeds, st.integers(2, 4), st.booleans())
def test_no_stage_breaks_one_of_several_trees(seed, gangs, small):
    problem = random_tree(seed, gangs=gangs, nodes=8)
    solution = solve_problem(problem, SolverBudget() if small else COARSE)
    assert find_solution_faults(problem, solution) == ()


@given(seeds)
def test_slices_use_the_fewest_domains_and_differ_by_at_most_one(seed):
    rng = np.random.default_rng(seed)
    size, slices = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    problem = sliced_gang(rng.integers(0, 7, 6), rng.integers(0, 4, 6), size, slices)
    solution = solve_problem(problem, SolverBudget() if rng.random() < 0.5 else COARSE)
    heights = {d: pods // size for d, pods in pods_by_rack(problem, counts_of(problem, solution)).items()}
    used = [
        len(pods_by_rack(problem, counts)) for counts in placements(problem) if counts.sum() == size * slices
    ]
    assert bool(heights) == bool(used)
    if heights:
        assert max(heights.values()) - min(heights.values()) <= 1
        assert len(heights) == min(used)


def sliced_gang(free, racks, size: int, slices: int) -> Problem:
    """A gang of one-unit pods in slices; level 0 is the racks."""
    problem = random_tree(0)
    count = np.array([size * slices], np.int32)
    none = np.full(1, NONE, np.int32)
    return replace(
        problem,
        nodes=replace(
            problem.nodes,
            free=free.astype(np.int64)[:, None],
            capacity=np.maximum(free, 1)[:, None],
            levels=racks.astype(np.int32)[None],
        ),
        kinds=replace(
            problem.kinds, mask=np.ones((1, len(free)), np.bool_), score=np.zeros((1, len(free)), np.int64)
        ),
        classes=replace(
            problem.classes,
            kind=np.zeros(1, np.int32),
            gang=np.zeros(1, np.int32),
            subgroup=none,
            count=count,
            demand=np.ones((1, 1), np.int64),
            weight=np.ones(1),
        ),
        gangs=replace(
            problem.gangs.select_entries([0]),
            need=count,
            required=none,
            preferred=none,
            min_children=none,
            slice_level=np.zeros(1, np.int32),
            slice_size=np.array([size], np.int32),
        ),
        subgroups=ProblemSubgroups(),
        running_slice_pods=RunningSlicePodCounts(),
    )


def pods_by_rack(problem: Problem, counts: np.ndarray) -> dict[int, int]:
    by_node = counts.sum(axis=0)
    racks = problem.nodes.levels[0]
    return {int(d): int(by_node[racks == d].sum()) for d in np.unique(racks[by_node > 0])}

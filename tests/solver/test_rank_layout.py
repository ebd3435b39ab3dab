"""Rank layout: classes with ranks move to nodes of a lower cost, and nothing else changes."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchsched.solver.domain_tree import DomainTree, network_costs_by_level
from batchsched.solver.objective import count_placed_pods, preferred_level_cost
from batchsched.solver.problem import SolverBudget, UsedPreferredDomains
from batchsched.solver.rank_layout import RankedPodClass, lay_out_ranks
from batchsched.solver.stage import solve_problem
from batchsched.solver.verify import find_solution_faults
from tests.solver.instances import problem_of, problems
from tests.solver.tree_instances import random_tree


def ranked(*classes: int, levels: tuple[int, ...] = (0,)) -> list[RankedPodClass]:
    return [RankedPodClass(index, levels, np.zeros(0, np.int32)) for index in classes]


def test_class_moves_into_one_rack_beside_a_class_without_ranks():
    problem = problem_of(
        [[2], [2], [2], [2]],
        [{"pods": 3, "demand": [1]}, {"pods": 3, "demand": [1]}],
        levels=[[0, 1, 0, 1]],
    )
    solution = solve_problem(problem, SolverBudget(), 0)
    laid_out = lay_out_ranks(problem, solution, ranked(0))
    levels = problem.nodes.levels
    racks = DomainTree(levels, network_costs_by_level(len(levels)), np.zeros(levels.shape[1], np.bool_))
    nodes = laid_out.nodes[laid_out.classes == 0]
    assert racks.layout_cost(np.bincount(nodes, minlength=levels.shape[1])) == 1
    others = solution.classes == 1
    assert laid_out.nodes[laid_out.classes == 1].tolist() == solution.nodes[others].tolist()


@given(problems(), st.data())
def test_layout_is_legal_and_neither_pods_nor_preferred_levels_lose(problem, data):
    solution = solve_problem(problem, SolverBudget(deterministic=0.2), 0)
    classes = data.draw(st.sets(st.sampled_from(range(len(problem.classes.gang)))))
    laid_out = lay_out_ranks(problem, solution, ranked(*sorted(classes), levels=(0, 1)))
    assert find_solution_faults(problem, laid_out) == ()
    assert (
        count_placed_pods(problem, laid_out.classes, laid_out.counts).tolist()
        == count_placed_pods(problem, solution.classes, solution.counts).tolist()
    )
    assert preferred_level_cost(problem, laid_out) <= preferred_level_cost(problem, solution) + 1e-9
    again = lay_out_ranks(problem, laid_out, ranked(*sorted(classes), levels=(0, 1)))
    assert find_solution_faults(problem, again) == ()


def test_class_stays_in_the_rack_of_running_pods_that_are_on_no_node_of_the_problem():
    problem = problem_of([[2], [1], [1]], [{"pods": 2, "demand": [1], "preferred": 0}], levels=[[1, 0, 0]])
    gang, level, rack = np.zeros((3, 1), np.int32)
    running = UsedPreferredDomains(gang=gang, subgroup=np.full(1, -1, np.int32), level=level, domain=rack)
    problem = replace(problem, used_domains=running)
    solution = solve_problem(problem, SolverBudget(), 0)
    assert solution.nodes.tolist() == [1, 2]
    laid_out = lay_out_ranks(problem, solution, ranked(0))
    assert laid_out.nodes.tolist() == [1, 2]


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_layout_keeps_trees_and_slices(seed, running):
    problem = random_tree(seed, nodes=6, pods=8, running=running)
    solution = solve_problem(problem, SolverBudget(deterministic=0.2), 0)
    laid_out = lay_out_ranks(problem, solution, ranked(*range(len(problem.classes.gang)), levels=(0, 1)))
    assert find_solution_faults(problem, laid_out) == ()


def test_class_that_is_too_large_for_the_limit_of_work_is_not_moved(monkeypatch):
    problem = problem_of([[2], [2], [2], [2]], [{"pods": 3, "demand": [1]}], levels=[[0, 1, 0, 1]])
    solution = solve_problem(problem, SolverBudget(), 0)
    monkeypatch.setattr("batchsched.solver.rank_layout.MAX_LAYOUT_WORK", 10)
    assert lay_out_ranks(problem, solution, ranked(0)) is solution

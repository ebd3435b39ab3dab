"""What placements are worth, by hand."""

from dataclasses import replace

import numpy as np

from batchsched.solver.objective import (
    ALL_CLASSES,
    compare_objectives_by_tier,
    compare_solutions,
    count_pods_still_required,
    count_tiers,
    lower_bound_of_minimum_requests,
    mask_gangs_beyond_quotas,
    objective_upper_bounds_by_tier,
    objectives_by_tier,
    preferred_level_cost,
)
from batchsched.solver.problem import UNLIMITED, Problem, ProblemSubgroups, Solution
from tests.solver.instances import problem_of


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def placed(problem: Problem, *triples: tuple[int, int, int]) -> Solution:
    classes, nodes, counts = (
        (ints(*part) for part in zip(*triples, strict=True)) if triples else (ints(),) * 3
    )
    values = objectives_by_tier(problem, classes, counts)
    return Solution(classes, nodes, counts, np.ones(len(problem.gangs.need), np.bool_), values, values)


def test_values_are_weights_by_tier():
    gangs = [{"pods": 3, "demand": [1], "weight": 0.5, "tier": 1}, {"pods": 1, "demand": [1], "weight": 2.0}]
    problem = problem_of([[9]], gangs)
    assert count_tiers(problem) == 2
    assert placed(problem, (0, 0, 3), (1, 0, 1)).objective.tolist() == [2.0, 1.5]


def test_without_gangs_there_are_no_tiers():
    assert count_tiers(problem_of([[1]], [])) == 0


def test_a_gang_needs_no_less_than_its_subgroups():
    problem = problem_of(
        [[1]], [{"pods": 5, "need": 2, "demand": [1]}, {"pods": 5, "need": 4, "demand": [1]}]
    )
    inner = replace(problem, subgroups=replace(problem.subgroups, gang=ints(0, 0, 1), need=ints(2, 1, 1)))
    assert count_pods_still_required(inner).tolist() == [3, 4]


def test_the_first_tier_that_differs_decides_and_rounding_does_not():
    assert compare_objectives_by_tier(np.array([1.0, 5.0]), np.array([1.0, 7.0])) == -1
    assert compare_objectives_by_tier(np.array([2.0, 5.0]), np.array([1.0, 7.0])) == 1
    assert compare_objectives_by_tier(np.array([0.1 + 0.2, 5.0]), np.array([0.3, 5.0])) == 0


def test_each_domain_beyond_the_first_costs_the_gangs_weight():
    gangs = [{"pods": 3, "demand": [1], "weight": 2.0, "preferred": 0}]
    problem = problem_of([[9]] * 4, gangs, levels=[[0, 0, 1, -1]])
    assert preferred_level_cost(problem, placed(problem)) == 0.0
    assert preferred_level_cost(problem, placed(problem, (0, 0, 1), (0, 1, 2))) == 0.0
    assert preferred_level_cost(problem, placed(problem, (0, 0, 1), (0, 2, 2))) == 6.0
    assert preferred_level_cost(problem, placed(problem, (0, 0, 1), (0, 2, 1), (0, 3, 1))) == 12.0


def test_domains_of_running_members_count_as_used():
    gangs = [{"pods": 1, "demand": [1], "weight": 2.0, "preferred": 0}]
    used = {"used_gang": ints(0), "used_subgroup": ints(-1), "used_level": ints(0), "used_domain": ints(1)}
    problem = problem_of([[9], [9]], gangs, levels=[[0, 1]], **used)
    assert preferred_level_cost(problem, placed(problem, (0, 0, 1))) == 2.0
    assert preferred_level_cost(problem, placed(problem, (0, 1, 1))) == 0.0


def test_a_subgroup_prefers_for_its_own_pods():
    gangs = [{"pods": 1, "demand": [1], "weight": 2.0}, {"pods": 2, "demand": [1], "weight": 1.0}]
    bare = problem_of([[9], [9]], gangs, levels=[[0, 1]])
    problem = replace(
        bare,
        classes=replace(bare.classes, gang=ints(0, 0), subgroup=ints(-1, 0)),
        subgroups=ProblemSubgroups(ints(0), ints(0), ints(-1), ints(0), ints(-1)),
    )
    assert preferred_level_cost(problem, placed(problem, (0, 0, 1), (1, 1, 2))) == 0.0
    assert preferred_level_cost(problem, placed(problem, (0, 0, 1), (1, 0, 1), (1, 1, 1))) == 2.0


def test_the_minimum_demand_of_a_gang_is_that_of_its_smallest_pods():
    problem = problem_of([[9, 9]], [{"pods": 2, "need": 3, "demand": [4, 1]}, {"pods": 2, "demand": [1, 3]}])
    together = replace(
        problem,
        classes=replace(problem.classes, gang=ints(0, 0)),
        gangs=replace(problem.gangs.select_entries([0]), need=ints(3)),
    )
    assert lower_bound_of_minimum_requests(problem).tolist() == [[8, 2], [2, 6]]
    assert lower_bound_of_minimum_requests(together).tolist() == [[1 + 1 + 4, 1 + 1 + 3]]


def test_a_gang_is_beyond_a_quota_only_if_it_requests_more_than_the_quota_leaves():
    gangs = [
        {"pods": 3, "demand": [1, 0]},
        {"pods": 3, "need": 2, "demand": [1, 0]},
        {"pods": 9, "demand": [0, 1]},
    ]
    problem = problem_of(
        [[99, 99]],
        gangs,
        quota_covers=np.ones((1, 3), np.bool_),
        quota_free=np.array([[2, UNLIMITED]]),
        quota_gangs=np.array([UNLIMITED]),
    )
    assert mask_gangs_beyond_quotas(problem).tolist() == [True, False, False]
    assert mask_gangs_beyond_quotas(
        replace(problem, quotas=replace(problem.quotas, gangs=np.zeros(1, np.int64)))
    ).all()
    assert not mask_gangs_beyond_quotas(problem_of([[1]], [{"pods": 3, "demand": [1]}])).any()


EMPTY = np.zeros(0, np.int32)


def worth(*tiers: float, taken: int = 0) -> Solution:
    gangs = np.arange(4) < taken
    return Solution(EMPTY, EMPTY, EMPTY, gangs, np.array(tiers), np.array(tiers))


def test_the_first_tier_that_differs_decides():
    assert compare_solutions(worth(1.0, 9.0), worth(2.0, 0.0)) == -1
    assert compare_solutions(worth(2.0, 1.0), worth(2.0, 0.0)) == 1


def test_the_number_of_gangs_decides_among_equal_tiers():
    assert compare_solutions(worth(1.0, taken=2), worth(1.0, taken=1)) == 1
    assert compare_solutions(worth(1.0, taken=1), worth(1.0, taken=1)) == 0


def test_the_ceiling_counts_every_pod_of_allowed_gangs():
    gangs = [{"pods": 2, "demand": [1]}, {"pods": 3, "demand": [1], "tier": 1, "allowed": False}]
    problem = problem_of([[1]], gangs)
    assert objective_upper_bounds_by_tier(problem).tolist() == [2.0, 0.0]
    assert objectives_by_tier(problem, ALL_CLASSES, np.array([1, 1])).tolist() == [1.0, 1.0]

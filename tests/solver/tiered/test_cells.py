"""Candidate domains: the tightest, some scattered, the incumbent's; rows nest only where domains do."""

import numpy as np

from batchsched.solver.greedy import solve_greedy
from batchsched.solver.packing.packing import Packing
from batchsched.solver.tiered.cells import MAX_BEST_FIT_DOMAINS, MAX_SCATTERED_DOMAINS, CandidateDomains
from tests.solver.instances import problem_of

NODES = 40


def domains_of(free: list[int], *, levels: list[list[int]], required: int = 0, keep: bool = True):
    gang = {"pods": 1, "demand": [2], "required": required}
    problem = problem_of([[room] for room in free], [gang], levels=levels)
    packing = Packing(problem)
    return CandidateDomains(packing, solve_greedy(problem) if keep else None), packing


def test_candidates_hold_the_gang_and_are_no_more_than_twelve_and_the_incumbents():
    free = [1 + index % 9 for index in range(NODES)]
    domains, packing = domains_of(free, levels=[list(range(NODES))])
    cells = domains.of_gang(0, packing.members(0))
    assert len(cells) <= MAX_BEST_FIT_DOMAINS + MAX_SCATTERED_DOMAINS + 1
    assert all(free[cell.domain] >= 2 for cell in cells)
    assert int(solve_greedy(packing.problem).nodes[0]) in {cell.domain for cell in cells}


def test_for_bounds_one_cell_holds_every_domain_that_may_do():
    domains, packing = domains_of([1, 2, 3], levels=[[0, 1, 2]], keep=False)
    (cell,) = domains.of_gang(0, packing.members(0), every=True)
    assert cell.nodes.tolist() == [1, 2]


def test_a_racks_row_enters_a_zones_only_when_the_rack_lies_inside_it():
    levels = [[0, 0, 0, 1], [0, 0, 1, 1]]
    domains, _ = domains_of([9] * 4, levels=levels, required=1)
    assert domains.areas(1, 0) == ((1, 0), (0, 0))
    assert domains.areas(1, 1) == ((1, 1),)


def test_a_pinned_domain_that_does_not_exist_gives_no_cell():
    gang = {"pods": 1, "demand": [1], "required": 0, "pinned": 7}
    packing = Packing(problem_of([[4]], [gang], levels=[[0]]))
    assert CandidateDomains(packing, None).of_gang(0, packing.members(0)) == []
    assert packing.try_gang(0) is None
    assert np.array_equal(packing.domain_nodes(0, 7), [])

"""The exact stage: optimal on small problems, in the order that the issue states."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.exact import solve_exact
from batchsched.solver.problem import Budget, Problem, Solution
from batchsched.solver.verify import verify
from batchsched.solver.worth import preferred_cost
from tests.solver.brute import brute
from tests.solver.instances import problem_of, problems

BUDGET = Budget(deterministic=20.0)


def placed(solution: Solution) -> dict[tuple[int, int], int]:
    return {
        (int(c), int(n)): int(k)
        for c, n, k in zip(solution.classes, solution.nodes, solution.counts, strict=True)
    }


@pytest.mark.properties
@given(problems())
def test_tier_values_gangs_and_preferred_cost_equal_the_optimum(problem: Problem):
    best = brute(problem)
    solution = solve_exact(problem, BUDGET, seed=1)
    assert verify(problem, solution) == ()
    assert solution.objective == pytest.approx(best.tiers, rel=1e-9, abs=1e-12)
    assert solution.bound == pytest.approx(best.tiers, rel=1e-9, abs=1e-12)
    assert int(solution.taken.sum()) == best.gangs
    assert preferred_cost(problem, solution) == pytest.approx(best.cost, rel=1e-9, abs=1e-9)

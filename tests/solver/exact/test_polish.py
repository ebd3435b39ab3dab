"""Ties: the values at hand stay legal as variables are added, and the objectives mean what they say."""

import pytest
from hypothesis import given

from batchsched.solver.exact.exact import solve_exact
from batchsched.solver.exact.nodewise import NodeModel
from batchsched.solver.exact.polish import add_preferences, place_by_score
from batchsched.solver.objective import list_preferences, preferred_cost
from batchsched.solver.problem import Budget, Problem
from tests.solver.instances import problems


@pytest.mark.properties
@given(problems())
def test_the_values_at_hand_stay_legal_and_count_gangs_before_preferred_cost(problem: Problem):
    solution = solve_exact(problem, Budget(deterministic=0.0), seed=0)
    best = solve_exact(problem, Budget(deterministic=5.0), seed=0)
    seen = []
    for placed in (solution, best):
        model = NodeModel(problem)
        triples = zip(placed.classes.tolist(), placed.nodes.tolist(), placed.counts.tolist(), strict=True)
        values = model.assignment(triples)
        assert values is not None
        values, objective, _ = add_preferences(model, values)
        assert model.model.admits(values)
        seen.append((int(placed.taken.sum()), -preferred_cost(problem, placed), int(objective @ values)))
        values, objective = place_by_score(model, values)
        assert model.model.admits(values)
        assert len(objective) == model.model.variables
    if list_preferences(problem) and seen[0][:2] != seen[1][:2]:
        assert (seen[0][:2] < seen[1][:2]) == (seen[0][2] < seen[1][2])

"""The choice of victims: the cheapest set, without unneeded victims, and none if no eviction would help."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.verify import find_victim_faults
from batchsched.solver.victims.choose import (
    GREEDIES,
    VictimSearchLimits,
    choose_victims,
    cost_lower_bound,
    cost_lower_bounds_per_pod_by_node,
    restore_unneeded_victims,
    search_inputs_by_domain,
)
from batchsched.solver.victims.model import VictimModel
from batchsched.solver.victims.tree_victims import choose_victims_with_placement
from batchsched.solver.victims.victim_problem import VictimProblem
from batchsched.solver.victims.victim_state import VictimSearchInput, VictimState
from tests.solver.instances import one_gang, problem_of
from tests.solver.victims.instances import (
    allowed_sets,
    cheapest,
    fits_without,
    random_victims,
    victim_problems,
    victims_of,
)

BUDGET = VictimSearchLimits()
GREEDY = VictimSearchLimits(exact=False)


@pytest.mark.properties
@given(victim_problems())
def test_an_answer_is_valid_and_costs_no_more_than_the_best_greedy(problem):
    answer = choose_victims(problem, BUDGET)
    greedy = choose_victims(problem, GREEDY)
    if answer is None:
        assert greedy is None
        return
    assert find_victim_faults(problem, answer) == ()
    assert greedy is None or answer.cost <= greedy.cost


@pytest.mark.properties
@given(victim_problems(plain=True))
def test_the_answer_is_the_cheapest_of_all_sets_for_plain_problems(problem):
    answer = choose_victims(problem, BUDGET)
    best = cheapest(problem)
    assert (None if answer is None else answer.cost) == best
    assert answer is None or answer.bound == best


@pytest.mark.properties
@given(victim_problems())
def test_no_victim_that_could_stay_is_evicted(problem):
    answer = choose_victims(problem, BUDGET)
    if answer is None:
        return
    allowed = set(allowed_sets(problem))
    for unit in answer.units.tolist():
        fewer = tuple(one for one in answer.units.tolist() if one != unit)
        assert fewer not in allowed or not fits_without(problem, fewer)


@pytest.mark.properties
@given(victim_problems())
def test_no_unit_is_evicted_for_a_gang_that_no_set_of_victims_makes_fit(problem):
    answer = choose_victims(problem, BUDGET)
    if cheapest(problem) is None:
        assert answer is None or not fits_without(problem, tuple(answer.units.tolist()))


def test_equal_problems_have_equal_answers():
    problem = random_victims(7)
    first, second = choose_victims(problem, BUDGET, 3), choose_victims(problem, BUDGET, 3)
    assert repr(first) == repr(second)


def test_a_gang_that_fits_already_evicts_no_unit():
    answer = choose_victims(victims_of([[8]], {"pods": 1, "demand": [8]}, [(1, {0: [0]})]), BUDGET)
    assert answer is not None
    assert (answer.units.tolist(), answer.stage) == ([], "room")


def test_a_gang_of_48_gpus_evicts_48_of_376_gpus():
    """47 full nodes, each held by a gang of its own; six of them are enough.

    Source: the regression that design's issue on queues names; a peer evicted 376 GPUs for a request of 48.
    """
    problem = victims_of([[0]] * 47, {"pods": 6, "demand": [8]}, [(10 + n % 7, {n: [8]}) for n in range(47)])
    answer = choose_victims(problem, BUDGET)
    assert answer is not None
    assert len(answer.units) == 6
    assert answer.cost == 60


def test_one_spread_gang_is_chosen_if_it_costs_less_than_several_small_ones():
    small = [(3, {n: [8]}) for n in range(4)]
    problem = victims_of([[0]] * 8, {"pods": 4, "demand": [8]}, [*small, (10, {n: [8] for n in range(4, 8)})])
    answer = choose_victims(problem, BUDGET)
    assert answer is not None
    assert answer.units.tolist() == [4]


def test_nodes_shared_by_two_gangs_are_cleared_of_both():
    """Each greedy takes the pair that is cheapest now; the pairs of one expensive gang are cheaper together."""
    shared = (9, {0: [4], 1: [4], 2: [4]})
    partners = [(1, {n: [4]}) for n in range(3)]
    alone = [(5, {n: [8]}) for n in range(3, 6)]
    problem = victims_of([[0]] * 6, {"pods": 3, "demand": [8]}, [shared, *partners, *alone])
    answer = choose_victims(problem, BUDGET)
    assert answer is not None
    assert answer.units.tolist() == [0, 1, 2, 3]


def test_a_gang_with_a_required_rack_clears_only_the_cheapest_rack():
    units = [(cost, {n: [8]}) for n, cost in enumerate([1, 9, 4, 4, 1, 9])]
    problem = victims_of(
        [[0]] * 6, {"pods": 2, "demand": [8], "required": 0}, units, levels=[[0, 0, 1, 1, 2, 2]]
    )
    answer = choose_victims(problem, BUDGET)
    assert answer is not None
    assert answer.units.tolist() == [2, 3]
    assert sorted(answer.nodes.tolist()) == [2, 3]


def test_the_minimum_of_an_elastic_gang_is_evicted_only_after_its_surplus():
    surplus, minimum = (1, {0: [8]}), (5, {1: [8], 2: [8]})
    bonds = {"bond_unit": np.array([1], np.int32), "bond_with": np.array([0], np.int32)}
    one = victims_of([[0]] * 3, {"pods": 1, "demand": [8]}, [surplus, minimum], **bonds)
    three = victims_of([[0]] * 3, {"pods": 3, "demand": [8]}, [surplus, minimum], **bonds)
    two = victims_of([[0]] * 3, {"pods": 2, "demand": [8]}, [surplus, minimum], **bonds)
    assert [answer.units.tolist() for answer in map(_chosen, (one, two, three))] == [[0], [0, 1], [0, 1]]


def test_a_disruption_budget_is_never_exceeded():
    units = [(1, {0: [8]}), (1, {1: [8]}), (50, {2: [8]})]
    budget = {
        "limit": np.array([1]),
        "limit_row": np.zeros(2, np.int32),
        "limit_unit": np.array([0, 1], np.int32),
        "limit_amount": np.ones(2, np.int64),
    }
    two = victims_of([[0]] * 3, {"pods": 2, "demand": [8]}, units, **budget)
    assert 2 in _chosen(two).units
    three = victims_of([[0]] * 3, {"pods": 3, "demand": [8]}, units, **budget)
    assert choose_victims(three, BUDGET) is None


def test_the_model_keeps_to_every_disruption_budget():
    units = [(1, {0: [8]}), (1, {1: [8]}), (50, {2: [8]})]
    budget = {
        "limit": np.array([1, 1]),
        "limit_row": np.array([0, 0, 1], np.int32),
        "limit_unit": np.array([0, 1, 2], np.int32),
        "limit_amount": np.ones(3, np.int64),
    }
    problem = victims_of([[0]] * 3, {"pods": 2, "demand": [8]}, units, **budget)
    answer = VictimModel(next(search_inputs_by_domain(problem))).solve(
        None, 100, CpSatBudget(4.0, 30.0, 0), 0.0
    )
    assert answer.values is not None
    assert -answer.objective == 51


def test_a_queue_at_its_limit_evicts_its_own_gangs_although_nodes_are_free():
    problem = victims_of(
        [[8], [8]], {"pods": 1, "demand": [8]}, [(2, {0: [4]}), (1, {1: [4]}), (1, {1: [4]})]
    )
    wanted = replace(
        problem.pending,
        quotas=replace(
            problem.pending.quotas,
            covers=np.ones((1, 1), np.bool_),
            free=np.zeros((1, 1), np.int64),
            gangs=np.ones(1, np.int64),
        ),
    )
    problem = replace(
        problem,
        pending=wanted,
        quota_left=np.array([[4]]),
        gangs_left=np.array([1]),
        quota_unit=np.array([[True, False, True]]),
    )
    assert _chosen(problem).units.tolist() == [2]


def test_a_cut_set_of_victims_is_not_chosen_again():
    problem = victims_of([[0]] * 2, {"pods": 1, "demand": [8]}, [(1, {0: [8]}), (2, {1: [8]})])
    assert _chosen(problem).units.tolist() == [0]
    assert _chosen(replace(problem, cuts=(np.array([0], np.int32),))).units.tolist() == [1]


def _chosen(problem: VictimProblem):
    answer = choose_victims(problem, BUDGET)
    assert answer is not None
    assert find_victim_faults(problem, answer) == ()
    return answer


@pytest.mark.properties
@given(victim_problems())
def test_victims_of_a_greedy_make_room_and_respect_bonds_and_limits(problem):
    for search_input in search_inputs_by_domain(problem):
        for one in GREEDIES:
            ground = one(search_input)
            if ground is not None:
                assert ground.gang_fits()
                restore_unneeded_victims(ground)
                assert ground.gang_fits()
                assert tuple(np.flatnonzero(ground.evicted).tolist()) in allowed_sets(problem)


@pytest.mark.properties
@given(victim_problems(plain=True))
def test_the_lower_bound_is_at_most_the_cost_of_the_cheapest_set(problem):
    best = cheapest(problem)
    for search_input in search_inputs_by_domain(problem):
        assert best is None or cost_lower_bound(search_input) <= best + 1e-9


def test_the_cost_of_a_gang_is_divided_equally_among_the_nodes_that_it_blocks():
    problem = victims_of(
        [[0]] * 3, {"pods": 2, "demand": [8]}, [(9, {0: [4], 1: [8], 2: [8]}), (1, {0: [4]})]
    )
    search_input = next(search_inputs_by_domain(problem))
    assert cost_lower_bounds_per_pod_by_node(search_input, 0).tolist() == [4, 3, 3]
    assert cost_lower_bound(search_input) == 6


@pytest.mark.properties
@given(victim_problems(plain=True))
def test_the_model_without_a_hint_finds_the_cheapest_set(problem):
    best = cheapest(problem)
    for search_input in search_inputs_by_domain(problem):
        answer = VictimModel(search_input).solve(
            None, int(problem.cost.sum()) + 1, CpSatBudget(4.0, 30.0, 0), 0.0
        )
        assert (None if answer.values is None else -answer.objective) == best


def test_a_set_cheaper_than_the_cheapest_is_infeasible_and_a_cut_requires_another_unit():
    problem = victims_of([[0]] * 2, {"pods": 1, "demand": [8]}, [(1, {0: [8]}), (2, {1: [8]})])
    search_input = next(search_inputs_by_domain(problem))
    model = VictimModel(search_input)
    assert model.solve(VictimState(search_input), 1, CpSatBudget(4.0, 30.0, 0), 0.0).infeasible
    model.add_cut(np.array([True, False]))
    answer = model.solve(None, 4, CpSatBudget(4.0, 30.0, 0), 0.0)
    assert answer.values is not None
    assert -answer.objective == 2


def test_an_overcommitted_resource_is_relieved_only_for_pods_that_request_it():
    pods = [{"pods": 1, "demand": [8, 0]}, {"pods": 1, "demand": [0, 1]}]
    problem = victims_of(
        [[8, -1], [0, 0]],
        pods[0],
        [(100, {0: [0, 2]}), (1, {1: [0, 1]})],
        pending=problem_of([[8, 0], [0, 0]], pods, **one_gang(2, 2)),
    )
    answer = _chosen(problem)
    assert (answer.units.tolist(), answer.cost, answer.bound) == ([1], 1, 1)
    model = VictimModel(next(search_inputs_by_domain(problem)))
    assert model.solve(None, 102, CpSatBudget(4.0, 30.0, 0), 0.0).objective == -1
    with_placement, bound = choose_victims_with_placement(problem, CpSatBudget(4.0, 30.0, 0), 0.0, 102)
    assert with_placement is not None
    assert (with_placement.units.tolist(), bound) == ([1], 1)


@pytest.mark.properties
@given(victim_problems())
def test_no_set_that_makes_room_is_cheaper_than_a_bound(problem):
    best, most = cheapest(problem), int(problem.cost.sum()) + 1
    if best is None or not problem.pending.gangs.need[0] or not problem.pending.gangs.allowed[0]:
        return
    answer = choose_victims(problem, BUDGET)
    assert answer is None or answer.bound <= best
    optima = [
        -VictimModel(search_input).solve(None, most, CpSatBudget(4.0, 30.0, 0), 0.0).bound
        for search_input in search_inputs_by_domain(problem)
    ]
    assert min(optima) <= best
    assert choose_victims_with_placement(problem, CpSatBudget(4.0, 30.0, 0), 0.0, most)[1] <= best


def test_the_model_frees_only_the_amount_that_the_limit_of_a_queue_lacks():
    problem = victims_of([[8], [8]], {"pods": 1, "demand": [8]}, [(1, {0: [4]}), (2, {0: [4]})])
    quotas = replace(
        problem.pending.quotas,
        covers=np.ones((1, 1), np.bool_),
        free=np.zeros((1, 1), np.int64),
        gangs=np.ones(1, np.int64),
    )
    problem = replace(
        problem,
        pending=replace(problem.pending, quotas=quotas),
        quota_left=np.array([[4]]),
        gangs_left=np.array([1]),
        quota_unit=np.array([[True, True]]),
    )
    answer = VictimModel(next(search_inputs_by_domain(problem))).solve(
        None, 4, CpSatBudget(4.0, 30.0, 0), 0.0
    )
    assert answer.values is not None
    assert -answer.objective == 1


@pytest.mark.properties
@given(victim_problems(plain=True))
def test_counting_finds_room_exactly_when_a_placement_exists(problem):
    search_input = VictimSearchInput.from_problem(problem)
    for chosen in allowed_sets(problem):
        ground = VictimState(search_input)
        assert ground.evict_units_within_limits(chosen)
        assert ground.gang_fits() == fits_without(problem, chosen)


@pytest.mark.properties
@given(victim_problems())
def test_restored_units_leave_the_original_state(problem):
    for search_input in search_inputs_by_domain(problem):
        ground = VictimState(search_input)
        before = ground.fit.copy()
        left = ground.evict_units_within_limits(range(problem.unit_count))
        while left and ground.evicted.any():
            ground.restore_unit(
                next(
                    u
                    for u in np.flatnonzero(ground.evicted).tolist()
                    if not ground.is_required_by_evicted_unit(u)
                )
            )
        assert not ground.evicted.any()
        assert np.array_equal(ground.fit, before)


def test_a_limit_that_forbids_one_unit_of_a_set_keeps_the_whole_set():
    problem = victims_of(
        [[0]] * 2,
        {"pods": 1, "demand": [8]},
        [(1, {0: [8]}), (1, {1: [8]})],
        limit=np.array([1]),
        limit_row=np.zeros(2, np.int32),
        limit_unit=np.array([0, 1], np.int32),
        limit_amount=np.ones(2, np.int64),
    )
    ground = VictimState(VictimSearchInput.from_problem(problem))
    assert not ground.evict_units_within_limits([0, 1])
    assert not ground.evicted.any()
    assert ground.evict_units_within_limits([1])
    assert ground.cost == 1

"""Water-filling, against what defines it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchsched.queues.sharing.water_filling import divide_surplus_by_water_filling, round_to_units

CASES = st.tuples(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 4))


def drawn(made: tuple[int, int, int]) -> tuple[np.ndarray, ...]:
    seed, count, width = made
    chance = np.random.default_rng(seed)
    demand = chance.integers(0, 1000, (count, width)) * (chance.random((count, width)) < 0.7)
    surplus = chance.integers(0, 2000, width)
    pace = chance.choice([0.0, 0.5, 1.0, 3.0], count)
    start = chance.choice([0.0, 0.0, 0.4, 2.0], count)
    return demand, surplus, pace, start


@given(made=CASES)
def test_no_queue_gets_more_than_its_demand_and_the_sum_is_at_most_the_surplus(made):
    demand, surplus, pace, start = drawn(made)
    given_ = divide_surplus_by_water_filling(demand, surplus, pace, start)
    assert (given_ >= 0).all()
    assert (given_ <= demand).all()
    assert (given_.sum(axis=0) <= surplus * (1 + 1e-9) + 1e-6).all()
    assert not given_[pace == 0].any()


@given(made=CASES)
def test_every_resource_with_unmet_demand_is_given_completely(made):
    demand, surplus, pace, start = drawn(made)
    given_ = divide_surplus_by_water_filling(demand, surplus, pace, start)
    left = surplus - given_.sum(axis=0)
    unmet = (demand - given_)[pace > 0].sum(axis=0)
    assert (np.minimum(left, unmet) <= 1e-3 * np.maximum(1, surplus)).all()


@given(made=CASES)
def test_unsatisfied_queues_reach_the_same_level_of_a_single_resource(made):
    seed, count, _ = made
    demand, surplus, pace, start = drawn((seed, count, 1))
    given_ = divide_surplus_by_water_filling(demand, surplus, pace, start)[:, 0]
    rising = (pace > 0) & (demand[:, 0] > 0)
    part = np.divide(given_, demand[:, 0], out=np.zeros(count), where=rising)
    level = np.divide(part, pace, out=np.zeros(count), where=rising) + start
    open_ = rising & (part < 1 - 1e-9)
    for one in np.flatnonzero(open_):
        # No queue with a part of the surplus is above the level of a queue with unmet demand.
        assert (level[rising & (part > 0)] <= max(level[one], start[one]) + 1e-6).all()


@given(made=CASES)
def test_whole_units_differ_from_exact_parts_by_less_than_one_within_the_surplus(made):
    demand, surplus, pace, start = drawn(made)
    parts = divide_surplus_by_water_filling(demand, surplus, pace, start)
    units = round_to_units(parts, demand, surplus, np.zeros(len(demand)))
    assert (units >= 0).all()
    assert (units <= demand).all()
    assert (units.sum(axis=0) <= surplus).all()
    assert (abs(units - parts) < 1 + 1e-6).all()


def test_last_unit_is_given_by_largest_remainder_then_least_usage_then_position():
    most, surplus = np.array([[9], [9], [9]]), np.array([4])

    def units(parts: list[float], late: list[float]) -> list[int]:
        found = round_to_units(np.array(parts)[:, np.newaxis], most, surplus, np.array(late))
        return [int(one) for one in found[:, 0]]

    assert units([1.2, 1.5, 1.3], [0, 0, 0]) == [1, 2, 1]
    assert units([4 / 3] * 3, [0.5, 0.2, 0.9]) == [1, 2, 1]
    assert units([4 / 3] * 3, [0, 0, 0]) == [2, 1, 1]


def test_a_queue_stopped_by_one_resource_leaves_the_others_to_its_siblings():
    demand, surplus = np.array([[10, 10], [0, 10]]), np.array([2, 10])
    given_ = divide_surplus_by_water_filling(demand, surplus, np.ones(2), np.zeros(2))
    assert given_.tolist() == [[2, 2], [0, 8]]

"""Shares of the cluster: raw units are never compared."""

import numpy as np

from batchsched.ordering.fairness.siblings import dominant, per_weight, portions, sizes

CAPACITY = np.array([10_000, 2**40, 8, 0])
WEIGHED = np.array([True, True, True, False])


def test_dominant_share_compares_parts_of_the_capacity_and_not_bytes_with_cpus():
    amounts = np.array([[5000, 2**30, 0, 0], [100, 2**38, 0, 0], [0, 0, 8, 0]])
    assert dominant(amounts, CAPACITY, WEIGHED).tolist() == [0.5, 0.25, 1.0]


def test_what_the_cluster_does_not_have_is_infinitely_much_where_it_is_weighed():
    amounts = np.array([0, 0, 0, 3])
    assert dominant(amounts, CAPACITY, WEIGHED) == 0
    assert dominant(amounts, CAPACITY, np.ones(4, np.bool_)) == np.inf
    assert portions(np.zeros(4), CAPACITY, np.ones(4, np.bool_)).tolist() == [0, 0, 0, 0]


def test_size_of_a_demand_without_weighed_resources_is_that_of_the_others():
    weighed = np.array([True, True, False, False])
    assert sizes(np.array([[0, 0, 4, 0], [1000, 0, 8, 0]]), CAPACITY, weighed).tolist() == [0.5, 0.1]


def test_with_weight_0_anything_is_infinite_and_nothing_is_nothing():
    found = per_weight(np.array([0.0, 0.5, 0.5]), np.array([0.0, 0.0, 2.0]))
    assert found.tolist() == [0.0, np.inf, 0.25]

"""Layouts of pods with ranks: what nodes and domains cost, and the layout of least cost."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchsched.solver.domain_tree import DomainTree, network_costs_by_level


def tree(paths: list[list[int]], known: list[bool] | None = None) -> DomainTree:
    levels = np.array(paths, np.int32)
    return DomainTree(
        levels, network_costs_by_level(len(levels)), np.array(known or [False] * levels.shape[1], np.bool_)
    )


def hop_cost(paths: np.ndarray, nodes: list[int]) -> int:
    counts = np.isin(np.arange(paths.shape[1]), nodes).astype(np.int64)
    return tree(paths.tolist()).layout_cost(counts)


def test_a_hop_costs_one_in_a_rack_two_between_racks_and_four_between_blocks():
    blocks, racks = [0, 0, 0, 1], [0, 0, 1, 2]
    paths = np.array([blocks, racks], np.int32)
    assert hop_cost(paths, [0]) == 0
    assert hop_cost(paths, [0, 1]) == 1
    assert hop_cost(paths, [0, 2]) == 2
    assert hop_cost(paths, [0, 3]) == 4


def test_equal_rack_names_in_two_blocks_are_two_racks():
    paths = np.array([[0, 1], [0, 0]], np.int32)
    assert hop_cost(paths, [0, 1]) == 4


def test_pods_fill_the_rack_that_they_fit_best():
    counts = tree([[0, 0, 0, 1, 1]]).find_cheapest_layout(np.array([4, 4, 4, 4, 4]), 8)
    assert counts.tolist() == [0, 0, 0, 4, 4]


def test_last_pods_go_to_the_node_that_they_fill():
    counts = tree([[0, 0, 0]]).find_cheapest_layout(np.array([8, 8, 2]), 10)
    assert counts.tolist() == [8, 0, 2]


def test_pods_join_the_rack_of_the_bound_pods_of_their_gang():
    counts = tree([[0, 1, 1]], [True, False, False]).find_cheapest_layout(np.array([2, 2, 2]), 2)
    assert counts.tolist() == [2, 0, 0]


@given(st.data())
def test_no_other_layout_costs_less(data):
    nodes = data.draw(st.integers(1, 6))
    capacity = np.array(data.draw(st.lists(st.integers(1, 3), min_size=nodes, max_size=nodes)), np.int64)
    levels = data.draw(st.integers(1, 3))
    domain = st.lists(st.integers(-1, 2), min_size=nodes, max_size=nodes)
    known = data.draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes))
    domains = tree([data.draw(domain) for _ in range(levels)], known)
    pods = data.draw(st.integers(1, int(capacity.sum())))
    counts = domains.find_cheapest_layout(capacity, pods)
    assert counts.sum() == pods
    assert (counts <= capacity).all()
    least = min(
        domains.layout_cost(np.array(chosen))
        for chosen in itertools.product(*[range(most + 1) for most in capacity.tolist()])
        if sum(chosen) == pods
    )
    assert domains.layout_cost(counts) == least


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=7))
def test_cost_is_that_of_all_hops_if_ranks_are_assigned_domain_by_domain(labels):
    paths = np.array(sorted(labels), np.int32).T
    nodes = np.arange(paths.shape[1], dtype=np.int32)
    hops = 0
    for first, second in itertools.pairwise(nodes.tolist()):
        differing = next((level for level in (0, 1) if paths[level, first] != paths[level, second]), 2)
        hops += {0: 4, 1: 2, 2: 1}[differing]
    assert hop_cost(paths, nodes.tolist()) == hops

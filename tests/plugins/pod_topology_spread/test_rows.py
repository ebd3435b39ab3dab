"""Rows of hard spreading: they never refuse what the Filter allows pod by pod, and they bite where they can."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.plugins.pod_topology_spread import PodTopologySpread
from batchsched.plugins.pod_topology_spread.rows import DomainCounts, reachable_minimum
from tests.plugins import neighbours as nb

PLUGIN = PodTopologySpread()


@pytest.mark.properties
@given(nb.worlds("spread"), st.randoms(use_true_random=False), st.integers(0, 31), st.booleans())
def test_placements_that_the_filter_accepts_pod_by_pod_satisfy_every_row(world, random, closed, known):
    table = world.table()
    reach = np.asarray([not closed >> at & 1 for at in range(len(world.nodes))])
    batch = nb.batch_of(world, table, reach if known else None)
    rows = PLUGIN.constrain(batch, table.all_nodes_view())
    for _ in range(3):
        placed, taken = nb.walk(PLUGIN, world, random, reach)
        assert [row for row in rows if nb.broken(row, batch, placed, taken)] == []


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 40))
def test_water_level_is_the_highest_minimum_that_the_pods_can_reach(existing, pods):
    level = reachable_minimum(np.asarray(existing), pods)
    lift = lambda to: sum(max(0, to - one) for one in existing)  # noqa: E731
    assert lift(level) <= pods < lift(level + 1)


def zones(*sizes: int) -> list[Node]:
    return [
        nb.node(f"{z}{at}", {nb.ZONE: z}) for z, size in zip("xyz", sizes, strict=False) for at in range(size)
    ]


def world_of(nodes, *gangs: nb.Gang, bound=()) -> nb.World:
    return nb.World(tuple(nodes), tuple(bound), gangs, ())


def admitted(world: nb.World, placed: list[list[int]]) -> bool:
    table = world.table()
    batch = nb.batch_of(world, table)
    counts = np.asarray(placed)
    taken = np.ones(len(world.gangs), np.int64)
    return not any(
        nb.broken(row, batch, counts, taken) for row in PLUGIN.constrain(batch, table.all_nodes_view())
    )


def spreading(key: str, skew: int = 1, **fields) -> Pod:
    return nb.pod("w", {"app": "a"}, topologySpreadConstraints=[nb.spread(key, "a", skew, **fields)])


def test_rigid_gang_of_seven_pods_over_three_zones_ends_at_the_water_level():
    gang = nb.Gang(((spreading(nb.ZONE), 7),), rigid=True)
    bound = [(nb.pod("old", {"app": "a"}), 0), (nb.pod("older", {"app": "a"}), 0)]
    world = world_of(zones(1, 1, 1), gang, bound=bound)
    level = [split for split in np.ndindex(8, 8, 8) if sum(split) == 7 and admitted(world, [list(split)])]
    assert level == [(1, 3, 3)]


def test_rigid_gang_leaves_no_zone_empty_that_its_pods_reach_at_their_level():
    gang = nb.Gang(((spreading(nb.ZONE), 4),), rigid=True)
    world = world_of(zones(1, 1, 1), gang)
    assert admitted(world, [[1, 1, 2]])
    assert not admitted(world, [[2, 2, 0]])


def test_larger_skew_admits_every_distribution_that_some_order_reaches():
    gang = nb.Gang(((spreading(nb.ZONE, skew=2), 4),), rigid=True)
    world = world_of(zones(1, 1, 1), gang)
    assert admitted(world, [[2, 2, 0]])
    assert admitted(world, [[1, 1, 2]])
    assert not admitted(world, [[4, 0, 0]])


def test_hostname_key_caps_pods_node_by_node():
    gang = nb.Gang(((spreading(nb.HOST), 4),), rigid=False)
    world = world_of(zones(2, 2), gang)
    assert admitted(world, [[1, 1, 1, 1]])
    assert not admitted(world, [[3, 1, 0, 0]])


def test_too_few_domains_keep_the_minimum_at_zero():
    gang = nb.Gang(((spreading(nb.ZONE, minDomains=3), 4),), rigid=False)
    world = world_of(zones(1, 1), gang)
    assert admitted(world, [[1, 1]])
    assert not admitted(world, [[2, 1]])


def test_other_candidates_that_match_the_selector_raise_the_level_that_rows_allow():
    alone = nb.Gang(((spreading(nb.ZONE), 1),), rigid=False)
    friend = nb.Gang(((nb.pod("f", {"app": "a"}), 2),), rigid=False)
    bound = [(nb.pod("old", {"app": "a"}), 0)]
    assert not admitted(world_of(zones(1, 1), alone, bound=bound), [[1, 0]])
    assert admitted(world_of(zones(1, 1), alone, friend, bound=bound), [[1, 0], [0, 1]])


def test_nodes_without_a_key_are_closed():
    gang = nb.Gang(((spreading(nb.ZONE), 1),), rigid=False)
    world = world_of([*zones(1), nb.node("bare")], gang)
    assert admitted(world, [[1, 0]])
    assert not admitted(world, [[0, 1]])


def test_a_constraint_that_is_stated_twice_counts_each_pod_once():
    twice = [nb.spread(nb.ZONE, "a", skew=2), nb.spread(nb.ZONE, "a", skew=2)]
    gang = nb.Gang(((nb.pod("w", {"app": "a"}, topologySpreadConstraints=twice), 2),), rigid=False)
    assert admitted(world_of(zones(1, 1), gang), [[2, 0]])


def test_a_row_of_a_single_gang_binds_only_when_the_gang_is_taken():
    gang = nb.Gang(((spreading(nb.ZONE), 3),), rigid=False)
    world = world_of(zones(2, 1), gang)
    table = world.table()
    batch = nb.batch_of(world, table)
    (row,) = PLUGIN.constrain(batch, table.all_nodes_view())
    assert nb.broken(row, batch, np.asarray([[1, 1, 1]]), np.ones(1, np.int64)) == []
    assert nb.broken(row, batch, np.asarray([[2, 1, 0]]), np.ones(1, np.int64)) == [0]
    assert nb.broken(row, batch, np.asarray([[0, 0, 1]]), np.zeros(1, np.int64)) == [1]


def test_empty_and_soft_constraints_make_no_rows():
    empty = nb.pod("w", {"app": "a"}, topologySpreadConstraints=[nb.spread(nb.ZONE, "a", labelSelector={})])
    soft = spreading(nb.ZONE, whenUnsatisfiable="ScheduleAnyway")
    world = world_of(zones(1, 1), nb.Gang(((empty, 3), (soft, 3)), rigid=True))
    table = world.table()
    assert PLUGIN.constrain(nb.batch_of(world, table), table.all_nodes_view()) == []


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 20), st.integers(1, 3))
def test_the_smallest_global_minimum_is_the_first_at_which_all_pods_fit(existing, pods, skew):
    everywhere = np.ones(len(existing), np.bool_)
    counts = DomainCounts(everywhere, np.asarray(existing), everywhere)
    fit = lambda least: sum(max(0, least + skew - one) for one in existing)  # noqa: E731
    least = counts.required_global_minimum(pods, skew)
    assert fit(least) >= pods
    assert pods == 0 or fit(least - 1) < pods

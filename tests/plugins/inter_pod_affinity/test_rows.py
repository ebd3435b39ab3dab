"""Rows of required affinity and anti-affinity: they never refuse what the Filter allows, and bite where they can."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import Pod
from batchsched.framework.constrain import EVERY_NODE
from batchsched.plugins.inter_pod_affinity import InterPodAffinity
from tests.plugins import neighbours as nb

PLUGIN = InterPodAffinity()


@pytest.mark.properties
@given(nb.worlds("interpod"), st.randoms(use_true_random=False))
def test_placements_that_the_filter_accepts_pod_by_pod_satisfy_every_row(world, random):
    table = world.table()
    batch = nb.batch_of(world, table)
    rows = PLUGIN.constrain(batch, table.all_nodes_view())
    anywhere = np.ones(len(world.nodes), np.bool_)
    for _ in range(3):
        placed, taken = nb.walk(PLUGIN, world, random, anywhere)
        assert [row for row in rows if nb.broken(row, batch, placed, taken)] == []
        for gang, key in batch.gathered.items():
            own = [one.index for one in batch.candidates if one.gang == gang]
            there = placed[own].sum(axis=0) > 0
            assert len(set(table.label_indexes_and_values(key)[0][there].tolist())) <= 1
        for subgroup, key in batch.gathered_subgroups.items():
            assert len(set(table.label_indexes_and_values(key)[0][placed[subgroup] > 0].tolist())) <= 1


NODES = (
    nb.node("n0", {nb.ZONE: "x"}),
    nb.node("n1", {nb.ZONE: "x"}),
    nb.node("n2", {nb.ZONE: "y"}),
    nb.node("n3"),
)


def world_of(*classes: tuple[Pod, int], bound=()) -> nb.World:
    gangs = tuple(nb.Gang((one,), rigid=False) for one in classes)
    return nb.World(NODES, tuple(bound), gangs, ())


def admitted(world: nb.World, *placed: list[int]) -> bool:
    table = world.table()
    batch = nb.batch_of(world, table)
    rows = PLUGIN.constrain(batch, table.all_nodes_view())
    return not any(
        nb.broken(row, batch, np.asarray(placed), np.ones(len(world.gangs), np.int64)) for row in rows
    )


def apart(key: str, app: str, other: str) -> Pod:
    return nb.pod(f"{app}-apart", {"app": app}, affinity=nb.required(apart=[nb.near(key, app=other)]))


def together(key: str, app: str, other: str) -> Pod:
    return nb.pod(f"{app}-near", {"app": app}, affinity=nb.required(together=[nb.near(key, app=other)]))


def test_pods_with_anti_affinity_take_one_place_in_each_zone_and_any_without_a_zone():
    world = world_of((apart(nb.ZONE, "a", "a"), 4))
    assert admitted(world, [1, 0, 1, 2])
    assert not admitted(world, [1, 1, 0, 0])


def test_hostname_topology_makes_a_row_over_every_node():
    world = world_of((apart(nb.HOST, "a", "a"), 4))
    table = world.table()
    (row,) = PLUGIN.constrain(nb.batch_of(world, table), table.all_nodes_view())
    assert row.partition == EVERY_NODE
    assert row.right.tolist() == [1, 1, 1, 1]


def test_gangs_with_the_same_label_share_one_place():
    world = world_of((apart(nb.HOST, "a", "a"), 2), (apart(nb.HOST, "a", "a"), 2))
    assert not admitted(world, [1, 0, 0, 0], [1, 0, 0, 0])


def test_classes_that_exclude_each_other_do_not_both_fill_a_zone():
    world = world_of((apart(nb.ZONE, "a", "b"), 2), (nb.pod("b", {"app": "b"}), 3))
    assert admitted(world, [1, 1, 0, 0], [0, 0, 3, 0])
    assert not admitted(world, [1, 1, 0, 0], [3, 0, 0, 0])
    assert not admitted(world, [1, 0, 0, 0], [1, 0, 0, 0])


def test_a_domain_with_an_existing_pod_in_anti_affinity_is_closed():
    foe, enemy = nb.pod("b", {"app": "b"}), apart(nb.ZONE, "c", "a")
    wary = world_of((apart(nb.ZONE, "a", "b"), 2), bound=[(foe, 0)])
    assert not admitted(wary, [0, 1, 0, 0])
    assert admitted(wary, [0, 0, 2, 0])
    meek = world_of((nb.pod("a", {"app": "a"}), 2), bound=[(enemy, 0)])
    assert not admitted(meek, [0, 1, 0, 0])
    assert admitted(meek, [0, 0, 2, 0])


def test_a_pod_with_affinity_is_placed_only_with_the_pods_it_selects():
    world = world_of((together(nb.ZONE, "a", "b"), 2), (nb.pod("b", {"app": "b"}), 1))
    assert admitted(world, [1, 1, 0, 0], [1, 0, 0, 0])
    assert not admitted(world, [0, 0, 1, 0], [1, 0, 0, 0])
    assert not admitted(world, [0, 0, 0, 1], [0, 0, 0, 1])


def test_the_first_pod_that_matches_its_own_affinity_may_go_anywhere_unless_one_exists():
    series = (together(nb.ZONE, "a", "a"), 2)
    assert admitted(world_of(series), [0, 0, 2, 0])
    there = world_of(series, bound=[(nb.pod("old", {"app": "a"}), 0)])
    assert admitted(there, [1, 1, 0, 0])
    assert not admitted(there, [0, 0, 2, 0])


def test_a_term_stated_twice_counts_once():
    twice = nb.pod("a", {"app": "a"}, affinity=nb.required(apart=[nb.near(nb.ZONE, app="a")] * 2))
    assert admitted(world_of((twice, 2)), [1, 0, 1, 0])


def test_pods_that_match_their_own_affinity_are_gathered_in_one_domain_unless_such_a_pod_exists():
    series = nb.Gang(((together(nb.ZONE, "a", "a"), 2),), rigid=True)
    mixed = nb.Gang(((together(nb.ZONE, "b", "b"), 2), (nb.pod("c", {"app": "c"}), 1)), rigid=True)
    world = nb.World(NODES, (), (series, mixed), ())
    table = world.table()
    batch = nb.batch_of(world, table)
    PLUGIN.constrain(batch, table.all_nodes_view())
    assert batch.gathered == {0: nb.ZONE}
    assert batch.gathered_subgroups == {1: nb.ZONE}
    begun = nb.World(NODES, ((nb.pod("old", {"app": "a"}), 0),), (series,), ())
    table = begun.table()
    batch = nb.batch_of(begun, table)
    PLUGIN.constrain(batch, table.all_nodes_view())
    assert batch.gathered == {}


def test_a_gang_is_not_gathered_if_pods_without_its_affinity_match_it_too():
    series = nb.Gang(((together(nb.ZONE, "a", "a"), 2),), rigid=True)
    world = nb.World(NODES, (), (series, nb.Gang(((nb.pod("free", {"app": "a"}), 2),), rigid=False)), ())
    table = world.table()
    batch = nb.batch_of(world, table)
    PLUGIN.constrain(batch, table.all_nodes_view())
    assert batch.gathered == {}

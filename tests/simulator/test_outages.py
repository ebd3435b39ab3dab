import itertools

import pytest

from batchsched.errors import InvalidInput
from batchsched.simulator.outages import draw_outages
from batchsched.simulator.workload import nodes

NODES = nodes(20, {"cpu": "1"})


def test_a_seed_gives_one_list_by_time():
    drawn = draw_outages(NODES, 1000.0, 100.0, (0, 10_000), 4)
    assert drawn == draw_outages(NODES, 1000.0, 100.0, (0, 10_000), 4)
    assert [one.at for one in drawn] == sorted(one.at for one in drawn)


def test_a_node_is_back_before_it_fails_again():
    drawn = draw_outages(NODES, 50.0, 100.0, (0, 10_000), 4)
    for node in NODES:
        mine = [one for one in drawn if one.node == node.name]
        assert all((before.until or 0) <= after.at for before, after in itertools.pairwise(mine))
        assert all((one.until or 0) > one.at for one in mine)


def test_nodes_fail_as_often_as_asked_and_only_in_the_period():
    drawn = draw_outages(NODES, 900.0, 100.0, (5_000, 105_000), 1)
    assert len(drawn) == pytest.approx(20 * 100, rel=0.1)
    assert all(5_000 <= one.at <= 105_000 for one in drawn)


def test_a_mean_of_nothing_is_refused():
    with pytest.raises(InvalidInput, match="mean time"):
        draw_outages(NODES, 0.0, 1.0, (0, 1), 0)

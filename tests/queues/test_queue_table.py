"""The queue tree as arrays."""

import numpy as np
import pytest

from batchsched.queues.queue_table import resolve_policies
from batchsched.queues.sharing.policy import make_sharing_policy
from batchsched.queues.sharing.sibling_queues import UNLIMITED
from tests.queues.sharing.trees import cluster, queue, shares_of

TREE = (
    queue("org", guarantee={"cpu": "6"}, limit={"cpu": "8"}),
    queue("team", parent="org", guarantee={"nvidia.com/gpu": "2"}, limit={"cpu": "2"}, weight=3, priority=7),
    queue("other", parent="org", guarantee={"cpu": "1", "nvidia.com/gpu": "1"}, lendingLimit={"cpu": "0"}),
    queue("free", borrowingLimit={"cpu": "1"}),
)
SIZE = cluster(cpu=10_000, gpu=8)


def test_rows_are_sorted_by_level_and_siblings_by_name():
    shares = shares_of(TREE, SIZE)
    assert shares.names == ("", "default", "free", "org", "other", "team")
    assert shares.parent.tolist() == [-1, 0, 0, 0, 3, 3]
    assert [(one.start, one.stop) for one in shares.rows_by_level()] == [(1, 4), (4, 6)]
    assert shares.child_row_ranges().tolist()[3] == [4, 6]
    assert shares.row_and_ancestors_without_root(5).tolist() == [5, 3]
    assert shares.row_and_ancestors_without_root(0).tolist() == []


def test_settings_are_in_base_units_and_unlimited_where_unset():
    shares = shares_of(TREE, SIZE)
    team, other, free = (shares.own_gangs_row(name) for name in ("team", "other", "free"))
    assert shares.limit[team].tolist() == [2000, UNLIMITED]
    assert shares.lending[other].tolist() == [0, UNLIMITED]
    assert shares.borrowing[free].tolist() == [1000, UNLIMITED]
    assert (shares.weight[team], shares.priority[team]) == (3.0, 7)


def test_unstated_guarantee_is_the_sum_of_those_of_the_children():
    shares = shares_of(TREE, SIZE)
    assert shares.guarantee[shares.own_gangs_row("org")].tolist() == [6000, 3]


def test_usage_and_requests_are_summed_up_to_the_limits():
    shares = shares_of(
        TREE, SIZE, {"team": [1000, 1]}, {"team": [5000, 1], "other": [500, 0]}, {"team": [3, 0]}
    )
    assert shares.usage[[0, 3, 5]].tolist() == [[1000, 1]] * 3
    assert shares.request[[3, 4, 5]].tolist() == [[2500, 2], [500, 0], [6000, 2]]
    assert shares.history[0].tolist() == [3, 0]


def test_queue_with_children_and_pods_of_its_own_has_a_row_for_them():
    shares = shares_of(TREE, SIZE, {"org": [1000, 0]})
    assert shares.names[-1] == "org/"
    assert shares.own_gangs_row("org") == 6
    assert shares.usage[[0, 3, 6]].tolist() == [[1000, 0]] * 3
    with pytest.raises(KeyError):
        shares.own_gangs_row("missing")


def test_queue_without_an_object_is_ignored_and_default_always_has_a_row():
    shares = shares_of((), SIZE, {"missing": [1, 1], "default": [5, 0]})
    assert shares.names == ("", "default")
    assert shares.usage.tolist() == [[5, 0], [5, 0]]


def test_policy_of_a_queue_is_its_own_or_its_parents():
    shares = shares_of((*TREE, queue("deep", parent="team")), SIZE)
    default, fifo = make_sharing_policy("drf", {}), make_sharing_policy("fifo", {})
    found = resolve_policies(shares, default, {"team": fifo})
    chosen = dict(zip(shares.names, found, strict=True))
    assert {name for name, policy in chosen.items() if policy is fifo} == {"team", "deep"}
    assert chosen[""] is default


def test_with_usage_returns_a_copy_and_leaves_the_original_unchanged():
    shares = shares_of(TREE, SIZE)
    other = shares.with_usage(shares.usage + 1)
    assert not shares.usage.any()
    assert (other.usage == 1).all()
    assert np.array_equal(other.guarantee, shares.guarantee)

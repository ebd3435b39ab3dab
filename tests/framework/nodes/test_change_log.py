"""The change log lists every node that changed since a generation."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchsched.framework.nodes.change_log import (
    MIN_ENTRIES,
    NO_NODE,
    NodeChangeLog,
    NodeValueCache,
    reordered_array,
)


def test_changed_nodes_are_listed_once_and_in_order():
    moves = NodeChangeLog(4)
    for node in (2, 0):
        moves.record_node_change(node)
    between = moves.generation
    moves.record_node_change(2)
    assert moves.nodes_changed_since(0).tolist() == [0, 2]
    assert moves.nodes_changed_since(between).tolist() == [2]
    assert moves.nodes_changed_since(moves.generation).tolist() == []


@given(data=st.data())
def test_no_change_is_missed_however_old_the_generation(data):
    moves = NodeChangeLog(3)
    noted = [step % 7 % 3 for step in range(4 * MIN_ENTRIES)]
    for node in noted:
        moves.record_node_change(node)
    since = data.draw(st.integers(0, len(noted)))
    found = moves.nodes_changed_since(since).tolist()
    assert set(noted[since:]) <= set(found)
    if len(noted) - since < MIN_ENTRIES:
        assert found == sorted(set(noted[since:]))


def test_changes_follow_renumbered_nodes_and_omit_deleted_ones():
    moves = NodeChangeLog(3)
    for node in (0, 1, NO_NODE):
        moves.record_node_change(node)
    moves.renumber_nodes([2, NO_NODE, 1, NO_NODE], 3)
    assert moves.nodes_changed_since(0).tolist() == [2]
    assert moves.generation == 4


class Squares:
    """Squares of the nodes' numbers, and the nodes of each call."""

    def __init__(self, numbers):
        self.numbers = numbers
        self.asked: list[list[int]] = []

    def __call__(self, some):
        where = np.arange(len(self.numbers)) if some is None else some
        self.asked.append(where.tolist())
        return np.asarray(self.numbers)[where] ** 2


def test_array_is_recomputed_for_changed_nodes_in_a_copy():
    changes, squares = NodeChangeLog(3), Squares([1, 2, 3])
    cache = NodeValueCache(changes, 3)
    before = cache.cached_array("squares", squares)
    squares.numbers[1] = 5
    changes.record_node_change(1)
    assert cache.cached_array("squares", squares).tolist() == [1, 25, 9]
    assert cache.cached_array("squares", squares).tolist() == [1, 25, 9]
    assert before.tolist() == [1, 4, 9]
    assert squares.asked == [[0, 1, 2], [1]]


def test_array_follows_renumbered_nodes():
    changes, squares = NodeChangeLog(2), Squares([1, 2])
    cache = NodeValueCache(changes, 2)
    cache.cached_array("squares", squares)
    squares.numbers = [3, 2]
    changes.renumber_nodes([-1, 1, -1], 2)
    cache.adapt_to_new_node_indexes(np.asarray([-1, 1], np.int32))
    changes.record_node_change(0)
    assert cache.cached_array("squares", squares).tolist() == [9, 4]
    assert squares.asked[-1] == [0]


def test_value_is_updated_with_the_changed_nodes():
    changes = NodeChangeLog(3)
    cache = NodeValueCache(changes, 3)
    seen = [
        cache.cached_value("v", lambda: "a", lambda value, changed: f"{value}{changed.tolist()}")
        for _ in range(2)
    ]
    changes.record_node_change(2)
    seen.append(cache.cached_value("v", lambda: "b", lambda value, changed: f"{value}{changed.tolist()}"))
    assert seen == ["a", "a", "a[2]"]


def test_least_recently_used_values_are_evicted():
    cache, squares = NodeValueCache(NodeChangeLog(3), 3, most=0), Squares([1, 2, 3])
    for key in (*range(64), 0, 64, 0, 1):
        cache.cached_array(key, squares)
    assert len(squares.asked) == 66


def test_rows_of_new_nodes_are_zeros():
    assert reordered_array(np.asarray([[1, 2], [3, 4]]), np.asarray([1, -1])).tolist() == [[3, 4], [0, 0]]
    assert reordered_array(np.zeros((0, 2), np.int64), np.asarray([-1])).tolist() == [[0, 0]]

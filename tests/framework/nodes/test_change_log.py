"""Whoever asks since when is told of every node that moved."""

from hypothesis import given
from hypothesis import strategies as st

from batchsched.framework.nodes.change_log import MIN_ENTRIES, NO_NODE, NodeChangeLog


def test_nodes_that_moved_are_told_once_and_in_order():
    moves = NodeChangeLog(4)
    for node in (2, 0):
        moves.note(node)
    between = moves.generation
    moves.note(2)
    assert moves.since(0).tolist() == [0, 2]
    assert moves.since(between).tolist() == [2]
    assert moves.since(moves.generation).tolist() == []


@given(data=st.data())
def test_no_move_is_missed_however_long_ago_it_was(data):
    moves = NodeChangeLog(3)
    noted = [step % 7 % 3 for step in range(4 * MIN_ENTRIES)]
    for node in noted:
        moves.note(node)
    since = data.draw(st.integers(0, len(noted)))
    found = moves.since(since).tolist()
    assert set(noted[since:]) <= set(found)
    if len(noted) - since < MIN_ENTRIES:
        assert found == sorted(set(noted[since:]))


def test_moves_are_told_under_new_numbers_and_those_of_nodes_that_are_gone_no_more():
    moves = NodeChangeLog(3)
    for node in (0, 1, NO_NODE):
        moves.note(node)
    moves.renumber([2, NO_NODE, 1, NO_NODE], 3)
    assert moves.since(0).tolist() == [2]
    assert moves.generation == 4

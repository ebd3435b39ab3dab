"""The node table notes which nodes moved."""

from hypothesis import given
from hypothesis import strategies as st

from batchsched.framework.nodes import SHORT
from tests.plugins.cluster import land, node, pod, table


def test_nodes_to_which_pods_came_and_which_they_left_have_moved():
    made = table([node(f"n{at}") for at in range(4)])
    start, guest = made.generation, pod("a")
    land(made, guest, "n2")
    land(made, pod("b"), "n0")
    between = made.generation
    made.remove(guest, *made.read_requests(guest))
    assert made.moved_since(start).tolist() == [0, 2]
    assert made.moved_since(between).tolist() == [2]
    assert made.moved_since(made.generation).tolist() == []


@given(data=st.data())
def test_no_move_is_missed_however_long_ago_it_was(data):
    made = table([node(f"n{at}") for at in range(3)])
    moves: list[int] = []
    for step in range(4 * SHORT):
        at = step % 7 % 3
        land(made, pod(f"p{step}"), f"n{at}")
        moves.append(at)
    since = data.draw(st.integers(0, len(moves)))
    found = made.moved_since(made.generation - len(moves) + since).tolist()
    assert set(moves[since:]) <= set(found)
    if len(moves) - since < SHORT:
        assert found == sorted(set(moves[since:]))

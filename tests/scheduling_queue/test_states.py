import pytest

from batchsched.errors import IllegalMove
from batchsched.scheduling_queue.states import MOVES, QueueState, check_move


def test_every_place_can_be_reached_and_left():
    assert {end for _, end in MOVES} == set(QueueState) - {QueueState.NEW}
    assert {start for start, _ in MOVES} == set(QueueState) - {QueueState.GONE}


def test_a_move_that_the_table_does_not_have_is_illegal():
    check_move(QueueState.ACTIVE, QueueState.IN_FLIGHT)
    with pytest.raises(
        IllegalMove, match="an entity in state Gated of the scheduling queue cannot become In flight"
    ):
        check_move(QueueState.GATED, QueueState.IN_FLIGHT)

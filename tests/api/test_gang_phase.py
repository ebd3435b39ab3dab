"""The life of a gang: the table, and what it refuses."""

import pytest

from batchsched.api.gang_phase import MOVES, GangPhase, PhaseChange, after
from batchsched.errors import IllegalMove


@pytest.mark.parametrize("state, move", [(state, move) for state in GangPhase for move in PhaseChange])
def test_a_move_is_in_the_table_or_raises(state, move):
    if (state, move) in MOVES:
        assert after(state, move) is MOVES[state, move]
    else:
        with pytest.raises(IllegalMove, match=f"a gang that is {state} cannot {move}"):
            after(state, move)


def test_every_state_can_be_reached_and_every_unfinished_one_left():
    reached = {GangPhase.PENDING} | set(MOVES.values())
    assert reached == set(GangPhase)
    assert {start for start, _ in MOVES} == set(GangPhase) - {GangPhase.SUCCEEDED, GangPhase.FAILED}


def test_whoever_holds_places_can_be_rolled_back():
    for state in (GangPhase.RESERVED, GangPhase.HELD, GangPhase.SCHEDULED):
        assert after(state, PhaseChange.ROLL_BACK) is GangPhase.PENDING

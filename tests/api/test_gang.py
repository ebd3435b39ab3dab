"""The life of a gang: the table, and what it refuses."""

import pytest

from batchsched.api.gang import (
    MOVES,
    TERMINAL_PHASES,
    GangPhase,
    PhaseChange,
    gang_key_from_identity,
    gang_namespace,
    is_single_pod_identity,
    phase_after,
    phase_changes_between,
)
from batchsched.errors import IllegalStateChange


@pytest.mark.parametrize("state, move", [(state, move) for state in GangPhase for move in PhaseChange])
def test_a_move_is_in_the_table_or_raises(state, move):
    if (state, move) in MOVES:
        assert phase_after(state, move) is MOVES[state, move]
    else:
        with pytest.raises(IllegalStateChange, match=f"a gang that is {state} cannot {move}"):
            phase_after(state, move)


@pytest.mark.parametrize(
    "identity, key, single",
    [
        ("team/job", "team/job", False),
        ("pod/team/job", "team/job", True),
        ("pod/job", "pod/job", False),
        ("pod/pod/job", "pod/job", True),
    ],
)
def test_identity_states_whether_a_gang_is_a_single_pod_also_in_a_namespace_named_pod(identity, key, single):
    assert is_single_pod_identity(identity) == single
    assert gang_key_from_identity(identity) == key
    assert gang_namespace(identity) == key.split("/")[0]


def test_every_state_can_be_reached_and_every_unfinished_one_left():
    reached = {GangPhase.PENDING} | set(MOVES.values())
    assert reached == set(GangPhase)
    assert {start for start, _ in MOVES} == set(GangPhase) - {GangPhase.SUCCEEDED, GangPhase.FAILED}


def test_gang_with_reserved_places_can_be_rolled_back():
    for state in (GangPhase.RESERVED, GangPhase.HELD, GangPhase.SCHEDULED):
        assert phase_after(state, PhaseChange.ROLL_BACK) is GangPhase.PENDING


@pytest.mark.parametrize("start", GangPhase)
@pytest.mark.parametrize("end", GangPhase)
def test_changes_between_two_phases_lead_along_the_table(start, end):
    if start in TERMINAL_PHASES and start is not end:
        with pytest.raises(IllegalStateChange, match=f"{start} cannot become {end}"):
            phase_changes_between(start, end)
        return
    phase = start
    for change in phase_changes_between(start, end):
        phase = phase_after(phase, change)
    assert phase is end


def test_terminal_phases_are_those_without_a_change():
    assert set(GangPhase) - {start for start, _ in MOVES} == TERMINAL_PHASES

"""The memory of one pass through the pipeline."""

import pytest

from batchsched.framework.state import CycleState, StateKey

COUNT = StateKey[int]("count")


def test_what_was_written_is_read_back_and_states_share_nothing():
    one, other = CycleState(), CycleState()
    one.write(COUNT, 3)
    assert one.read(COUNT) == 3
    assert (one.has(COUNT), other.has(COUNT)) == (True, False)
    with pytest.raises(KeyError):
        other.read(COUNT)

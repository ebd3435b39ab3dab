"""The memory of one pass through the pipeline."""

import pytest

from batchsched.framework.cycle_state import CycleState, StateKey

COUNT = StateKey[int]("count")


def test_written_values_are_read_back_and_states_share_nothing():
    one, other = CycleState(), CycleState()
    one.write(COUNT, 3)
    assert one.read(COUNT) == 3
    assert (one.has(COUNT), other.has(COUNT)) == (True, False)
    with pytest.raises(KeyError):
        other.read(COUNT)


class Counted:
    """A value that AddPod would change."""

    def __init__(self, count: int) -> None:
        self.count = count

    def clone(self) -> "Counted":
        return Counted(self.count)


def test_a_clone_copies_values_that_can_be_cloned():
    state = CycleState()
    one, several = StateKey[Counted]("one"), StateKey[tuple[Counted, int]]("several")
    state.write(one, Counted(1))
    state.write(several, (Counted(1), 7))
    state.skip_filter.add("a")
    copy = state.clone()
    copy.read(one).count = copy.read(several)[0].count = 2
    copy.skip_filter.add("b")
    assert (state.read(one).count, state.read(several)[0].count, state.skip_filter) == (1, 1, {"a"})
    assert copy.read(several)[1] == 7

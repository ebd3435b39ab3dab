"""The bench of reservations runs, small, and what it promises is kept."""

from hypothesis import given
from hypothesis import strategies as st

from batchsched.config.schema import Profile
from batchsched.simulator.swf import SwfJob, SwfTrace
from bench import backfill

ROWS = ((0, 100, 3), (1, 50, 4), (2, 20, 1), (3, 500, 1), (4, 10, 2))


def test_heads_start_when_it_was_promised(tmp_path, capsys):
    lines = ["; MaxProcs: 4"] + [
        " ".join(map(str, (number, submit, -1, run, size, *[-1] * 13)))
        for number, (submit, run, size) in enumerate(ROWS, start=1)
    ]
    trace = tmp_path / "small.swf"
    trace.write_text("\n".join(lines))
    assert backfill.main([str(trace), "--policy", "fcfs"]) == 0
    told = capsys.readouterr().out
    assert "2 of 2 heads no later than first reserved" in told
    assert "reserved" in told


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 4)), min_size=2, max_size=8
    ),
    slowdown=st.sampled_from([1.0, 3.0]),
)
def test_every_promised_start_is_kept_if_run_times_are_exact(rows, slowdown):
    counts = promised("ordered", rows, slowdown)
    assert counts["in time"] == counts["heads"]
    assert counts["close"] == counts["estimates"]


def test_promises_hold_under_selection_by_weight():
    counts = promised("weight", [(0, 20, 3), (1, 9, 4), (2, 5, 1), (3, 50, 1), (4, 3, 4), (5, 2, 2)], 1.0)
    assert counts["in time"] == counts["heads"] > 0
    assert counts["close"] == counts["estimates"] > 0


def promised(selection, rows, slowdown):
    """What becomes of promises on four one-slot nodes, rows being (submit, run time, size)."""
    stated = {"selection": selection, "policy": {"name": "sjf"}, "backfill": "kept"}
    profile = Profile.model_validate(stated | {"promiseSlowdown": slowdown})
    made = (SwfJob(number, at, run, size, run) for number, (at, run, size) in enumerate(sorted(rows)))
    return backfill.kept(*backfill.play(SwfTrace(tuple(made), 4), profile, True))

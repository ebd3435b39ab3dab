"""The bench of reservations runs, small, and what it promises is kept."""

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
    assert "fcfs   2 of 2 heads no later than first reserved" in told
    assert "reserved" in told

import sys
import time

import pytest

from batchsched.cli.stopwatch import Stopwatch


def test_stages_of_one_name_add_up_and_nest():
    watch = Stopwatch()
    with watch.stage("outer"):
        for _ in range(2):
            with watch.stage("inner"):
                time.sleep(0.002)
    assert watch.seconds("outer") >= watch.seconds("inner") >= 0.004
    assert list(watch.stages) == ["inner", "outer"]
    assert watch.seconds("never") == 0.0


def test_stage_counts_when_it_fails():
    watch = Stopwatch()
    with pytest.raises(RuntimeError), watch.stage("failed"):
        raise RuntimeError
    assert "failed" in watch.stages


def test_calls_of_plugins_add_up_by_point():
    watch = Stopwatch()
    for _ in range(2):
        with watch.call("NodeName", "Filter"):
            time.sleep(0.001)
    with pytest.raises(RuntimeError), watch.call("NodeName", "Score"):
        raise RuntimeError
    assert {key: calls for key, (calls, _) in watch.calls.items()} == {
        ("NodeName", "Filter"): 2,
        ("NodeName", "Score"): 1,
    }
    assert watch.calls["NodeName", "Filter"][1] >= 0.002


def test_progress_is_silent_where_nobody_watches(capfd):
    watch = Stopwatch()
    watch.progress(1, 2, "work")
    watch.close()
    assert capfd.readouterr() == ("", "")


def test_progress_draws_a_bar_on_standard_error_of_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("batchsched.cli.stopwatch._BAR_DELAY_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    watch = Stopwatch()
    watch.progress(1, 0, "objects of [bold]x.yaml")
    watch.progress(2, 4, "objects of [bold]x.yaml")
    watch.close()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "objects of [bold]x.yaml" in printed.err

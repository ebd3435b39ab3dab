"""The bench of a real cluster, small."""

import json
from dataclasses import replace

import pytest

from bench.cluster import matrix
from bench.cluster.trial import Creation, Outcome, Reports
from bench.cluster.workload import Row


def outcome(scheduler: str, row: str, seconds: float) -> Outcome:
    return Outcome(
        scheduler=scheduler,
        row=row,
        creation=Creation(),
        seconds=seconds,
        first=0.1,
        p50=1.0,
        p99=2.0,
        cpu=1.0,
        rss=100.0,
        pods=100,
    )


def test_row_is_jobs_times_pods():
    assert matrix._row("500x20") == Row(500, 20)
    assert Row(500, 20).pods == 10000


@pytest.mark.parametrize("text", ["3y4", "20x0", "x5", "-1x5"])
def test_a_row_that_is_none_is_refused_with_what_was_expected(text, capsys):
    with pytest.raises(SystemExit) as ended:
        matrix.main([f"--rows={text}"])
    assert ended.value.code == 2
    assert f"{text!r}: expected jobs x pods of each" in capsys.readouterr().err


def test_ratios_compare_what_was_measured_in_one_run():
    found = [
        outcome("floor", "100 x 1", 1.0),
        outcome("kube-scheduler", "100 x 1", 4.0),
        outcome("batchsched", "100 x 1", 2.0),
    ]
    assert matrix._ratios(found) == ["100 x 1: 50% of the floor, 2.0 times kube-scheduler"]


def test_events_are_stated_apart_from_what_binding_took():
    one = replace(
        outcome("batchsched", "100 x 1", 2.0), cpu=3.0, reports=Reports(before=20, after=80, cpu=1.6)
    )
    assert one.binding_cpu == pytest.approx(2.6)
    assert one.events_cpu == pytest.approx(2.0)


def test_events_that_come_among_the_binds_are_left_in_what_binding_took():
    reports = Reports(before=9999, after=1, cpu=0.06)
    one = replace(outcome("kube-scheduler", "100 x 1", 2.0), cpu=20.0, reports=reports)
    assert one.binding_cpu == 20.0


def test_a_scheduler_without_event_figures_is_charged_with_its_whole_cpu():
    assert outcome("floor", "100 x 1", 1.0).binding_cpu == 1.0


@pytest.mark.usefixtures("plane")  # its programs are there
def test_small_matrix_runs_on_a_real_api_server(capsys):
    assert (
        matrix.main(
            ["--rows", "20x1", "4x5", "--nodes", "5", "--schedulers", "floor", "batchsched", "-o", "json"]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert [(one["scheduler"], one["pods"]) for one in found] == [
        ("floor", 20),
        ("batchsched", 20),
        ("batchsched", 20),
    ]
    assert all(one["rate"] > 0 and one["server_cpu"] > 0 for one in found)
    assert all(sum(one["reports"][when] for when in ("before", "after")) >= 20 for one in found[1:])


def test_rates_are_compared_with_kube_scheduler_at_the_same_rate():
    at_rate = Creation(live=True, rate=10.0)
    outcomes = [
        replace(outcome("kube-scheduler", "300 x 1", 30.0), creation=at_rate, p50=0.02, p99=0.1, cpu=4.0),
        replace(outcome("batchsched", "300 x 1", 30.0), creation=at_rate, p50=0.03, p99=0.05, cpu=2.0),
    ]
    assert matrix._rate_ratios(outcomes) == [
        "10 pods per second: P50 1.5 times, P99 0.5 times, CPU 50% of kube-scheduler"
    ]
    assert matrix._rate_ratios(outcomes[1:]) == []


@pytest.mark.parametrize("other", [["--live"], ["--rows", "3x4"]])
def test_rates_replace_the_rows(other, capsys):
    with pytest.raises(SystemExit) as ended:
        matrix.main(["--rate", "10", *other])
    assert ended.value.code == 2
    assert "--rate replaces the rows; leave out --rows and --live" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "fast", "nan", "inf"])
def test_rate_that_is_no_number_above_zero_is_refused(text, capsys):
    with pytest.raises(SystemExit) as ended:
        matrix.main([f"--rate={text}"])
    assert ended.value.code == 2
    assert "expected a number above 0" in capsys.readouterr().err


@pytest.mark.usefixtures("plane")  # its programs are there
def test_pods_are_created_at_the_stated_rate_on_a_real_api_server(capsys):
    arguments = ["--rate", "20", "--seconds", "1", "--nodes", "5", "--schedulers", "batchsched", "-o", "json"]
    assert matrix.main(arguments) == 0
    (figures,) = json.loads(capsys.readouterr().out)
    assert figures["pods"] == 20
    assert figures["seconds"] >= 0.9
    assert 0 < figures["p50"] <= figures["p99"]

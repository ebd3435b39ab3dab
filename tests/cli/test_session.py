"""The configuration of a command, in the format of batchsched or of kube-scheduler, and its warnings."""

import sys
import time

import pytest
import typer

from batchsched.cli.session import CommandTelemetry
from batchsched.cli.session_input import profile_for_command
from tests.cli.conftest import NOW, manifests, queue

KUBE = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 8
profiles:
- schedulerName: batchsched
  plugins:
    multiPoint: {enabled: [{name: EBSLimits}]}
    score: {disabled: [{name: ImageLocality}]}
"""


def test_configuration_of_kube_scheduler_is_used_and_settings_without_effect_are_reported_once(
    command, cluster, tmp_path
):
    config = tmp_path / "scheduler.yaml"
    config.write_text(KUBE)
    result = command("decide", "--config", config, "-o", "json", cluster)
    assert result.code == 0
    assert len(result.data["assignments"]) == 2
    assert result.err.splitlines() == [
        f"warning: {config}: parallelism: has no effect; all nodes are filtered at once",
        f"warning: {config}: not installed, and ignored: EBSLimits",
    ]


def test_a_mistake_in_a_file_of_kube_scheduler_ends_the_command_with_its_path(command, cluster, tmp_path):
    config = tmp_path / "scheduler.yaml"
    config.write_text(KUBE.replace("score:", "scores:"))
    result = command("decide", "--config", config, cluster)
    assert result.code == 1
    assert f"{config}: profiles[0].plugins.scores: unknown field; did you mean score?" in result.err


IGNORED = "the sessions of this cluster do not read policy"


@pytest.mark.parametrize(
    "profile, queues, warns",
    [
        pytest.param("{policy: {name: sjf}}", "", True, id="weight"),
        pytest.param("{policy: {name: sjf}}", queue("other"), True, id="queues-without-entitlements"),
        pytest.param("{policy: {name: sjf}, selection: ordered}", "", False, id="ordered"),
        pytest.param("{policy: {name: sjf}, solver: {enabled: false}}", "", False, id="without-the-solver"),
        pytest.param("{policy: {name: sjf}, backfill: easy}", "", False, id="order-of-reservations"),
        pytest.param("{policy: {name: sjf}}", queue("other", "{weight: 2}"), False, id="entitled-queues"),
        pytest.param("{policy: {name: sjf}, queuePolicy: {name: drf}}", "", False, id="queue-policy"),
        pytest.param("{policy: {name: priority}}", "", False, id="default-policy"),
    ],
)
@pytest.mark.parametrize("line", [["decide"], ["explain"], ["queues"]], ids=" ".join)
def test_policy_that_selection_by_weight_ignores_causes_a_warning(
    command, cluster, tmp_path, line, profile, queues, warns
):
    config = tmp_path / "config.yaml"
    config.write_text(f"profiles: [{profile}]")
    if queues:
        cluster.write_text(manifests(cluster.read_text(), queues))
    result = command(*line, cluster, "--config", config, "--now", NOW)
    assert (IGNORED in result.err) == warns
    assert not warns or f"{config}: profile batchsched: selection: weight" in result.err


def test_without_a_file_the_default_profile_is_used_without_a_message(capsys):
    assert profile_for_command(None, None).scheduler_name == "batchsched"
    assert capsys.readouterr().err == ""
    with pytest.raises(typer.BadParameter, match="there is no profile 'other'"):
        profile_for_command(None, "other")


def test_stages_of_one_name_add_up_and_nest():
    watch = CommandTelemetry()
    with watch.stage_span("outer"):
        for _ in range(2):
            with watch.stage_span("inner"):
                time.sleep(0.002)
    assert watch.stage_seconds("outer") >= watch.stage_seconds("inner") >= 0.004
    assert list(watch.seconds_by_stage) == ["inner", "outer"]
    assert watch.stage_seconds("never") == 0.0


def test_stage_counts_when_it_fails():
    watch = CommandTelemetry()
    with pytest.raises(RuntimeError), watch.stage_span("failed"):
        raise RuntimeError
    assert "failed" in watch.seconds_by_stage


def test_calls_of_plugins_add_up_by_point():
    watch = CommandTelemetry()
    for _ in range(2):
        with watch.plugin_span("NodeName", "Filter"):
            time.sleep(0.001)
    with pytest.raises(RuntimeError), watch.plugin_span("NodeName", "Score"):
        raise RuntimeError
    assert {key: calls for key, (calls, _) in watch.calls.items()} == {
        ("NodeName", "Filter"): 2,
        ("NodeName", "Score"): 1,
    }
    assert watch.calls["NodeName", "Filter"][1] >= 0.002


def test_progress_is_silent_without_a_terminal(capfd):
    watch = CommandTelemetry(logs_progress=True)
    watch.on_progress(1, 2, "work")
    watch.close()
    assert capfd.readouterr() == ("", "")


def test_short_commands_print_no_progress_without_a_terminal_however_long_they_take(capfd, monkeypatch):
    monkeypatch.setattr("batchsched.cli.session._PROGRESS_LINE_SECONDS", 0.0)
    watch = CommandTelemetry()
    watch.on_progress(0, 6, "work")
    watch.close()
    assert capfd.readouterr() == ("", "")


def test_progress_lines_end_at_the_total(capfd, monkeypatch):
    watch = CommandTelemetry(logs_progress=True)
    monkeypatch.setattr("batchsched.cli.session._PROGRESS_LINE_SECONDS", 0.0)
    watch.on_progress(5, 6, "runs")
    monkeypatch.setattr("batchsched.cli.session._PROGRESS_LINE_SECONDS", 3600.0)
    watch.on_progress(6, 6, "runs")
    watch.on_progress(3, 3, "objects")
    assert capfd.readouterr().err == "runs: 5 of 6\nruns: 6 of 6\n"


def test_progress_draws_a_bar_on_standard_error_of_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("batchsched.cli.session._BAR_DELAY_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    watch = CommandTelemetry()
    watch.on_progress(1, 0, "objects of [bold]x.yaml")
    watch.on_progress(2, 4, "objects of [bold]x.yaml")
    watch.close()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "objects of [bold]x.yaml" in printed.err

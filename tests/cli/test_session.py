"""The configuration of a command: ours or kube-scheduler's, and what is said about it."""

import pytest

from batchsched.cli.session import profile_of
from batchsched.errors import InvalidInput

KUBE = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 8
profiles:
- schedulerName: batchsched
  plugins:
    multiPoint: {enabled: [{name: EBSLimits}]}
    score: {disabled: [{name: ImageLocality}]}
"""


def test_a_file_of_kube_scheduler_is_decided_with_and_what_does_nothing_is_said_once(
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


def test_without_a_file_the_default_profile_is_taken_and_nothing_said(capsys):
    assert profile_of(None, None).scheduler_name == "batchsched"
    assert capsys.readouterr().err == ""
    with pytest.raises(InvalidInput, match="there is no profile 'other'"):
        profile_of(None, "other")

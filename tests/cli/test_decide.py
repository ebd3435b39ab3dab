import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from batchsched.cli.schema import SchemaKind, schema_of
from tests.cli.conftest import NOW, group, pod
from tests.hash_seeds import outputs_by_hash_seed

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_json_is_the_decision_and_nothing_else(command, cluster):
    result = command("decide", cluster, "-o", "json", "--now", NOW)
    assert result.code == 0
    assert result.err == ""
    assert list(result.data) == [
        "assignments", "evictions", "refusals", "reservations", "nominations", "waiting", "setAside", "solver"
    ]  # fmt: skip
    jsonschema.validate(result.data, schema_of(SchemaKind.DECISION))


def test_output_of_one_input_repeats_byte_for_byte(command, cluster):
    for output in ("json", "yaml", "table"):
        assert len({command("decide", cluster, "-o", output, "--now", NOW).out for _ in range(3)}) == 1


def test_timings_add_the_seconds_of_the_session_and_of_its_stages(command, cluster):
    account = command("decide", cluster, "-o", "json", "--now", NOW, "--timings").data["solver"]
    assert account["seconds"] > 0
    assert account["stages"]["session"] == account["seconds"]
    assert account["stages"]["read"] > 0


def test_yaml_has_the_same_content_as_json(command, cluster):
    as_json = command("decide", cluster, "-o", "json", "--now", NOW).data
    as_yaml = yaml.safe_load(command("decide", cluster, "-o", "yaml", "--now", NOW).out)
    assert as_yaml == as_json


def test_table_has_one_line_per_gang(command):
    result = command("decide", EXAMPLES, "--now", NOW)
    assert result.code == 0
    assert [line.split()[:2] for line in result.out.splitlines()] == [
        ["NAME", "RESULT"],
        ["product/evaluation", "Placed"],
        ["research/bert", "Placed"],
        ["research/llama", "Placed"],
        ["research/tuning", "Placed"],
        ["product/ranking", "Refused"],
        ["research/long-context", "Refused"],
    ]
    assert "PodGroups: 4 placed (12 pods), 2 refused; 8 nodes" in result.err


def test_configuration_in_a_directory_of_manifests_causes_no_warning(command):
    assert "warning" not in command("decide", EXAMPLES, "--now", NOW).err


def test_jsonpath_template_selects_parts_of_a_decision(command):
    template = '{range .refusals[*]}{.podGroup}{"\\t"}{.reason}{"\\n"}{end}'
    result = command("decide", EXAMPLES, "--now", NOW, "-o", f"jsonpath={template}")
    assert result.out.splitlines()[0] == "product/ranking\tQueueLimit"


PREEMPTION = """
kind: BatchSchedulerConfiguration
profiles: [{solver: {enabled: false}}]
---
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "2", pods: "10"}}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 100}
---
apiVersion: v1
kind: Pod
metadata: {name: low, namespace: team-a}
spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: "2"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: high, namespace: team-a}
spec: {schedulerName: batchsched, priorityClassName: high, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
"""


def test_without_the_solver_evictions_and_nominations_are_in_the_table_and_in_the_data(command, tmp_path):
    config, _, cluster = PREEMPTION.partition("---\n")
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "cluster.yaml").write_text(cluster)
    arguments = ("decide", tmp_path / "cluster.yaml", "--config", tmp_path / "config.yaml", "--now", NOW)
    data = command(*arguments, "-o", "json").data
    assert data["evictions"] == [
        {"namespace": "team-a", "pod": "low", "podGroup": "low", "for": "team-a/high", "reason": "Preempted"}
    ]
    assert data["nominations"] == [{"namespace": "team-a", "pod": "high", "node": "n1"}]
    table = command(*arguments).out
    assert "Evicted" in table
    assert "Nominated" in table


def test_names_are_not_interpreted_as_markup(command, cluster, tmp_path):
    (tmp_path / "odd.yaml").write_text(pod('"[red]x[/red]"'))
    result = command("decide", cluster, tmp_path / "odd.yaml", "--now", NOW)
    assert "team-a/'[red]x[/red]'" in result.out


def test_standard_input_is_read(cluster):
    done = subprocess.run(
        [sys.executable, "-c", "import batchsched.cli; batchsched.cli.main()", "decide", "-", "-o", "json"],
        input=cluster.read_bytes(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["assignments"]) == 2


def test_same_input_decides_the_same_in_every_process(cluster):
    program = "import batchsched.cli; batchsched.cli.main()"
    arguments = ("decide", str(EXAMPLES), "-o", "json", "--now", NOW)
    decisions = set()
    for output in outputs_by_hash_seed(program, *arguments, seeds=("0", "1", "2")):
        data = json.loads(output)
        data["solver"].update(seconds=0, stages={})
        decisions.add(json.dumps(data))
    assert len(decisions) == 1


def test_configuration_is_applied_and_its_mistakes_are_named(command, cluster, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("profiles: [{solver: {enabled: false}}, {schedulerName: other}]")
    assert command("decide", cluster, "--config", config, "-o", "json").code == 0
    # The second profile looks at the pods of another scheduler name, and there are none.
    other = command("decide", cluster, "--config", config, "--profile", "other", "-o", "json")
    assert other.data["assignments"] == []
    unknown = command("decide", cluster, "--config", config, "--profile", "batchshed")
    assert unknown.code == 2
    assert "did you mean batchsched?" in unknown.err
    for settings, complaint in (
        ("profiles: [{policy: {name: sjff}}]", "profiles[0].policy.name: there is no policy 'sjff'"),
        (
            "profiles: [{policy: {name: sjf, args: {foo: 1}}}]",
            "profiles[0].policy.args: the policy takes no such",
        ),
    ):
        config.write_text(settings)
        assert complaint in command("decide", cluster, "--config", config).err
    config.write_text("profiles: [{solvr: {}}]")
    broken = command("decide", cluster, "--config", config)
    assert broken.code == 1
    assert "profiles[0].solvr: unknown field; did you mean solver?" in broken.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["decide"],
        ["decide", "no-such-file.yaml"],
        ["decide", str(EXAMPLES), "--now", "yesterday"],
        ["decide", str(EXAMPLES), "--seed", "-1"],
        ["decide", str(EXAMPLES), "-o", "xml"],
        ["decide", str(EXAMPLES), "--nonsense"],
        ["nonsense"],
    ],
)
def test_wrong_usage_is_reported_on_standard_error(command, arguments):
    result = command(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.err


def test_warnings_go_to_standard_error_and_change_no_exit_code(command, cluster, tmp_path):
    (tmp_path / "more.yaml").write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: s}")
    result = command("decide", cluster, tmp_path / "more.yaml", "-o", "json")
    assert result.code == 0
    assert result.err == "warning: Secret of v1 is not read: 1 passed over\n"


def test_set_aside_objects_are_in_the_table_too(command, cluster, tmp_path):
    (tmp_path / "bad.yaml").write_text(group("bad", "{minMember: 0}"))
    result = command("decide", cluster, tmp_path / "bad.yaml", "--now", NOW)
    assert result.code == 3
    assert "podgroup/team-a/bad   SetAside   spec.minMember" in result.out

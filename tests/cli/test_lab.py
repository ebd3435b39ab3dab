import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from batchsched.cli import run_command
from batchsched.cli.app import app
from batchsched.cli.session import CommandTelemetry
from batchsched.lab.results import execute_and_encode_run
from tests.lab.scenarios import written

EXAMPLE = Path(__file__).parents[2] / "examples/lab/teams.yaml"


def lab(*arguments):
    return CliRunner().invoke(app, ["lab", *map(str, arguments)])


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder of results, and the scenario that they are of."""
    folder = tmp_path_factory.mktemp("lab")
    scenario = written(folder / "s.yaml")
    assert lab("run", scenario, "--to", folder / "out", "--processes", 2).exit_code == 0
    return folder / "out", scenario


def test_policies_are_printed_side_by_side_with_their_differences(results):
    folder, scenario = results
    ran = lab("run", scenario, "--to", folder)
    assert ran.exit_code == 0
    assert "small: drawn, means over 2 seeds" in ran.stdout
    assert "Fairness error" in ran.stdout
    assert re.search(r"(better|worse|unclear): [+-][\d.]+ (\w+) ± [\d.]+ \2\b", ran.stdout)
    assert "only if the interval excludes 0" in " ".join(ran.stdout.split())
    assert "all 4 runs are finished" in ran.stderr


def test_the_seconds_of_a_sweep_are_printed(monkeypatch, tmp_path):
    measured = []

    def stage_seconds(stopwatch: CommandTelemetry, stage: str) -> float:
        measured.append(stage in stopwatch.seconds_by_stage)
        return 42.0

    monkeypatch.setattr(CommandTelemetry, "stage_seconds", stage_seconds)
    ran = lab(
        "run", written(tmp_path / "s.yaml"), "--to", tmp_path / "out", "--set", "seeds=1", "--processes", 1
    )
    assert "2 runs in 42 s" in ran.stderr
    assert measured == [True]


def test_measures_of_zero_under_every_policy_are_omitted(results):
    assert "Gangs not finished" not in lab("run", results[1], "--to", results[0]).stdout


@pytest.mark.parametrize("output, read", [("json", json.loads), ("yaml", yaml.safe_load)])
def test_json_and_yaml_have_all_results(results, output, read):
    told = read(lab("run", results[1], "--to", results[0], "-o", output).stdout)
    first, second = told["policies"]
    assert (first["policy"], second["against"]) == ("fcfs", "fcfs")
    assert [run["seed"] for run in first["runs"]] == [0, 1]
    assert first["measures"]["meanWait"]["mean"] >= 0
    assert second["differences"]["meanWait"]["verdict"] in ("better", "worse", "same", "unclear")


def test_one_seed_has_no_interval(results):
    told = json.loads(lab("run", results[1], "--to", results[0], "--set", "seeds=1", "-o", "json").stdout)
    assert told["policies"][1]["differences"]["meanWait"]["halfWidth"] is None


def test_a_changed_scenario_keeps_the_runs_that_it_shares(results):
    folder, scenario = results
    assert lab("run", scenario, "--to", folder).exit_code == 0
    before = {path.name for path in folder.glob("runs/*.parquet")}
    renamed = lab("run", scenario, "--to", folder, "--set", "policies.sjf.name=short")
    assert "short" in renamed.stdout
    assert "all 4 runs are finished" in renamed.stderr
    assert {path.name for path in folder.glob("runs/*.parquet")} == before
    assert lab("run", scenario, "--to", folder).exit_code == 0


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--set", "seeds"], "PATH=VALUE"),
        (["--set", "workloads.absent.generate.gangs=3"], "no part 'absent'"),
        (["--address", "http://missing"], "Dask scheduler"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(results, arguments, complaint, capfd, tmp_path):
    assert run_command(["lab", "run", str(results[1]), "--to", str(tmp_path), *arguments]) in (1, 2)
    assert complaint in capfd.readouterr().err


def test_policies_that_cannot_differ_cause_a_warning_that_names_field_and_remedy(results, tmp_path):
    ran = lab("run", results[1], "--to", tmp_path, "--set", "seeds=1", "--set", "profile.selection=weight")
    assert ran.exit_code == 0
    assert "warning" not in ran.stderr  # the policies differ in backfill too
    policies = (
        "policies=[{name: a, profile: {policy: {name: fcfs}}}, {name: b, profile: {policy: {name: sjf}}}]"
    )
    # With entitled queues, sessions read the order of gangs whatever `selection` states.
    changes = ("seeds=1", policies, "profile={}", "queues=[]")
    ran = lab(
        "run", results[1], "--to", tmp_path, *(part for change in changes for part in ("--set", change))
    )
    assert "s.yaml: policies a, b differ only in profile.policy" in ran.stderr
    assert "set profile.selection to ordered" in ran.stderr


def test_a_misspelt_tuned_parameter_is_refused_by_run_too(tmp_path, capfd):
    parameters = {"profile.policy.nme": {"choices": ["fcfs"]}}
    scenario = written(tmp_path / "s.yaml", tune={**TUNE, "parameters": parameters})
    assert run_command(["lab", "run", str(scenario), "--to", str(tmp_path)]) == 1
    assert "tune.parameters.profile.policy.nme: unknown field; did you mean name?" in capfd.readouterr().err


def test_without_pyarrow_the_extra_is_named(results, monkeypatch, capfd):
    monkeypatch.setattr("batchsched.cli.lab.find_spec", lambda _: None)
    assert run_command(["lab", "run", str(results[1])]) == 1
    assert "'.[lab]'" in capfd.readouterr().err


@pytest.mark.parametrize("arguments", ["run SCENARIO", "tune SCENARIO", "compare . .", "serve ."])
def test_every_command_of_the_lab_names_what_to_install_where_pyarrow_is_missing(
    results, arguments, monkeypatch, capfd
):
    """In an environment without the package: a command that imports it before the check fails as a defect."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "batchsched.lab.results", raising=False)
    monkeypatch.delitem(sys.modules, "batchsched.lab.result_pages", raising=False)
    assert run_command(["lab", *arguments.replace("SCENARIO", str(results[1])).split()]) == 1
    assert "pip install pyarrow optuna" in capfd.readouterr().err


def test_the_example_runs_with_nothing_but_the_repository(tmp_path):
    ran = lab("run", EXAMPLE, "--to", tmp_path, "--set", "workloads.0.generate.gangs=30", "--set", "seeds=1")
    assert ran.exit_code == 0
    assert "teams: busy-week" in ran.stdout


def test_two_policies_of_a_folder_are_compared(results):
    told = lab("compare", f"{results[0]}:fcfs", ":sjf")
    assert told.exit_code == 0
    assert "drawn: 2 seeds" in told.stdout
    assert "B: sjf" in told.stdout


def test_a_comparison_of_a_partial_sweep_uses_common_seeds_and_says_so(results, tmp_path):
    folder, _ = results
    shutil.copytree(folder, tmp_path / "partial")
    plan = json.loads((folder / "plan.json").read_text())
    (key,) = (run["key"] for run in plan["runs"] if (run["policy"], run["seed"]) == ("sjf", 1))
    (tmp_path / f"partial/runs/{key}.parquet").unlink()
    told = lab("compare", f"{tmp_path / 'partial'}:fcfs", ":sjf")
    assert "drawn: partial, 1 of 2 seeds" in told.stdout
    (data,) = json.loads(lab("compare", f"{tmp_path / 'partial'}:fcfs", ":sjf", "-o", "json").stdout)
    assert (data["seeds"], data["plannedSeeds"]) == (1, 2)


def test_two_folders_are_compared_policy_by_policy(results, tmp_path):
    folder, scenario = results
    assert lab("run", scenario, "--to", tmp_path, "--set", "profile.backfill=none").exit_code == 0
    assert lab("run", scenario, "--to", folder).exit_code == 0
    told = json.loads(lab("compare", folder, tmp_path, "-o", "json").stdout)
    assert [one["a"] for one in told] == ["A: fcfs", "A: sjf"]
    assert told[0]["measures"]["meanWait"]["difference"]["count"] == 2


@pytest.mark.parametrize(
    "other, complaint",
    [(":fcsf", "did you mean fcfs"), ("absent", "there is no folder 'absent'")],
    ids=["policy", "folder"],
)
def test_incomparable_results_are_reported_in_one_sentence(results, other, complaint, capfd):
    assert run_command(["lab", "compare", f"{results[0]}:fcfs", other]) == 2
    assert complaint in capfd.readouterr().err


def test_different_workloads_of_one_name_are_not_compared(results, tmp_path, capfd):
    folder, scenario = results
    assert lab("run", scenario, "--to", tmp_path, "--set", "workloads.0.generate.load=2.0").exit_code == 0
    assert run_command(["lab", "compare", str(folder), str(tmp_path)]) == 1
    assert "different gangs" in capfd.readouterr().err


TUNE = {
    "policy": "fcfs",
    "objective": {"minimise": "meanWait"},
    "parameters": {"profile.policy.name": {"choices": ["fcfs", "sjf"]}},
    "trials": 2,
    "heldOut": 2,
}


def test_a_search_outside_a_terminal_prints_its_progress_and_an_interrupted_one_what_it_keeps(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("batchsched.cli.session._PROGRESS_LINE_SECONDS", 0.0)
    scenario = written(tmp_path / "s.yaml", tune=TUNE)
    made = execute_and_encode_run

    def interrupted(run):
        if run.seed > 1:
            raise KeyboardInterrupt
        return made(run)

    monkeypatch.setattr("batchsched.lab.results.execute_and_encode_run", interrupted)
    told = lab("tune", scenario, "--to", tmp_path / "out", "--processes", 1)
    assert told.exit_code == 130
    assert "runs: 1 of 10" in told.stderr
    assert "out: 6 of 10 runs are kept; run the command again to continue" in told.stderr


def test_tuning_prints_the_best_settings_the_verdict_and_the_number_of_runs(tmp_path):
    scenario = written(tmp_path / "s.yaml", tune=TUNE)
    told = lab("tune", scenario, "--to", tmp_path / "out", "--processes", 1)
    assert told.exit_code == 0, told.output
    assert "profile.policy.name: " in told.stdout
    assert "On 2 seeds that the search did not see" in told.stdout
    assert "Not improved: mean wait is the same on these seeds." in told.stdout
    assert (tmp_path / "out/tuning.html").exists()
    data = json.loads(lab("tune", scenario, "--to", tmp_path / "out", "-o", "json").stdout)
    assert len(data["tried"]) == 2
    assert data["heldOut"]["seeds"] == [2, 3]
    assert isinstance(data["heldOut"]["improved"], bool)

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from batchsched.cli import exit_code
from batchsched.cli.app import app
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


def test_policies_stand_side_by_side_with_how_they_differ(results):
    folder, scenario = results
    ran = lab("run", scenario, "--to", folder)
    assert ran.exit_code == 0
    assert "small: drawn, means over 2 seeds" in ran.stdout
    assert "Fairness error" in ran.stdout
    assert "±" in ran.stdout
    assert "all 4 runs are finished" in ran.stderr


def test_what_is_nothing_under_every_policy_takes_no_line(results):
    assert "Pods evicted" not in lab("run", results[1], "--to", results[0]).stdout


@pytest.mark.parametrize("output, read", [("json", json.loads), ("yaml", yaml.safe_load)])
def test_everything_is_there_as_data(results, output, read):
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
    before = {path.name for path in folder.glob("runs/*.parquet")}
    assert lab("run", scenario, "--to", folder, "--set", "policies.sjf.name=short").exit_code == 0
    assert {path.name for path in folder.glob("runs/*.parquet")} == before


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--set", "seeds"], "PATH=VALUE"),
        (["--set", "workloads.absent.generate.gangs=3"], "no part 'absent'"),
        (["--address", "http://nobody"], "Dask scheduler"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(results, arguments, complaint, capfd, tmp_path):
    assert exit_code(["lab", "run", str(results[1]), "--to", str(tmp_path), *arguments]) in (1, 2)
    assert complaint in capfd.readouterr().err


def test_without_pyarrow_the_extra_is_named(results, monkeypatch, capfd):
    monkeypatch.setattr("batchsched.cli.laboratory.find_spec", lambda _: None)
    assert exit_code(["lab", "run", str(results[1])]) == 1
    assert "batchsched[lab]" in capfd.readouterr().err


def test_the_example_runs_with_nothing_but_the_repository(tmp_path):
    ran = lab("run", EXAMPLE, "--to", tmp_path, "--set", "workloads.0.generate.gangs=30", "--set", "seeds=1")
    assert ran.exit_code == 0
    assert "teams: busy-week" in ran.stdout

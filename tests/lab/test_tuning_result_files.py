import re
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from batchsched.lab.plan import plan_runs
from batchsched.lab.results import execute_missing_runs, read_outcomes, write_run_plan
from batchsched.lab.scenario import TuningParameter
from batchsched.lab.tuning import TuningResources, tune
from batchsched.lab.tuning_result_files import parameter_column
from batchsched.lab.workers import InProcessWorkers
from tests.lab.scenarios import scenario

PAGE = Path(__file__).parents[2] / "docs/lab.md"
PARAMETERS = {
    "profile.policy.name": {"choices": ["fcfs", "saf"]},
    "profile.sessionWindow": {"low": 400, "high": 600, "whole": True},
}
TUNE = {
    "policy": "fcfs",
    "objective": {"minimise": "meanWait"},
    "parameters": PARAMETERS,
    "trials": 3,
    "heldOut": 2,
}


def query(folder, sql):
    """Run a documented query: SELECT KEYS, avg(MEASURE)… FROM 'results/…' GROUP BY KEYS."""
    documented = re.fullmatch(r"SELECT (.+) FROM 'results/(\w+)/\*.parquet' GROUP BY (.+)", sql)
    assert documented
    columns, source, keys = documented.groups()
    table = ds.dataset(folder / source).to_table()
    means = re.findall(r"avg\((\w+)\)", columns)
    names = [key.strip().strip('"') for key in keys.split(",")]
    grouped = table.group_by(names).aggregate([*((mean, "mean") for mean in means), ("seed", "count")])
    return {tuple(row[name] for name in names): row for row in grouped.to_pylist()}


def sweep(folder, made):
    runs = plan_runs(made)
    write_run_plan(folder, made, runs)
    return execute_missing_runs(runs, folder, InProcessWorkers())


def search(folder, made):
    return tune(made, TuningResources(folder, InProcessWorkers(), lambda *_: None))


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A folder in which an older scenario, a scenario, and a search left results."""
    folder = tmp_path_factory.mktemp("searched")
    sweep(folder, scenario(seeds=[7, 8], cluster={"nodes": 5, "gpusPerNode": 8}))
    sweep(folder, scenario(tune=TUNE))
    return folder, search(folder, scenario(tune=TUNE))


def documented_queries():
    return re.findall(r"^SELECT .+$", PAGE.read_text("utf-8"), re.MULTILINE)


def test_the_documented_query_of_runs_is_right_after_a_search_and_after_another_scenario(searched):
    folder, _ = searched
    rows = query(folder, documented_queries()[0])
    assert {policies: row["seed_count"] for policies, row in rows.items()} == {("fcfs",): 2, ("sjf",): 2}
    of_fcfs = [one.measures["meanWait"] for one in read_outcomes(folder) if one.policy == "fcfs"]
    assert rows["fcfs",]["meanWait_mean"] == pytest.approx(sum(of_fcfs) / 2)


def test_the_documented_query_of_trials_has_a_row_for_each_setting_and_stage(searched):
    folder, result = searched
    rows = query(folder, documented_queries()[1])
    best = result.tried.index(result.best) + 1
    expected = {(number, "search"): 2 for number in range(4)} | {(0, "held-out"): 2, (best, "held-out"): 2}
    assert {key: row["seed_count"] for key, row in rows.items()} == expected
    for number, tried in enumerate(result.tried, start=1):
        assert rows[number, "search"]["meanWait_mean"] == pytest.approx(tried.value)


def test_parameters_are_columns_of_trials(searched):
    folder, result = searched
    rows = ds.dataset(folder / "trials").to_table().to_pylist()
    for row in rows:
        if row["trial"]:
            assert {path: row[path] for path in PARAMETERS} == dict(result.tried[row["trial"] - 1].settings)
    (stated,) = (row for row in rows if (row["trial"], row["seed"]) == (0, 0))
    assert (stated["profile.policy.name"], stated["profile.sessionWindow"]) == ("fcfs", None)


def test_results_of_an_earlier_scenario_return_when_its_plan_does(searched, tmp_path):
    old, new = scenario(seeds=1), scenario(seeds=1, cluster={"nodes": 5, "gpusPerNode": 8})
    assert [sweep(tmp_path, made) for made in (old, new, old, new)] == [2, 2, 0, 0]
    assert len(list(tmp_path.glob("runs/*.parquet"))) == len(list(tmp_path.glob("earlier/*.parquet"))) == 2


def test_a_sweep_and_a_search_reuse_the_runs_of_each_other(tmp_path):
    search(tmp_path, scenario(tune=TUNE))
    only = scenario(policies=[{"name": "first", "profile": {"policy": {"name": "fcfs"}}}])
    assert sweep(tmp_path, only) == 0
    assert query(tmp_path, documented_queries()[0]).keys() == {("first",)}
    assert "trial" not in ds.dataset(tmp_path / "runs").schema.names


def test_a_renamed_policy_has_its_new_name_in_the_files(tmp_path):
    sweep(tmp_path, scenario(seeds=1))
    policies = [{"name": "first", "profile": {"policy": {"name": "fcfs"}}}]
    assert sweep(tmp_path, scenario(seeds=1, policies=policies)) == 0
    assert query(tmp_path, documented_queries()[0]).keys() == {("first",)}


def test_policies_with_equal_settings_are_both_found_by_the_documented_query(tmp_path):
    policies = [{"name": name, "profile": {"policy": {"name": "fcfs"}}} for name in ("one", "two")]
    assert sweep(tmp_path, scenario(policies=policies)) == 2
    rows = query(tmp_path, documented_queries()[0])
    assert {policies: row["seed_count"] for policies, row in rows.items()} == {("one",): 2, ("two",): 2}
    assert rows["one",]["meanWait_mean"] == rows["two",]["meanWait_mean"]


def test_a_policy_that_leaves_its_equal_alone_leaves_no_file_of_its_name(tmp_path):
    policies = [{"name": name, "profile": {"policy": {"name": "fcfs"}}} for name in ("one", "two")]
    sweep(tmp_path, scenario(policies=policies, seeds=1))
    assert sweep(tmp_path, scenario(policies=policies[1:], seeds=1)) == 0
    assert query(tmp_path, documented_queries()[0]).keys() == {("two",)}
    assert sweep(tmp_path, scenario(policies=policies[::-1], seeds=1)) == 0
    assert [one.policy for one in read_outcomes(tmp_path)] == ["two", "one"]
    assert query(tmp_path, documented_queries()[0]).keys() == {("one",), ("two",)}


@pytest.mark.parametrize(
    "parameter, value, kind, stored",
    [
        ({"low": 0, "high": 1}, 0.5, pa.float64(), 0.5),
        ({"low": 0, "high": 9, "whole": True}, 3, pa.int64(), 3),
        ({"low": 0, "high": 1}, "x", pa.float64(), None),
        ({"choices": [True, False]}, True, pa.bool_(), True),
        ({"choices": ["a", True]}, True, pa.string(), "True"),
        ({"choices": ["a", "b"]}, None, pa.string(), None),
    ],
)
def test_a_column_of_a_parameter_has_the_type_of_its_values(parameter, value, kind, stored):
    column = parameter_column(TuningParameter.model_validate(parameter), value)
    assert (column.type, column.to_pylist()) == (kind, [stored])

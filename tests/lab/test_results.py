from dataclasses import replace

import numpy as np
import pyarrow.dataset as ds
import pytest

from batchsched.errors import InvalidInput
from batchsched.lab import results
from batchsched.lab.plan import plan_runs
from batchsched.lab.results import (
    encode_outcome_as_parquet,
    read_outcome,
    read_outcomes,
    read_plan,
    result_path,
    write_atomically,
    write_run_plan,
)
from batchsched.lab.simulation import simulate_run
from batchsched.simulator.result import QueueSeries
from tests.lab.scenarios import scenario


@pytest.fixture(scope="module")
def run():
    return plan_runs(scenario(seeds=1))[0]


@pytest.fixture(scope="module")
def outcome(run):
    return simulate_run(run)


def test_an_outcome_is_read_back_unchanged(tmp_path, outcome):
    write_atomically(tmp_path / "x.parquet", encode_outcome_as_parquet(outcome))
    read = read_outcome(tmp_path / "x.parquet")
    gangs = tuple(replace(gang, placements=()) for gang in outcome.result.gangs)
    stored = replace(outcome, result=replace(outcome.result, gangs=gangs, queues=QueueSeries()))
    assert replace(read, fairness=outcome.fairness) == stored
    assert (read.fairness.queues, read.fairness.resource) == (("a", "b"), "nvidia.com/gpu")
    for name in ("times", "held", "requested", "fair"):
        assert np.allclose(getattr(read.fairness, name), getattr(outcome.fairness, name), atol=1e-6)


def test_a_long_run_is_stored_with_fewer_points(tmp_path, outcome, monkeypatch):
    monkeypatch.setattr(results, "MAX_FAIRNESS_ROWS", len(outcome.fairness.times))
    write_atomically(tmp_path / "x.parquet", encode_outcome_as_parquet(outcome))
    assert (
        read_outcome(tmp_path / "x.parquet").fairness.times.tolist() == outcome.fairness.times[::2].tolist()
    )


def test_a_folder_of_results_is_a_table_with_a_row_for_each_run(tmp_path, outcome):
    write_atomically(result_path(tmp_path, "k1"), encode_outcome_as_parquet(outcome))
    write_atomically(result_path(tmp_path, "k2"), encode_outcome_as_parquet(replace(outcome, seed=1)))
    table = ds.dataset(tmp_path / "runs").to_table(columns=["policy", "seed", "meanWait"])
    assert sorted(table.column("seed").to_pylist()) == [0, 1]
    assert set(table.column("meanWait").to_pylist()) == {outcome.measures["meanWait"]}


def test_outcomes_come_under_the_names_of_the_plan(tmp_path, run, outcome):
    renamed = plan_runs(
        scenario(seeds=1, policies=[{"name": "first", "profile": {"policy": {"name": "fcfs"}}}])
    )
    assert renamed[0].result_key == run.result_key
    write_atomically(result_path(tmp_path, run.result_key), encode_outcome_as_parquet(outcome))
    write_run_plan(tmp_path, scenario(), renamed)
    assert [one.policy for one in read_outcomes(tmp_path)] == ["first"]


def test_unfinished_runs_are_omitted(tmp_path, run):
    write_run_plan(tmp_path, scenario(), [run])
    assert read_outcomes(tmp_path) == ()
    assert read_plan(tmp_path)["runs"][0]["key"] == run.result_key


def test_a_file_is_replaced_whole(tmp_path):
    write_atomically(tmp_path / "x", b"one")
    write_atomically(tmp_path / "x", b"two")
    assert (tmp_path / "x").read_bytes() == b"two"
    assert [one.name for one in tmp_path.iterdir()] == ["x"]


def test_a_file_of_another_format_is_refused_with_its_name(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(InvalidInput, match=r"x\.parquet: is no result"):
        read_outcome(tmp_path / "x.parquet")


@pytest.mark.parametrize("text", [None, "{", "{}"])
def test_a_folder_without_results_of_the_lab_is_refused(tmp_path, text):
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"plan\.json"):
        read_outcomes(tmp_path)

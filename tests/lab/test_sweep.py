import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from batchsched.errors import CommandError, InvalidInput
from batchsched.lab.plan import plan_runs
from batchsched.lab.results import (
    execute_and_encode_run,
    execute_missing_runs,
    missing_runs,
    read_outcomes,
    result_path,
    write_run_plan,
)
from batchsched.lab.workers import InProcessWorkers, open_workers
from tests.lab.scenarios import scenario, written

PATIENCE = 120


def swept(folder, crew, **more):
    runs = plan_runs(scenario(**more))
    write_run_plan(folder, scenario(**more), runs)
    made = execute_missing_runs(runs, folder, crew)
    return made, numbers(folder)


def numbers(folder):
    """What came out, but for how long it took."""
    return [(one.workload, one.policy, one.seed, one.measures, one.result) for one in read_outcomes(folder)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return swept(tmp_path_factory.mktemp("alone"), InProcessWorkers())[1]


def test_a_sweep_makes_only_missing_runs(tmp_path, alone):
    assert swept(tmp_path, InProcessWorkers()) == (4, alone)
    first = result_path(tmp_path, plan_runs(scenario())[0].result_key)
    first.unlink()
    told = []
    assert (
        execute_missing_runs(
            plan_runs(scenario()), tmp_path, InProcessWorkers(), lambda *both: told.append(both)
        )
        == 1
    )
    assert told == [(3, 4), (4, 4)]
    assert numbers(tmp_path) == alone


def test_runs_are_made_seed_by_seed_so_that_comparisons_complete_early(tmp_path):
    submitted = []

    class Recording:
        def submit(self, function, argument, /):
            submitted.append((argument.seed, argument.policy))
            return InProcessWorkers().submit(function, argument)

    swept(tmp_path, Recording())
    assert submitted == [(0, "fcfs"), (0, "sjf"), (1, "fcfs"), (1, "sjf")]


def test_equal_runs_are_made_once(tmp_path):
    policies = [{"name": name, "profile": {"policy": {"name": "fcfs"}}} for name in ("one", "two")]
    made, found = swept(tmp_path, InProcessWorkers(), policies=policies, seeds=1)
    assert made == 1
    assert [policy for _, policy, *_ in found] == ["one", "two"]


def test_results_do_not_depend_on_the_number_of_processes(tmp_path, alone):
    with open_workers(None, 2) as crew:
        assert swept(tmp_path, crew)[1] == alone


def test_a_failed_run_names_the_cause_and_finished_runs_are_kept(tmp_path):
    policies = [{"name": "good"}, {"name": "bad", "queues": {"missing": {"weight": 2}}}]
    with pytest.raises(InvalidInput, match="policy bad: there is no queue 'missing'"):
        swept(tmp_path, InProcessWorkers(), policies=policies, seeds=1)
    assert len(missing_runs(plan_runs(scenario(policies=policies[:1], seeds=1)), tmp_path)) == 0


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_reported_as_unusable_input(tmp_path, monkeypatch):
    monkeypatch.setattr("batchsched.lab.results.execute_and_encode_run", die)
    with pytest.raises(CommandError, match="was killed"), open_workers(None, 2) as crew:
        execute_missing_runs(plan_runs(scenario(seeds=1)), tmp_path, crew)


@pytest.mark.slow
def test_a_killed_sweep_that_is_resumed_loses_no_finished_run(tmp_path, alone):
    """A real SIGKILL of the command while its workers run: they go with it, what is finished stays as it is."""
    path = written(tmp_path / "s.yaml")
    folder = tmp_path / "results"
    command = [sys.executable, "-m", "tests.lab.sweeping", str(path), str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        until(lambda: list(folder.glob("runs/*.parquet")))
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert children
    until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in children))
    finished = {one: one.stat().st_mtime_ns for one in folder.glob("runs/*.parquet")}
    runs = plan_runs(scenario())
    left = missing_runs(runs, folder)
    assert 0 < len(left) < 4
    assert execute_missing_runs(runs, folder, InProcessWorkers()) == len(left)
    assert {one: one.stat().st_mtime_ns for one in finished} == finished
    write_run_plan(folder, scenario(), runs)
    assert numbers(folder) == alone


@pytest.mark.slow
def test_a_local_dask_cluster_gives_equal_numbers(tmp_path, alone):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, host="127.0.0.1", scheduler_port=0
        ) as cluster,
        open_workers(cluster.scheduler_address, 1) as crew,
    ):
        assert swept(tmp_path, crew) == (4, alone)


@pytest.mark.slow
@pytest.mark.skipif(
    "BATCHSCHED_RAY" not in os.environ, reason="no Ray cluster: set BATCHSCHED_RAY to its address"
)
def test_a_ray_cluster_gives_equal_numbers(tmp_path, alone):
    with open_workers(os.environ["BATCHSCHED_RAY"], 1) as crew:
        assert swept(tmp_path, crew) == (4, alone)


def until(happened):
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_encoded_outcome_is_a_parquet_file():
    assert execute_and_encode_run(plan_runs(scenario(seeds=1))[0])[:4] == b"PAR1"

import gc
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import Pod, PodSpec
from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput
from batchsched.lab.plan import PlannedRun, plan_runs
from batchsched.lab.scenario import (
    ClusterSpec,
    GeneratedSource,
    NodeFailureSettings,
    TraceWindow,
    WorkloadSpec,
    load_scenario,
)
from batchsched.lab.simulation import (
    create_workload_of_run,
    map_runs,
    sample_window_start_rows,
    select_trace_rows,
    simulate_run,
)
from batchsched.lab.workers import open_workers
from batchsched.record.file import SessionRecord, write_session_file
from tests.lab.scenarios import written

GENERATED = WorkloadSpec(name="drawn", generate=GeneratedSource(gangs=15))
CLUSTER = ClusterSpec(nodes=4)
EXAMPLES = Path(__file__).parents[2] / "examples"
SWF = "; MaxProcs: 4\n" + "".join(f"{at} {at * 5} -1 10 2 -1 -1 2 10 -1\n" for at in range(1, 9))
PHILLY = "timestamp,duration,num_gpus,cluster\n" + "".join(
    f"2017-10-0{day} 00:00:00,60,1,{cluster}\n" for day, cluster in enumerate("abcab", start=1)
)


def run_of(policy, cluster=CLUSTER):
    profile = Profile.model_validate({"selection": "ordered", "backfill": "easy", "policy": {"name": policy}})
    return PlannedRun(workload=GENERATED, policy=policy, cluster=cluster, profile=profile, seed=3)


def results(processes, *policies):
    """The results of runs by index."""
    with open_workers(None, processes) as crew:
        outcomes = dict(map_runs(simulate_run, [run_of(policy) for policy in policies], crew))
    return [outcomes[index].result for index in range(len(policies))]


def test_results_do_not_depend_on_the_number_of_processes():
    alone = results(1, "saf", "fcfs", "sjf")
    assert [result.policy for result in alone] == ["saf", "fcfs", "sjf"]
    assert results(2, "saf", "fcfs", "sjf") == alone


def test_runs_in_one_process_are_yielded_one_by_one():
    started = []

    def start(run):
        started.append(run.policy)
        return run.policy

    with open_workers(None, 1) as crew:
        first = next(map_runs(start, [run_of("saf"), run_of("fcfs")], crew))
    assert (first, started) == ((0, "saf"), ["saf"])


@pytest.mark.parametrize("processes", [1, 2])
def test_an_unknown_policy_is_named_and_leaves_the_garbage_collector_as_it_was(processes):
    before = gc.get_threshold()
    with pytest.raises(InvalidInput, match="nonsense"):
        results(processes, "nonsense", "saf")
    assert gc.get_threshold() == before


def test_without_detail_the_measures_are_the_same_and_series_are_left_out():
    whole = simulate_run(run_of("saf"))
    small = whole.without_placements_and_series()
    assert small.measures == whole.measures
    assert small.result.metrics().mean_slowdown == whole.result.metrics().mean_slowdown
    assert small.result.metrics() == whole.result.metrics()
    assert small.result.series.times == ()
    assert all(gang.placements == () for gang in small.result.gangs)
    assert all(gang.placements for gang in whole.result.gangs)


def test_gangs_outlive_failures_of_their_nodes():
    failing = CLUSTER.model_copy(
        update={"failures": NodeFailureSettings(hours_between=40, hours_to_repair=1)}
    )
    run = run_of("fcfs", failing)
    result = simulate_run(run).result
    assert create_workload_of_run(run_of("fcfs")).outages == ()
    assert len(create_workload_of_run(run).outages) == result.failures > 0
    assert result.metrics().unfinished == 0
    assert sum(gang.restarts for gang in result.gangs) > 0


def test_a_prepared_workload_is_used_under_the_name_of_the_run():
    prepared = create_workload_of_run(run_of("fcfs"))
    named = replace(run_of("fcfs"), workload=WorkloadSpec.model_construct(name="x" * 100), prepared=prepared)
    assert create_workload_of_run(named) == replace(prepared, name="x" * 100)


# Sources of workloads


def made(tmp_path, source, **more):
    tmp_path.joinpath("t.swf").write_text(SWF)
    tmp_path.joinpath("p.csv").write_text(PHILLY)
    path = written(tmp_path / "s.yaml", workloads=[{"name": "w", **source}], queues=[], **more)
    return [create_workload_of_run(run) for run in plan_runs(load_scenario(path)) if run.policy == "fcfs"]


def test_a_trace_without_a_window_is_the_same_for_every_seed(tmp_path):
    one, two = made(tmp_path, {"swf": {"trace": "t.swf"}})
    assert one == two
    assert (len(one.arrivals), len(one.cluster.nodes), one.name) == (8, 4, "w")


def test_a_window_is_drawn_from_the_seed_unless_it_is_stated(tmp_path):
    drawn = made(tmp_path, {"swf": {"trace": "t.swf", "jobs": 3}}, seeds=6)
    assert {len(one.arrivals) for one in drawn} == {3}
    assert len({one.arrivals[0].time for one in drawn}) > 1
    stated = made(tmp_path, {"swf": {"trace": "t.swf", "jobs": 3, "start": 2}})
    assert [[arrival.time for arrival in one.arrivals] for one in stated] == [[15, 20, 25]] * 2


def test_a_trace_without_processors_requires_the_setting(tmp_path):
    tmp_path.joinpath("bare.swf").write_text("1 0 -1 10 2 -1 -1 2 10 -1\n")
    with pytest.raises(InvalidInput, match=r"workload .*set swf\.processors"):
        made(tmp_path, {"swf": {"trace": "bare.swf"}})
    assert len(made(tmp_path, {"swf": {"trace": "bare.swf", "processors": 3}})[0].cluster.nodes) == 3


def test_each_virtual_cluster_is_a_queue_unless_teams_are_stated(tmp_path):
    one, _ = made(tmp_path, {"philly": {"trace": "p.csv"}})
    assert [arrival.queue for arrival in one.arrivals] == ["vc-a", "vc-b", "vc-c", "vc-a", "vc-b"]
    one, _ = made(tmp_path, {"philly": {"trace": "p.csv", "teams": {"x": ["a"], "y": ["*"]}}})
    assert [arrival.queue for arrival in one.arrivals] == ["x", "y", "y", "x", "y"]
    assert [queue.name for queue in one.cluster.queues] == ["x", "y"]
    one, _ = made(tmp_path, {"philly": {"trace": "p.csv", "teams": {"x": ["a", "c"]}}})
    assert [arrival.queue for arrival in one.arrivals] == ["x", "x", "x"]


def test_a_period_may_have_a_zone_or_none(tmp_path):
    for last in ("2017-10-03T00:00:00Z", "2017-10-03T00:00:00"):
        source = {"philly": {"trace": "p.csv", "first": "2017-10-02T00:00:00Z", "last": last}}
        assert len(made(tmp_path, source)[0].arrivals) == 2


def test_generated_gangs_belong_to_the_stated_queues(tmp_path):
    one, two = made(tmp_path, {"generate": {"gangs": 40, "shares": {"a": 3, "b": 1}}})
    assert {arrival.queue for arrival in one.arrivals} == {"a", "b"}
    assert one.arrivals != two.arrivals


def test_nodes_fail_if_the_cluster_has_failures(tmp_path):
    failures = {"nodes": 4, "failures": {"hoursBetween": 20}}
    (one, _) = made(tmp_path, {"generate": {"gangs": 20}}, cluster=failures)
    assert one.outages


def test_manifests_and_recorded_sessions_bring_their_own_cluster(tmp_path):
    from typer.testing import CliRunner

    from batchsched.cli.app import app

    session = tmp_path / "monday.json.gz"
    files = [str(EXAMPLES / "cluster.yaml"), str(EXAMPLES / "jobs.yaml")]
    assert CliRunner().invoke(app, ["record", *files, "--to", str(session)]).exit_code in (0, 3)
    (given, _) = made(tmp_path, {"manifests": {"files": files, "now": 1_767_603_600}})
    (recorded, _) = made(tmp_path, {"session": {"file": "monday.json.gz"}})
    assert given.cluster.nodes == recorded.cluster.nodes
    assert {one.key for one in given.arrivals} == {one.key for one in recorded.arrivals}


def node_and_pod(**status):
    spec = {
        "schedulerName": "batchsched",
        "containers": [{"name": "main"}],
        **({"nodeName": "n1"} if status else {}),
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec, "status": status}
    return [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}, pod]


RUNNING = node_and_pod(phase="Running", startTime="2026-01-05T08:30:00Z")
NINE = 1_767_603_600
"""2026-01-05T09:00:00Z"""


def manifests_at(tmp_path, items, **source):
    """The arrivals of a workload that is read from a file, by time and elapsed run time."""
    file = tmp_path / "cluster.json"
    head: dict[str, object] = {"apiVersion": "v1", "kind": "List"}
    if source.pop("dump", False):
        head["dump"] = {"format": "batchsched.dump/1", "batchsched": "1", "time": "2026-01-05T09:00:00Z"}
    file.write_text(json.dumps({**head, "items": items}, separators=(",", ":")))
    (workload, _) = made(tmp_path, {"manifests": {"files": [str(file)], **source}})
    return [(arrival.time, arrival.elapsed) for arrival in workload.arrivals]


def test_a_dump_is_simulated_from_its_time_unless_another_one_is_stated(tmp_path):
    assert manifests_at(tmp_path, RUNNING, dump=True) == [(NINE, 1800)]
    assert manifests_at(tmp_path, RUNNING, dump=True, now=NINE + 60) == [(NINE + 60, 1860)]


def test_manifests_with_a_running_pod_require_the_time_at_which_it_runs(tmp_path):
    with pytest.raises(InvalidInput, match=r"workload w: manifests\.now: .*default/one.*set manifests\.now"):
        manifests_at(tmp_path, RUNNING)
    assert manifests_at(tmp_path, RUNNING, now=NINE) == [(NINE, 1800)]
    assert manifests_at(tmp_path, node_and_pod()) == [(0, 0)]


def test_pods_of_a_recorded_session_are_those_of_its_own_scheduler(tmp_path):
    pods = tuple(
        Pod(
            metadata=ObjectMeta(name=name, namespace="default"),
            spec=PodSpec(scheduler_name=name, node_name="n1"),
        )
        for name in ("mine", "other")
    )
    record = SessionRecord(
        Snapshot(pods=pods), Profile(scheduler_name="mine"), now=7.0, seed=0, decision=Decision()
    )
    write_session_file(tmp_path / "monday.json.gz", record)
    (workload, _) = made(tmp_path, {"session": {"file": "monday.json.gz"}})
    assert [arrival.key for arrival in workload.arrivals] == ["default/mine"]
    assert [pod.key for pod in workload.cluster.pods] == ["default/other"]


def test_queues_of_the_scenario_replace_those_of_the_workload(tmp_path):
    path = written(tmp_path / "s.yaml", queues=[{"metadata": {"name": "a"}, "spec": {"weight": 2.0}}])
    cluster = create_workload_of_run(plan_runs(load_scenario(path))[0]).cluster
    assert {queue.name: queue.spec.weight for queue in cluster.queues} == {"a": 2.0, "b": 1.0}


def test_windows_start_at_rows_drawn_from_the_seed():
    assert sample_window_start_rows(3, 7, 8900) == tuple(
        np.random.default_rng(7).integers(0, 8900, 3).tolist()
    )


@pytest.mark.parametrize(
    "window, complaint",
    [(TraceWindow(start=9), "no job is left from row 9"), (TraceWindow(jobs=9), "shorter")],
)
def test_a_window_after_the_end_of_the_trace_is_refused(window, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        select_trace_rows(range(8), window, 0)

"""The pipeline's bench: cached results give the same decisions as new ones, and every table is printed."""

import json

import pytest

from bench.pipeline import main
from bench.pipeline.clusters import WORKLOADS, Workload, snapshot
from bench.pipeline.sessions import same, session


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one.name)
def test_cached_results_place_equal_pods_as_new_results_do(workload: Workload):
    cluster = snapshot(workload, 60, workload.arrivals or 70, 3)
    assert same(session(cluster).decision, session(cluster, forgetful=True).decision)


def test_clusters_repeat_for_their_seed_and_differ_for_another():
    assert snapshot(WORKLOADS[0], 20, 5, 1) == snapshot(WORKLOADS[0], 20, 5, 1)
    assert snapshot(WORKLOADS[0], 20, 5, 1) != snapshot(WORKLOADS[0], 20, 5, 2)


@pytest.mark.parametrize("only", ["points", "sessions", "specs", "workloads"])
def test_the_bench_prints_its_tables(only: str, capsys: pytest.CaptureFixture[str]):
    options = ["--nodes", "10,20", "--pods", "5", "--specs", "5", "--repeats", "1", "--only", only]
    assert main(options) == 0
    printed = capsys.readouterr().out
    assert "differ in: no workload" in printed
    assert all(len(line) <= 100 for line in printed.splitlines())
    assert main([*options, "-o", "json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["differing"] == []
    assert all(title.startswith(only) for title in read["tables"])

"""The bench's instances: the same for a seed, contended as asked, and manifests that name every object once."""

import json
from pathlib import Path

import numpy as np

from bench.solver import main
from bench.solver.instances import generate, uncontended
from bench.solver.manifests import items
from bench.solver.problems import to_problem


def test_an_instance_repeats_for_its_seed_and_differs_for_another():
    assert generate(64, 10, 3) == generate(64, 10, 3)
    assert generate(64, 10, 3) != generate(64, 10, 4)


def test_requested_gpus_are_13_tenths_of_the_free_ones():
    problem = to_problem(generate(1000, 100, 0))
    asked = (problem.classes.demand[:, 2] * problem.classes.count).sum() / problem.nodes.free[:, 2].sum()
    assert 1.25 <= asked <= 1.35


def test_hardly_two_noisy_nodes_are_alike_and_as_many_gpus_are_free_as_on_lean_ones():
    noisy, lean = generate(5000, 200, 0, noisy=True), generate(5000, 200, 0)
    assert 4550 <= len({(node.type.name, node.tainted, node.used) for node in noisy.nodes}) <= 4750
    free = [to_problem(instance).nodes.free[:, 2].sum() for instance in (noisy, lean)]
    assert 0.9 <= free[0] / free[1] <= 1.1


def test_the_uncontended_mix_has_about_the_requested_number_of_pods():
    assert 1800 <= uncontended(1000, 100, 0, 2000).pods <= 2200


def test_manifests_name_every_object_once_and_hold_every_pod():
    instance = generate(64, 10, 1)
    found = items(instance)
    names = [(one["kind"], one["metadata"]["name"]) for one in found]  # type: ignore[index]
    assert len(names) == len(set(names))
    fillers = int(np.sum([node.used[0] > 0 for node in instance.nodes]))
    assert sum(kind == "Pod" for kind, _ in names) == instance.pods + fillers


def test_the_bench_prints_json_and_exports_manifests(tmp_path: Path, capsys):
    target = tmp_path / "session.json"
    options = ["--nodes", "64", "--gangs", "10", "--seeds", "1", "--here", "-o", "json", "--baseline"]
    assert main([*options, "--export", str(target)]) == 0
    (measured,) = json.loads(capsys.readouterr().out)
    assert measured["gap"] >= 0
    assert not measured["behind"]
    assert json.loads(target.read_text())["kind"] == "List"

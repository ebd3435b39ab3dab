"""The bench's instances: the same for a seed, contended as asked, and manifests that name every object once."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.solver import main
from bench.solver.instances import generate, partitioned, uncontended
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


def test_the_partitioned_mix_has_many_masks_and_a_third_of_its_gangs_require_a_level():
    instances = [partitioned(1000, 100, seed) for seed in range(5)]
    gangs = [gang for instance in instances for gang in instance.gangs]
    assert 0.28 <= np.mean([gang.required >= 0 for gang in gangs]) <= 0.38
    assert 0.45 <= np.mean([bool(gang.groups) for gang in gangs]) <= 0.55
    assert np.mean([len(gang.templates) for gang in gangs]) >= 2.5
    for instance in instances:
        assert len(to_problem(instance).kinds.mask) >= 40


def test_gangs_of_the_partitioned_mix_use_only_nodes_of_their_groups():
    instance = partitioned(300, 40, 0)
    problem = to_problem(instance)
    group = np.array([node.group for node in instance.nodes])
    for index, gang in enumerate(problem.classes.gang.tolist()):
        groups = instance.gangs[gang].groups
        if groups:
            mask = problem.kinds.mask[problem.classes.kind[index]]
            assert set(group[mask].tolist()) <= set(groups)


@pytest.mark.parametrize("draw", [generate, partitioned])
def test_manifests_name_every_object_once_and_hold_every_pod(draw):
    instance = draw(64, 10, 1)
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


def test_the_bench_prints_the_gap_over_budgets(capsys):
    options = ["--nodes", "64", "--gangs", "10", "--seeds", "1,2", "--here", "--budgets", "1,4"]
    assert main([*options, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["budget"] for row in rows] == [1.0, 4.0]
    assert all(len(row["gaps"]) == 2 and min(row["gaps"]) >= 0 for row in rows)
    assert main(options) == 0
    assert "budget" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, complaint",
    [
        (["--plot", "gap.html"], "needs --budgets"),
        (["--plot", "absent/gap.html", "--budgets", "1"], "there is no folder absent"),
        (["--optimum", "-1"], "expected a number of instances"),
        (["--changed", "0"], "--changed: expected a share above 0 and up to 1, found 0"),
        (["--changed", "2"], "--changed: expected a share above 0 and up to 1, found 2"),
        (["--predict-workers", "0"], "'0': expected numbers of processes, 1 or more"),
        (["--predict-workers", "a,2"], "'a,2': expected numbers of processes, 1 or more"),
        (["--workers", "0"], "--workers: expected 1 or more, found 0"),
        (["--predict-workers", "2", "--changed", "0.1"], "--changed and --predict-workers are different"),
        (["--predict-workers", "2", "-o", "json"], "--predict-workers prints a table only"),
    ],
)
def test_options_that_no_run_can_use_are_refused_before_it(options, complaint, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(options)
    assert complaint in capsys.readouterr().err


def test_the_plot_of_gaps_is_a_page_with_its_conclusion_and_command(tmp_path):
    page = tmp_path / "gap.html"
    options = [
        "--nodes",
        "64",
        "--gangs",
        "10",
        "--seeds",
        "1",
        "--here",
        "--budgets",
        "1,4",
        "--plot",
        str(page),
    ]
    assert main(options) == 0
    text = page.read_text(encoding="utf-8")
    assert "No larger budget gave a worse solution" in text
    assert "--budgets 1,4" in text
    assert "Content-Security-Policy" in text

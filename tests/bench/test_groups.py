"""The bench of gangs: its cases are feasible, and its check finds wrong placements."""

import pytest

from bench.groups.cases import GPUS, KINDS, ROOT_SIZE, CaseGenerator, domain_of
from bench.groups.check import Placement, find_fault
from bench.groups.run import main


def planted(case) -> dict[str, int]:
    return {
        name: node
        for group in case.gang.iterate()
        for (name, _, _), node in zip(group.iterate_pods(), group.planted, strict=False)
    }


def with_devices(case, nodes: dict[str, int]) -> Placement:
    """The pods on their nodes, each with free devices of one root if it needs few; the largest claims choose first."""
    free = [
        [
            list(range((root + 1) * ROOT_SIZE - count, (root + 1) * ROOT_SIZE))
            for root, count in enumerate(room.gpus)
        ]
        for room in (case.free if case.has_claims else [])
    ]
    devices = {}
    sizes = {name: gpus for group in case.gang.iterate() for name, gpus, _ in group.iterate_pods() if gpus}
    for name in sorted(nodes.keys() & sizes.keys() if free else (), key=lambda name: -sizes[name]):
        roots = free[nodes[name]]
        if sizes[name] == GPUS:
            devices[name] = tuple(range(GPUS))
            continue
        fitting = min((root for root in roots if len(root) >= sizes[name]), key=len)
        devices[name] = tuple(fitting.pop() for _ in range(sizes[name]))
    return Placement(nodes, devices)


@pytest.mark.parametrize("seed", range(2 * len(KINDS)))
def test_planted_placement_is_legal_and_stays_free(seed):
    case = CaseGenerator(seed).draw()
    nodes = planted(case)
    assert find_fault(case, with_devices(case, nodes)) == ""
    assert 0.5 < case.load < 0.97
    nodes.popitem()
    assert find_fault(case, with_devices(case, nodes)) != ""


def cases_of_kind(kind: str):
    return (CaseGenerator(KINDS.index(kind) + len(KINDS) * number).draw() for number in range(30))


def test_devices_of_two_roots_are_a_fault_of_a_small_claim():
    case = next(
        case for case in cases_of_kind("claims") if any((2, 4) in group.pods for group in case.gang.iterate())
    )
    placement = with_devices(case, planted(case))
    name = next(name for name, devices in placement.devices.items() if len(devices) == 2)
    assert find_fault(case, Placement(placement.nodes, {**placement.devices, name: (0, ROOT_SIZE)})) != ""


@pytest.mark.parametrize("rule", ["apart", "together", "near", "away"])
def test_broken_affinity_is_a_fault(rule):
    case, group = next(
        (case, group)
        for case in cases_of_kind("affinity")
        for group in case.gang.children
        if getattr(group, rule) and len(group.pods) > 1
    )
    nodes = planted(case)
    mine = [name for name, _, _ in group.iterate_pods()]
    others = [node for name, node in nodes.items() if name.startswith(f"{group.away}-pod-")]
    level = "rack" if rule == "together" else "block"
    outside = [n for n in range(len(case.free)) if domain_of(n, level) != domain_of(nodes[mine[1]], level)]
    target = {"apart": [nodes[mine[1]]], "away": others}.get(rule, outside)[0]
    assert find_fault(case, Placement(nodes | {mine[0]: target})) != ""


def test_pod_in_another_rack_is_a_fault_of_a_slice():
    case = next(case for case in cases_of_kind("slices") if case.gang.slice_size > 1)
    nodes = planted(case)
    name, node = next(iter(nodes.items()))
    level = case.gang.slice_level
    others = [n for n in range(len(case.free)) if domain_of(n, level) != domain_of(node, level)]
    roomy = max(others, key=lambda n: sum(case.free[n].gpus))
    assert find_fault(case, Placement(nodes | {name: roomy})) != ""


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--count", "0"], "expected at least 1"),
        (["--kube-scheduler", "--only", "candidates"], "leave out --only candidates"),
    ],
)
def test_options_without_effect_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


def test_bench_places_the_first_gangs_and_prints_both_tables(capsys):
    assert main(["--count", "7"]) == 0
    printed = capsys.readouterr().out
    assert "| all | 7 | 7 |" in printed
    assert "of these proved" in printed

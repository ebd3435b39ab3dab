"""The bench of gangs with trees and slices: its cases are feasible, and its check finds wrong placements."""

import pytest

from bench.groups.cases import KINDS, CaseGenerator, domain_of, find_fault
from bench.groups.run import main


def planted(case) -> dict[str, int]:
    return {
        f"{group.name}-pod-{number}": node
        for group in case.gang.iterate()
        for number, node in enumerate(group.planted)
    }


@pytest.mark.parametrize("seed", range(2 * len(KINDS)))
def test_planted_placement_is_legal_and_stays_free(seed):
    case = CaseGenerator(seed).draw()
    nodes = planted(case)
    assert find_fault(case, nodes) == ""
    assert 0.5 < case.load < 0.97
    nodes.popitem()
    assert find_fault(case, nodes) != ""


def test_pod_in_another_rack_is_a_fault_of_a_slice():
    cases = (CaseGenerator(KINDS.index("slices") + len(KINDS) * number).draw() for number in range(9))
    case = next(case for case in cases if case.gang.slice_size > 1)
    nodes = planted(case)
    name, node = next(iter(nodes.items()))
    level = case.gang.slice_level
    others = [n for n in range(len(case.free)) if domain_of(n, level) != domain_of(node, level)]
    roomy = max(others, key=lambda n: case.free[n])
    assert find_fault(case, nodes | {name: roomy}) != ""


def test_bench_places_the_first_gangs_and_prints_both_tables(capsys):
    assert main(["--count", "5"]) == 0
    printed = capsys.readouterr().out
    assert "| all | 5 | 5 |" in printed
    assert "of these proved" in printed

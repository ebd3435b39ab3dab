"""Simulations and a lab report come to the recorded figures."""

from pathlib import Path

from tests.guards import simulations

RECORDED = Path(__file__).with_name("simulations.txt")


def test_simulations_reproduce_the_recorded_figures():
    present = list(simulations.lines())
    differing = set(present) ^ set(RECORDED.read_text().splitlines())
    assert not differing, "\n".join(sorted(differing))

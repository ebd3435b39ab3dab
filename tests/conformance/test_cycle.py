"""The whole cycle, PreFilter to preemption, ends as kube-scheduler 1.36 was recorded to end it."""

import pytest

from tests.conformance import cycle, runner

AREAS = (
    "resources",
    "taints",
    "nodeaffinity",
    "nodename",
    "ports",
    "images",
    "spread",
    "interpod",
    "volumes",
    "preemption",
    "mixed",
)


@pytest.mark.parametrize("area", AREAS)
def test_the_cycle_ends_as_recorded(area):
    compared = [case for case in runner.cases(area) if cycle.comparable(case)]
    assert len(compared) == 60
    assert [line for case in compared for line in cycle.mismatches(case)] == []

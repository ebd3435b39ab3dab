"""`decide` with the solver off ends every recorded case as kube-scheduler 1.36 ended it, preemption included."""

import pytest

from tests.conformance import decided, runner

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
def test_the_decision_is_the_recorded_one(area):
    cases = [case for case in runner.cases(area) if decided.comparable(case)]
    assert len(cases) >= 30
    assert [line for case in cases for line in decided.mismatches(case)] == []

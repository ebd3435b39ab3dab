"""kube-scheduler 1.36 was recorded over these cases: each plugin, the whole cycle, and `decide` without the solver."""

import pytest

from batchsched.framework.runtime.registry import load_plugin_classes
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
# Plugins of batchsched only, or at points that were not recorded. Every other plugin is compared.
NOT_RECORDED = {
    "DefaultBinder",
    "GangScheduling",
    "PrioritySort",
    "QOSSort",
    "SchedulingGates",
    "SelectorSpread",
}
PLUGINS = {plugin.name: plugin for plugin in load_plugin_classes() if plugin.name not in NOT_RECORDED}  # type: ignore[attr-defined]


@pytest.mark.parametrize("area", sorted({*AREAS} - {"preemption"}))
@pytest.mark.parametrize("name", sorted(PLUGINS))
def test_plugin_answers_as_recorded(area, name):
    assert [line for case in runner.cases(area) for line in runner.mismatches(case, PLUGINS[name])] == []


@pytest.mark.parametrize("area", AREAS)
def test_the_cycle_ends_as_recorded(area):
    cases = runner.cases(area)
    assert len(cases) == 60
    assert [line for case in cases for line in cycle.mismatches(case)] == []


@pytest.mark.parametrize("area", AREAS)
def test_the_decision_is_the_recorded_one(area):
    cases = [case for case in runner.cases(area) if cycle.decides_alone(case)]
    assert len(cases) >= 30
    assert [line for case in cases for line in cycle.decision_mismatches(case)] == []

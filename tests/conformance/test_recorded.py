"""kube-scheduler was recorded over these cases: each plugin, the whole cycle, and `decide` without the solver."""

import pytest

from batchsched.framework.runtime.registry import load_plugin_classes
from tests.conformance import cycle, runner
from tests.conformance.__main__ import area_name, files

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
    "dra",
)
VERSIONS = tuple(runner.RECORDINGS)
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


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_area_is_compared(version):
    folder = runner.RECORDINGS[version]
    found = {area_name(path) for path in files(folder) if path.parent == folder}
    assert found == {*AREAS}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("area", sorted({*AREAS} - {"preemption"}))
@pytest.mark.parametrize("name", sorted(PLUGINS))
def test_plugin_answers_as_recorded(area, name, version):
    cases = runner.cases(area, version)
    assert [line for case in cases for line in runner.mismatches(case, PLUGINS[name])] == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("area", AREAS)
def test_the_cycle_ends_as_recorded(area, version):
    cases = runner.cases(area, version)
    assert len(cases) == 60
    assert [line for case in cases for line in cycle.mismatches(case)] == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("area", AREAS)
def test_the_decision_is_the_recorded_one(area, version):
    cases = [case for case in runner.cases(area, version) if cycle.decides_alone(case)]
    assert len(cases) >= 30
    assert [line for case in cases for line in cycle.decision_mismatches(case)] == []

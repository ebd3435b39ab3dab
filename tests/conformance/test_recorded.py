"""Every plugin by itself answers what kube-scheduler 1.36 was recorded to answer."""

import pytest

from batchsched.framework.runtime.registry import found
from tests.conformance import runner

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
    "mixed",
)
# Ours alone, or asked at points that were not recorded. Every other plugin is compared.
NOT_RECORDED = {
    "DefaultBinder",
    "GangScheduling",
    "PrioritySort",
    "QOSSort",
    "SchedulingGates",
    "SelectorSpread",
}
PLUGINS = {plugin.name: plugin for plugin in found() if plugin.name not in NOT_RECORDED}  # type: ignore[attr-defined]


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("name", sorted(PLUGINS))
def test_plugin_answers_as_recorded(area, name):
    assert [line for case in runner.cases(area) for line in runner.mismatches(case, PLUGINS[name])] == []

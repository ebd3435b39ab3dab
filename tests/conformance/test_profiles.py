"""Profiles that switch plugins on and off, weigh and configure them: the cycle ends as kube-scheduler's did."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchsched.config.kube_scheduler import KubeSchedulerConfiguration
from batchsched.config.kubernetes_release import KubernetesVersion
from batchsched.config.load import load_configuration
from batchsched.config.schema import Profile
from batchsched.framework.runtime.pipeline import plugin_names
from batchsched.framework.runtime.registry import standard_registry
from tests.conformance import runner

COUNTS: dict[KubernetesVersion, dict[str, int]] = {
    "1.36": {
        "images": 15,
        "interpod": 18,
        "mixed": 18,
        "nodeaffinity": 19,
        "resources": 47,
        "spread": 10,
        "taints": 8,
    },
    "1.37": {
        "images": 11,
        "interpod": 22,
        "mixed": 18,
        "nodeaffinity": 19,
        "resources": 41,
        "spread": 13,
        "taints": 15,
    },
}
"""Cases with a profile, by release and area."""
RECORDED = [(area, version) for version, counts in COUNTS.items() for area in counts]


def with_a_profile(area: str, version: KubernetesVersion) -> list[runner.Case]:
    return [case for case in runner.cases(area, version) if case.config is not None]


def stated(case: runner.Case) -> KubeSchedulerConfiguration:
    return KubeSchedulerConfiguration.model_validate(case.config)


def cycle(case: runner.Case) -> dict[str, Any]:
    profile = stated(case).to_batchsched().profiles[0]
    of_release = profile.model_copy(update={"kubernetes_version": case.kubernetes_version})
    pipeline = standard_registry().create_pipeline(of_release)
    cluster = runner.cluster_of(runner.snapshot_of(case), case.pod, release=case.release)
    scan = pipeline.find_nodes_that_pass_filters(cluster.pod, cluster.table)
    feasible = np.flatnonzero(scan.fits).astype(np.int32)
    if not len(feasible):
        return {"fit error": scan.fit_error_message()}
    total = pipeline.score(cluster.pod, feasible, cluster.table, scan.state)
    return {cluster.table.names[at]: int(score) for at, score in zip(feasible, total, strict=True)}


@pytest.mark.parametrize("area, version", RECORDED)
def test_the_cycle_under_a_profile_ends_as_recorded(area, version):
    cases = with_a_profile(area, version)
    assert len(cases) == COUNTS[version][area]
    for case in cases:
        scored = dict(zip(case.expected.feasible or (), case.expected.total, strict=True))
        refused = {"fit error": case.expected.fit_error}
        assert cycle(case) == (scored if scored else refused), case.name


@pytest.mark.parametrize("area, version", RECORDED)
def test_nothing_that_a_recorded_profile_states_is_without_effect(area, version):
    assert {line for case in with_a_profile(area, version) for line in stated(case).warnings()} == set()


def test_written_defaults_of_kube_scheduler_give_the_default_pipeline():
    written = load_configuration(Path(__file__).parent.parent / "config/kube_scheduler.yaml").profiles[0]
    ours, theirs = (
        standard_registry().create_pipeline(Profile()),
        standard_registry().create_pipeline(written),
    )
    assert plugin_names(theirs.plugins) == plugin_names(ours.plugins)
    for point in ("prefilters", "filters", "prescores", "scores", "reserves", "permits", "queue_sorts"):
        assert plugin_names(getattr(theirs, point)) == plugin_names(getattr(ours, point))
    scoring = plugin_names(ours.scores)
    assert [theirs.weights[name] for name in scoring] == [ours.weights[name] for name in scoring]

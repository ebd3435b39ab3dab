"""The whole cycle, PreFilter to the weighted sum, fits, refuses and scores as kube-scheduler 1.36 was recorded to."""

from typing import Any

import numpy as np
import pytest

from batchsched.framework.registry import standard
from batchsched.framework.status import Code
from batchsched.settings.schema import Profile
from tests.conformance import runner

AREAS = ("resources", "taints", "nodeaffinity", "nodename", "ports", "images", "spread", "interpod", "mixed")


def profile_of(case: runner.Case) -> Profile:
    stated = [{"name": name, "args": args} for name, args in runner.arguments(case).items()]
    return Profile.model_validate({"schedulerName": "default-scheduler", "pluginConfig": stated})


def comparable(case: runner.Case) -> bool:
    """Leave out what a profile switches on or off point by point, and refusals of plugins that we do not have."""
    if ((case.config or {}).get("profiles") or [{}])[0].get("plugins"):
        return False
    answers = [(name, answer) for name, answer in case.expected.pre_filter.items()]
    answers += [(answer.plugin, answer) for answer in case.expected.node_status.values()]
    refusing = {name for name, answer in answers if answer.code not in (Code.SUCCESS, Code.SKIP)}
    return refusing <= set(standard().names)


def cycle(case: runner.Case) -> dict[str, Any]:
    pipeline = standard().pipeline(profile_of(case))
    cluster = runner.cluster_of(runner.snapshot_of(case), case.pod)
    scan = pipeline.scan(cluster.pod, cluster.table)
    feasible = np.flatnonzero(scan.fits).astype(np.int32)
    if not len(feasible):
        return {"fit error": scan.fit_error()}
    total = pipeline.score(cluster.pod, feasible, cluster.table, scan.state)
    return {cluster.table.names[at]: int(score) for at, score in zip(feasible, total, strict=True)}


@pytest.mark.parametrize("area", AREAS)
def test_the_cycle_ends_as_recorded(area):
    compared = [case for case in runner.cases(area) if comparable(case)]
    assert len(compared) >= 30
    for case in compared:
        scored = dict(zip(case.expected.feasible or (), case.expected.total, strict=True))
        refused = {"fit error": case.expected.fit_error}
        assert cycle(case) == (scored if scored else refused), case.name

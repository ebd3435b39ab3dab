"""`decide` with the solver off ends every recorded case as kube-scheduler 1.36 ended it, preemption included."""

from typing import Any

import pytest

from batchsched.framework.status import Code
from batchsched.model.decision import Decision
from batchsched.session.decide import decide
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


def ended(case: runner.Case) -> Decision:
    profile = cycle.profile_of(case)
    off = profile.model_copy(update={"solver": profile.solver.model_copy(update={"enabled": False})})
    return decide(runner.snapshot_of(case), off, 0.0, 0)


def differs(case: runner.Case) -> list[Any]:
    """Compare the node, or the sentence with who is nominated and who has to leave; who is leaving is not told to."""
    expected, decision, key = case.expected, ended(case), case.pod.key
    placed = {f"{one.namespace}/{one.pod}": one.node for one in decision.assignments}
    if expected.best:
        return [] if placed.get(key) in expected.best else [case.name, placed.get(key), expected.best]
    said = {one.pod_group: one.message for one in decision.refusals}.get(key)
    if said != expected.fit_error_full:
        return [case.name, said, expected.fit_error_full]
    stated = expected.preemption
    if stated is None:
        return []
    victims = {f"{one.namespace}/{one.pod}" for one in decision.evictions}
    if stated.code != Code.SUCCESS:
        return [case.name, victims] if victims else []
    node = {f"{one.namespace}/{one.pod}": one.node for one in decision.nominations}.get(key, "")
    tied = node in stated.tied
    theirs = stated.candidates[node].victims if tied else stated.victims
    leaving = {pod.key for pod in case.pods if pod.terminating}
    ours, recorded = (node, victims), (node if tied else stated.nominated_node, {*theirs} - leaving)
    return [] if ours == recorded else [case.name, ours, recorded]


@pytest.mark.parametrize("area", AREAS)
def test_the_decision_is_the_recorded_one(area):
    """Nominated pods would be scheduled in the same session, and a pod that names its node counts as bound there."""
    cases = [case for case in runner.cases(area) if not (case.nominated_pods or case.pod.node)]
    assert len(cases) >= 30
    assert [line for case in cases if (line := differs(case))] == []

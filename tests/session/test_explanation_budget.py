"""Explanations of refusals cost bounded work; beyond it, a refusal keeps its reason."""

import pytest

from batchsched.solver.relaxation import budget
from tests.session.scenario import alone, cluster, gang, nodes, profile, queue, reasons, schedule
from tests.session.test_pod_limits import anti_affinity, pod_of, term


@pytest.fixture
def spent(monkeypatch):
    monkeypatch.setattr(budget.ExplanationBudget, "is_spent", lambda self: True)


@pytest.mark.parametrize("selection", ["weight", "ordered"])
@pytest.mark.parametrize(
    "parts, more, reason",
    [
        ([alone(1, cpu=500)], {}, "NoFeasibleNode"),
        ([gang("large", 9)], {}, "InsufficientResources"),
        (
            [gang("capped", 1, queue="q")],
            {"queues": (queue("q", limit={"nvidia.com/gpu": "0"}),)},
            "QueueLimit",
        ),
    ],
    ids=["too large a pod", "too large a gang", "queue"],
)
def test_refusal_without_work_left_has_the_same_reason_and_no_proposed_change(
    request, selection, parts, more, reason
):
    snapshot = cluster(nodes(2, gpu=2), *parts, **more)
    (explained,) = schedule(snapshot, profile(selection=selection)).refusals
    request.getfixturevalue("spent")
    (plain,) = schedule(snapshot, profile(selection=selection)).refusals
    assert (explained.reason, plain.reason) == (reason, reason)
    assert explained.relaxation
    assert not plain.relaxation


def test_refusal_by_a_rule_between_pods_names_such_rules_without_work_left(spent):
    pods = [pod_of(f"p{number}", anti_affinity(term("app", "x")), labels={"app": "x"}) for number in range(3)]
    decision = schedule(cluster(nodes(2), pods=pods))
    assert list(reasons(decision).values()) == ["PluginConstraint"]
    assert "rules between pods" in decision.refusals[0].message


def test_pods_with_many_rules_are_explained_within_the_work_of_a_session(monkeypatch):
    units: list[float] = []
    spend = budget.ExplanationBudget.spend

    def count(self, work):
        units.append(work)
        spend(self, work)

    monkeypatch.setattr(budget.ExplanationBudget, "spend", count)
    labels = {f"k{number}": "v" for number in range(40)}
    pods = [
        pod_of(f"p{number}", anti_affinity(*(term(key, "v") for key in labels)), labels=labels)
        for number in range(30)
    ]
    decision = schedule(cluster(nodes(10), pods=pods))
    assert len(decision.assignments) == 10
    assert set(reasons(decision).values()) == {"PluginConstraint"}
    assert sum(units) < 1.1 * budget.MAX_EXPLANATION_WORK


def test_equal_sessions_explain_equally_although_the_work_runs_out(monkeypatch):
    monkeypatch.setattr(budget.ExplanationBudget.__init__, "__defaults__", (2000.0,))
    snapshot = cluster(nodes(4), alone(20, cpu=500))
    first, second = schedule(snapshot), schedule(snapshot)
    assert first.refusals == second.refusals
    assert 0 < sum(bool(refusal.relaxation) for refusal in first.refusals) < 20

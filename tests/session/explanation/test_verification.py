"""The work of verifying refusals is counted: objects of the input, and the work of the solver."""

from collections.abc import Collection

import pytest

from batchsched.api.decision import InputChange
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.external import Telemetry
from batchsched.session.explanation import verification
from batchsched.session.explanation.explain import RefusalVerifier, explain_refusals
from batchsched.session.explanation.verification import (
    AssignmentDecision,
    DecidedInput,
    OutOfBudget,
    PlacementVerifier,
    decide_assignments,
    estimate_decision_work,
)
from batchsched.solver.relaxation.budget import ExplanationBudget
from tests.session.scenario import (
    NOW,
    cluster,
    gang,
    group,
    nodes,
    pod,
    priority_class,
    profile,
    queue,
    schedule,
)

ONE_MORE_NODE = (InputChange(copy="Node/n0", count=1),)


def test_work_of_the_solver_counts_against_the_budget():
    snapshot = cluster(nodes(1, gpu=8), gang("large", 2, requests={"gpu": 8}))
    decided = DecidedInput(snapshot, profile(), NOW, 0, schedule(snapshot))
    budget = ExplanationBudget(1.5e6)
    verifier = PlacementVerifier(
        decided, "team/large", budget, lambda *_: AssignmentDecision((), solver_work=1e6)
    )
    assert not verifier.is_gang_placed_after_changes(())
    with pytest.raises(OutOfBudget):
        verifier.is_gang_placed_after_changes(ONE_MORE_NODE)


def test_work_of_a_decision_grows_with_nodes_gangs_and_pods():
    small = cluster(nodes(1), gang("a", 2))
    larger = [
        cluster(nodes(2), gang("a", 2)),
        cluster(nodes(1), gang("a", 3)),
        cluster(nodes(1), gang("a", 1), gang("b", 1)),
        cluster(nodes(1), gang("a", 2), pods=[pod("running", on="n0")]),
    ]
    assert all(estimate_decision_work(small) < estimate_decision_work(snapshot) for snapshot in larger)


def test_decision_of_a_verification_evicts_nothing_and_assigns_the_same():
    running = Snapshot(pods=(pod("low-0", group="low", on="n0", gpu=8),), pod_groups=(group("low", 1),))
    high = [gang(name, 1, requests={"gpu": 8}, priorityClassName="high") for name in ("first", "second")]
    snapshot = cluster(nodes(2, gpu=8), running, *high, priority_classes=(priority_class("high", 1000),))
    full = schedule(snapshot)
    assert full.evictions
    assert decide_assignments(snapshot, profile(), NOW, 0).assignments == full.assignments


def test_gang_whose_explanation_takes_long_leaves_work_for_the_other_gangs(monkeypatch):
    """It continues after the others, if the budget of the session allows it."""
    monkeypatch.setattr(verification, "MIN_DECISIONS_PER_GANG", 1)
    gangs = [gang("long", 33, requests={"gpu": 8}, queue="q"), gang("short", 5, requests={"gpu": 8})]
    snapshot = cluster(nodes(4, gpu=8), *gangs, queues=(queue("q", limit={"nvidia.com/gpu": "16"}),))
    decided = DecidedInput(snapshot, profile(), NOW, 0, schedule(snapshot))

    def explain(units: float, only: Collection[str] | None = None) -> tuple[set[str], float]:
        budget = ExplanationBudget(units)
        refusals = explain_refusals(decided, budget, only).refusals
        return {entry.pod_group for entry in refusals if entry.verified}, units - budget.remaining

    _, work_of_long = explain(1e9, {"team/long"})
    _, work_of_short = explain(1e9, {"team/short"})
    assert work_of_long > 6 * work_of_short
    assert explain(0.8 * work_of_long)[0] == {"team/short"}
    assert explain(1.2 * (work_of_long + work_of_short))[0] == {"team/long", "team/short"}


def test_added_nodes_are_enough_whether_their_names_come_first_or_last():
    """The name of a node decides between places of equal value: with luck, one node less may be enough."""
    snapshot = cluster(nodes(1, gpu=8), gang("large", 2, requests={"gpu": 8}))

    def decide_by_names(
        changed: Snapshot, profile: Profile, now: float, seed: int, _telemetry: Telemetry | None = None
    ) -> AssignmentDecision:
        names = sorted(node.name for node in changed.nodes)
        if len(names) == 2 and names[0] != "n0":
            return AssignmentDecision(())
        return decide_assignments(changed, profile, now, seed)

    decided = DecidedInput(snapshot, profile(), NOW, 0, schedule(snapshot))
    verifier = PlacementVerifier(decided, "team/large", ExplanationBudget(1e9), decide_by_names)
    assert verifier.is_gang_placed_after_changes(ONE_MORE_NODE)
    assert not verifier.is_placed_regardless_of_new_node_names(ONE_MORE_NODE)
    refusal = RefusalVerifier(decided, decide_by_names).explain_refusal(
        decided.decision.refusals[0], ExplanationBudget(1e9)
    )
    assert refusal.verified
    assert refusal.changes == (InputChange(copy="Node/n0", count=2),)

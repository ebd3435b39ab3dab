import json

from batchsched.api.decision import (
    Assignment,
    Decision,
    Eviction,
    SolverAccount,
    TierObjective,
    to_json,
    without_measured_durations,
)

DECISION = Decision(
    assignments=(Assignment(namespace="team-a", pod="bert-0", node="n1"),),
    evictions=(Eviction(namespace="b", pod="x-3", pod_group="x", for_="team-a/bert", reason="Reclaimed"),),
    solver=SolverAccount(
        tiers=(TierObjective(share="all", priority=1000, objective=0.412, bound=0.413),),
        gap=0.0024,
        seconds=1.31,
        stages={"cpsat": 1.0},
    ),
)


def test_json_is_that_of_the_public_surface():
    assert json.loads(to_json(DECISION)) == {
        "assignments": [{"namespace": "team-a", "pod": "bert-0", "node": "n1"}],
        "evictions": [
            {"namespace": "b", "pod": "x-3", "podGroup": "x", "for": "team-a/bert", "reason": "Reclaimed"}
        ],
        "refusals": [],
        "reservations": [],
        "nominations": [],
        "waiting": [],
        "setAside": [],
        "solver": {
            "tiers": [{"share": "all", "priority": 1000, "objective": 0.412, "bound": 0.413}],
            "gap": 0.0024,
            "guard": False,
            "seconds": 1.31,
            "stages": {"cpsat": 1.0},
        },
    }


def test_telemetry_is_all_that_is_left_out_of_a_comparison():
    bare = without_measured_durations(DECISION)
    assert (bare.solver.seconds, bare.solver.stages) == (0.0, {})
    assert bare.solver.tiers == DECISION.solver.tiers
    assert bare.assignments == DECISION.assignments

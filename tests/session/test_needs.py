"""Gangs with rules between members are placed exactly when an exhaustive search finds a placement."""

import pytest
from hypothesis import example, given

from batchsched.api.decision import Decision
from tests.session import audit
from tests.session.needs import (
    ZONE,
    Kind,
    Machine,
    Puzzle,
    Rules,
    Spread,
    Team,
    can_be_placed,
    puzzles,
    snapshot_of,
)
from tests.session.scenario import profile, schedule

pytestmark = pytest.mark.properties
EXACT = profile(solver={"gap": 0.0})
OTHERS_FIRST = Puzzle(
    (Machine("n0", "x", 1), Machine("n1", "x", 2)),
    (),
    (
        Team(
            "g0",
            (Kind("a", "1", Rules(), 2), Kind("b", "1", Rules(spreads=(Spread(ZONE, "a", 1, least=2),)), 1)),
            3,
        ),
    ),
)
"""The pod of b may go to the zone only before both of a have."""
BY_RULES = {"PluginConstraint", "NoFeasibleNode"}
BY_ROOM = {"InsufficientResources", "NoFeasibleNode"}


def solved(puzzle: Puzzle) -> tuple[set[str], Decision]:
    """The placed gangs; each is placed completely, and each pod passes its filters."""
    snapshot = snapshot_of(puzzle)
    decision = schedule(snapshot, EXACT)
    places = {one.pod_key: one.node for one in decision.assignments}
    assert not audit.partial_gangs(snapshot, places)
    return {one.pod.rsplit("-", 2)[0] for one in decision.assignments}, decision


@given(puzzle=puzzles())
def test_gang_with_rules_between_members_is_placed_exactly_when_a_placement_exists(puzzle):
    placed, decision = solved(puzzle)
    assert bool(placed) == can_be_placed(puzzle), decision.refusals


@given(puzzle=puzzles(teams=3))
@example(puzzle=OTHERS_FIRST)
def test_all_gangs_are_placed_exactly_when_an_exhaustive_search_places_them(puzzle):
    placed, decision = solved(puzzle)
    assert (len(placed) == len(puzzle.teams)) == can_be_placed(puzzle), decision.refusals


@given(puzzle=puzzles())
def test_refusal_states_whether_rules_or_capacity_prevent_a_placement(puzzle):
    if can_be_placed(puzzle):
        return
    (refusal,) = solved(puzzle)[1].refusals
    rules = can_be_placed(puzzle.careless())
    assert refusal.reason in (BY_RULES if rules else BY_RULES | BY_ROOM), refusal
    assert refusal.message

"""Our own policy, against its definition in plain Python."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from batchsched.queues.gang_order.headroom import Headroom, HeadroomArgs
from batchsched.queues.gang_order.policy import HorizonPolicy, order
from tests.queues.columns import DAY, GANGS, columns

NOW = 20 * DAY
ARGS = st.builds(
    HeadroomArgs,
    ageing=st.floats(0, 1),
    share=st.floats(0, 0.9),
    long_seconds=st.floats(0, DAY),
    patience=st.floats(0.1, 50),
    age_limit_seconds=st.floats(1, 30 * DAY),
)


def reference(one, args: HeadroomArgs) -> tuple[bool, float, float]:
    """(past the age limit, key, room) of one gang, line by line as the policy is defined."""
    run = 3600.0 if math.isnan(one["estimate"]) else max(one["estimate"], 1.0)
    wait = NOW - one["created"]
    slowdown = max(1.0, (wait + run) / max(run, 10.0))
    aged = wait > args.age_limit_seconds
    room = 0.0
    if run > args.long_seconds and not aged:
        room = args.share * max(0.0, 1.0 - (slowdown - 1.0) / args.patience)
    return aged, one["share"] * run / (1.0 + args.ageing * slowdown), room


@given(gangs=GANGS, args=ARGS)
def test_order_and_room_are_those_of_the_definition(gangs, args):
    for at, one in enumerate(gangs):
        one["arrival"] = at
    made, expected = columns(*gangs), [reference(one, args) for one in gangs]
    policy = Headroom(args)
    assert policy.room(made, NOW).tolist() == pytest.approx([room for _, _, room in expected], abs=1e-12)
    keys = policy.key(made, NOW).tolist()
    for at, (aged, key, _) in enumerate(expected):
        assert (keys[at] < 0) == aged
        if not aged:
            assert keys[at] == pytest.approx(key, rel=1e-12)
    front = [at for at in order(policy, made, NOW).tolist() if expected[at][0]]
    assert front == [at for at, (aged, _, _) in enumerate(expected) if aged]
    assert order(policy, made, NOW).tolist()[: len(front)] == front


def test_without_headroom_ageing_and_limit_it_is_smallest_area_first():
    policy = Headroom(HeadroomArgs(ageing=0, share=0, age_limit_seconds=1e9))
    gangs = columns({"estimate": 50.0, "share": 0.5}, {"estimate": 100.0, "share": 0.1})
    assert policy.key(gangs, NOW).tolist() == pytest.approx([25.0, 10.0])
    assert policy.room(gangs, NOW).tolist() == [0.0, 0.0]


def test_patience_ends_where_the_slowdown_is_one_more_than_it():
    policy = Headroom()
    run = 7200.0
    gangs = columns(*({"estimate": run, "created": NOW - wait * run} for wait in (0, 5, 10, 11)))
    assert policy.room(gangs, NOW).tolist() == pytest.approx([0.125, 0.0625, 0.0, 0.0])


def test_short_gangs_need_no_room_and_an_hour_is_still_short():
    gangs = columns({"estimate": 3600.0, "created": NOW}, {"estimate": 3601.0, "created": NOW})
    assert Headroom().room(gangs, NOW).tolist() == pytest.approx([0.0, 0.125])


def test_it_wants_room_that_is_free_within_its_horizon():
    policy = Headroom(HeadroomArgs(horizon_seconds=60))
    assert isinstance(policy, HorizonPolicy)
    assert policy.horizon == 60


@pytest.mark.parametrize("wrong", [{"share": 1.0}, {"share": -0.1}, {"patience": 0}, {"age": 3}])
def test_arguments_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValidationError):
        HeadroomArgs.model_validate(wrong)

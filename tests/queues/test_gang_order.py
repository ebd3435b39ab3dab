"""Policies by name."""

import math
import re
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from batchsched.errors import InvalidInput
from batchsched.queues.gang_order import (
    DEFAULT_RUNTIME_SECONDS,
    POLICIES,
    AutoOrder,
    F1Order,
    FcfsOrder,
    HeadroomArgs,
    HeadroomOrder,
    HeadroomPolicy,
    PriorityOrder,
    SafOrder,
    SjfOrder,
    Wfp3Order,
    construct_policy,
    gang_indexes_in_order,
    make_gang_order_policy,
)
from tests.queues.columns import DAY, GANGS, columns


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_found_by_its_name(name):
    assert make_gang_order_policy(name, {}).name == name


def test_unknown_name_is_refused_with_the_registered_names():
    with pytest.raises(InvalidInput) as caught:
        make_gang_order_policy("lottery", {})
    assert str(caught.value) == (
        "policy.name: there is no policy 'lottery'; known are auto, f1, fcfs, headroom, priority, saf, sjf, wfp3"
    )


def test_arguments_reach_the_policy():
    made = make_gang_order_policy("headroom", {"share": 0.25})
    assert isinstance(made, HeadroomOrder)
    assert made.args.share == 0.25


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("headroom", {"share": 2}, "policy headroom: args.share: expected less than 1, found 2"),
        ("headroom", {"shares": 1}, "policy headroom: args.shares: unknown field; did you mean share?"),
        ("fcfs", {"share": 1}, "policy fcfs: args: the policy takes no such arguments: share"),
    ],
)
def test_wrong_argument_names_the_policy_and_the_field(name, arguments, message):
    with pytest.raises(InvalidInput) as caught:
        make_gang_order_policy(name, arguments)
    assert str(caught.value) == message


def test_misspelt_argument_of_an_external_policy_is_refused_although_its_model_ignores_unknown_fields():
    class Arguments(BaseModel):
        limit: int = 1

    class External:
        Args = Arguments

        def __init__(self, args):
            self.args = args

    assert construct_policy(External, "external", {"limit": 2}).args.limit == 2
    message = "policy external: args.limt: unknown field; did you mean limit?"
    with pytest.raises(InvalidInput, match=re.escape(message)):
        construct_policy(External, "external", {"limt": 2})


def test_arrival_decides_between_equal_keys():
    class Indifferent:
        name: ClassVar[str] = "indifferent"

        def key(self, gangs, now):
            return np.zeros(len(gangs.arrival))

    assert gang_indexes_in_order(
        Indifferent(), columns({"arrival": 2}, {"arrival": 0}, {"arrival": 1}), 0
    ).tolist() == [
        1,
        2,
        0,
    ]


NOW = 20 * DAY


def runtime(one) -> float:
    return 3600.0 if math.isnan(one["estimate"]) else max(one["estimate"], 1.0)


FORMULAS = [
    (FcfsOrder(), lambda one: one["created"]),
    (SjfOrder(), runtime),
    (SafOrder(), lambda one: runtime(one) * one["share"]),
    (Wfp3Order(), lambda one: -(((NOW - one["created"]) / runtime(one)) ** 3) * one["share"]),
    (
        F1Order(),
        lambda one: math.log10(runtime(one)) * one["size"] + 870 * math.log10(max(one["created"], 1.0)),
    ),
]


@pytest.mark.parametrize("policy, formula", FORMULAS, ids=lambda one: getattr(one, "name", ""))
@given(gangs=GANGS)
def test_key_equals_the_formula_of_the_policy(policy, formula, gangs):
    keys = policy.key(columns(*gangs), NOW)
    assert keys.tolist() == pytest.approx([formula(one) for one in gangs], rel=1e-12)


@given(gangs=GANGS)
def test_priority_orders_by_priority_then_creation_then_arrival(gangs):
    for at, one in enumerate(gangs):
        one["arrival"] = at
    places = gang_indexes_in_order(PriorityOrder(), columns(*gangs), NOW).tolist()
    assert places == sorted(
        range(len(gangs)), key=lambda at: (-gangs[at]["priority"], gangs[at]["created"], at)
    )


def test_large_priorities_that_differ_by_one_are_distinguished():
    gangs = [{"priority": 2_000_000_000, "created": 5.0}, {"priority": 2_000_000_001, "created": 9.0}]
    assert gang_indexes_in_order(PriorityOrder(), columns(*gangs), NOW).tolist() == [1, 0]


def test_gang_without_an_estimate_counts_as_one_of_an_hour():
    assert DEFAULT_RUNTIME_SECONDS == 3600.0
    gangs = [{}, {"estimate": 3599.0}, {"estimate": 3601.0}]
    assert gang_indexes_in_order(SjfOrder(), columns(*gangs), NOW).tolist() == [1, 0, 2]


def test_estimate_of_zero_counts_as_one_second():
    keys = Wfp3Order().key(columns({"estimate": 0.0}), 10.0)
    assert keys.tolist() == [pytest.approx(-100.0)]


@pytest.mark.parametrize("policy", [one for one, _ in FORMULAS] + [PriorityOrder()], ids=lambda one: one.name)
def test_equal_gangs_keep_the_order_of_arrival(policy):
    gangs = [{"arrival": 7}, {"arrival": 3}, {"arrival": 5}]
    assert gang_indexes_in_order(policy, columns(*gangs), NOW).tolist() == [1, 2, 0]


@pytest.mark.parametrize("policy", [one for one, _ in FORMULAS] + [PriorityOrder()], ids=lambda one: one.name)
def test_order_of_no_gangs_is_empty(policy):
    assert gang_indexes_in_order(policy, columns(), NOW).tolist() == []


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
def test_headroom_keys_and_room_follow_their_definition(gangs, args):
    for at, one in enumerate(gangs):
        one["arrival"] = at
    made, expected = columns(*gangs), [reference(one, args) for one in gangs]
    policy = HeadroomOrder(args)
    assert policy.required_free_share(made, NOW).tolist() == pytest.approx(
        [room for _, _, room in expected], abs=1e-12
    )
    keys = policy.key(made, NOW).tolist()
    for at, (aged, key, _) in enumerate(expected):
        assert (keys[at] < 0) == aged
        if not aged:
            assert keys[at] == pytest.approx(key, rel=1e-12)
    front = [at for at in gang_indexes_in_order(policy, made, NOW).tolist() if expected[at][0]]
    assert front == [at for at, (aged, _, _) in enumerate(expected) if aged]
    assert gang_indexes_in_order(policy, made, NOW).tolist()[: len(front)] == front


def test_headroom_without_ageing_share_and_age_limit_orders_by_smallest_area():
    policy = HeadroomOrder(HeadroomArgs(ageing=0, share=0, age_limit_seconds=1e9))
    gangs = columns({"estimate": 50.0, "share": 0.5}, {"estimate": 100.0, "share": 0.1})
    assert policy.key(gangs, NOW).tolist() == pytest.approx([25.0, 10.0])
    assert policy.required_free_share(gangs, NOW).tolist() == [0.0, 0.0]


def test_headroom_shrinks_to_zero_when_the_slowdown_exceeds_patience_by_one():
    policy = HeadroomOrder()
    run = 7200.0
    gangs = columns(*({"estimate": run, "created": NOW - wait * run} for wait in (0, 5, 10, 11)))
    assert policy.required_free_share(gangs, NOW).tolist() == pytest.approx([0.125, 0.0625, 0.0, 0.0])


def test_gangs_of_up_to_one_hour_need_no_headroom():
    gangs = columns({"estimate": 3600.0, "created": NOW}, {"estimate": 3601.0, "created": NOW})
    assert HeadroomOrder().required_free_share(gangs, NOW).tolist() == pytest.approx([0.0, 0.125])


def test_headroom_policy_has_the_configured_horizon():
    policy = HeadroomOrder(HeadroomArgs(horizon_seconds=60))
    assert isinstance(policy, HeadroomPolicy)
    assert policy.horizon_seconds == 60


@pytest.mark.parametrize("wrong", [{"share": 1.0}, {"share": -0.1}, {"patience": 0}, {"age": 3}])
def test_invalid_arguments_are_refused(wrong):
    with pytest.raises(ValidationError):
        HeadroomArgs.model_validate(wrong)


def test_auto_orders_gangs_as_its_first_candidate_until_another_one_is_chosen():
    auto = make_gang_order_policy("auto", {"candidates": [{"name": "fcfs"}, {"name": "headroom"}]})
    gangs = columns({"created": 1.0, "estimate": 9000.0}, {"created": 2.0, "estimate": 60.0})
    assert isinstance(auto, AutoOrder)
    assert auto.key(gangs, 10.0).tolist() == FcfsOrder().key(gangs, 10.0).tolist()
    assert auto.required_free_share(gangs, 10.0).tolist() == [0.0, 0.0]
    assert auto.use_candidate("headroom").name == "headroom"
    assert auto.key(gangs, 10.0).tolist() == HeadroomOrder().key(gangs, 10.0).tolist()
    assert (
        auto.required_free_share(gangs, 10.0).tolist()
        == HeadroomOrder().required_free_share(gangs, 10.0).tolist()
    )
    assert auto.horizon_seconds == HeadroomOrder().horizon_seconds


def test_auto_ignores_the_choice_of_a_policy_that_is_no_candidate():
    auto = AutoOrder()
    assert auto.use_candidate("lottery").name_with_arguments == "headroom"


def test_auto_is_no_candidate_of_itself():
    with pytest.raises(InvalidInput, match="expected another gang order than auto"):
        make_gang_order_policy("auto", {"candidates": [{"name": "auto"}]})


def test_a_candidate_is_named_by_its_arguments_and_its_backfill():
    auto = make_gang_order_policy(
        "auto", {"candidates": [{"name": "headroom", "args": {"share": 0.25}, "backfill": "none"}]}
    )
    assert isinstance(auto, AutoOrder)
    assert auto.use_candidate("").name_with_arguments == "headroom:share=0.25 (backfill none)"

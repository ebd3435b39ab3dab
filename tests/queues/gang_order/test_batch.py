"""The orderings of batch systems, each against its formula in plain Python."""

import math

import pytest
from hypothesis import given

from batchsched.queues.gang_order.batch import DEFAULT_RUNTIME_SECONDS, F1, Fcfs, Priority, Saf, Sjf, Wfp3
from batchsched.queues.gang_order.policy import order
from tests.queues.columns import DAY, GANGS, columns

NOW = 20 * DAY


def runtime(one) -> float:
    return 3600.0 if math.isnan(one["estimate"]) else max(one["estimate"], 1.0)


FORMULAS = [
    (Fcfs(), lambda one: one["created"]),
    (Sjf(), runtime),
    (Saf(), lambda one: runtime(one) * one["share"]),
    (Wfp3(), lambda one: -(((NOW - one["created"]) / runtime(one)) ** 3) * one["share"]),
    (
        F1(),
        lambda one: math.log10(runtime(one)) * one["size"] + 870 * math.log10(max(one["created"], 1.0)),
    ),
]


@pytest.mark.parametrize("policy, formula", FORMULAS, ids=lambda one: getattr(one, "name", ""))
@given(gangs=GANGS)
def test_key_is_the_formula(policy, formula, gangs):
    keys = policy.key(columns(*gangs), NOW)
    assert keys.tolist() == pytest.approx([formula(one) for one in gangs], rel=1e-12)


@given(gangs=GANGS)
def test_priority_orders_by_priority_then_creation_then_arrival(gangs):
    for at, one in enumerate(gangs):
        one["arrival"] = at
    places = order(Priority(), columns(*gangs), NOW).tolist()
    assert places == sorted(
        range(len(gangs)), key=lambda at: (-gangs[at]["priority"], gangs[at]["created"], at)
    )


def test_priorities_near_each_other_far_from_zero_are_told_apart():
    gangs = [{"priority": 2_000_000_000, "created": 5.0}, {"priority": 2_000_000_001, "created": 9.0}]
    assert order(Priority(), columns(*gangs), NOW).tolist() == [1, 0]


def test_gang_without_an_estimate_counts_as_one_of_an_hour():
    assert DEFAULT_RUNTIME_SECONDS == 3600.0
    gangs = [{}, {"estimate": 3599.0}, {"estimate": 3601.0}]
    assert order(Sjf(), columns(*gangs), NOW).tolist() == [1, 0, 2]


def test_estimate_of_zero_divides_nothing_by_zero():
    keys = Wfp3().key(columns({"estimate": 0.0}), 10.0)
    assert keys.tolist() == [pytest.approx(-100.0)]


@pytest.mark.parametrize("policy", [one for one, _ in FORMULAS] + [Priority()], ids=lambda one: one.name)
def test_equal_gangs_keep_the_order_of_arrival(policy):
    gangs = [{"arrival": 7}, {"arrival": 3}, {"arrival": 5}]
    assert order(policy, columns(*gangs), NOW).tolist() == [1, 2, 0]


@pytest.mark.parametrize("policy", [one for one, _ in FORMULAS] + [Priority()], ids=lambda one: one.name)
def test_nobody_waiting_is_no_order(policy):
    assert order(policy, columns(), NOW).tolist() == []

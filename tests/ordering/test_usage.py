"""Decayed usage, against its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.ordering.usage import decayed, kept

WEEK = 7 * 86400.0


def test_after_one_half_life_of_rest_half_is_left():
    assert decayed({"a": {"cpu": 8.0}}, {}, WEEK, WEEK) == {"a": {"cpu": 4.0}}


def test_queue_that_always_uses_the_same_has_used_that():
    usage: dict[str, dict[str, float]] = {}
    for _ in range(400):
        usage = decayed(usage, {"a": {"cpu": 1000}}, WEEK / 10, WEEK)
    assert usage["a"]["cpu"] == pytest.approx(1000)


@given(
    past=st.floats(0, 1e6),
    now=st.integers(0, 10**6),
    first=st.floats(0, 1e6),
    second=st.floats(0, 1e6),
)
def test_two_samples_of_one_usage_come_to_the_same_as_one(past, now, first, second):
    once = decayed({"a": {"cpu": past}}, {"a": {"cpu": now}}, first + second, 3600.0)
    twice = decayed({"a": {"cpu": past}}, {"a": {"cpu": now}}, first, 3600.0)
    twice = decayed(twice, {"a": {"cpu": now}}, second, 3600.0)
    found = [one.get("a", {}).get("cpu", 0.0) for one in (once, twice)]
    assert found[0] == pytest.approx(found[1], rel=1e-9, abs=1e-5)


def test_no_time_changes_nothing_and_no_half_life_remembers_nothing():
    assert decayed({"a": {"cpu": 3.0}}, {"a": {"cpu": 9}}, 0.0, WEEK) == {"a": {"cpu": 3.0}}
    assert decayed({"a": {"cpu": 3.0}}, {"a": {"cpu": 9}}, 1.0, 0.0) == {"a": {"cpu": 9.0}}
    assert kept(-5.0, WEEK) == 1.0


def test_what_is_next_to_nothing_is_forgotten():
    assert decayed({"a": {"cpu": 1.0}, "b": {"cpu": 1e9}}, {}, 30 * 3600.0, 3600.0).keys() == {"b"}

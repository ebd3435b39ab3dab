"""Decayed usage, against its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.queues.usage_history import (
    MAX_UNOBSERVED_SECONDS,
    UsageHistory,
    decay_factor,
    decay_usage,
    past_usage_by_queue,
    past_usage_entries,
)

WEEK = 7 * 86400.0


def test_usage_of_an_idle_queue_halves_in_one_half_life():
    assert decay_usage({"a": {"cpu": 8.0}}, {}, WEEK, WEEK) == {"a": {"cpu": 4.0}}


def test_decayed_usage_converges_to_a_constant_usage():
    usage: dict[str, dict[str, float]] = {}
    for _ in range(400):
        usage = decay_usage(usage, {"a": {"cpu": 1000}}, WEEK / 10, WEEK)
    assert usage["a"]["cpu"] == pytest.approx(1000)


@given(
    past=st.floats(0, 1e6),
    now=st.integers(0, 10**6),
    first=st.floats(0, 1e6),
    second=st.floats(0, 1e6),
)
def test_two_samples_of_equal_usage_equal_one_longer_sample(past, now, first, second):
    once = decay_usage({"a": {"cpu": past}}, {"a": {"cpu": now}}, first + second, 3600.0)
    twice = decay_usage({"a": {"cpu": past}}, {"a": {"cpu": now}}, first, 3600.0)
    twice = decay_usage(twice, {"a": {"cpu": now}}, second, 3600.0)
    found = [one.get("a", {}).get("cpu", 0.0) for one in (once, twice)]
    assert found[0] == pytest.approx(found[1], rel=1e-9, abs=1e-5)


def test_zero_seconds_change_nothing_and_a_zero_half_life_keeps_no_past_usage():
    assert decay_usage({"a": {"cpu": 3.0}}, {"a": {"cpu": 9}}, 0.0, WEEK) == {"a": {"cpu": 3.0}}
    assert decay_usage({"a": {"cpu": 3.0}}, {"a": {"cpu": 9}}, 1.0, 0.0) == {"a": {"cpu": 9.0}}
    assert decay_factor(-5.0, WEEK) == 1.0


def test_negligible_usage_is_dropped():
    assert decay_usage({"a": {"cpu": 1.0}, "b": {"cpu": 1e9}}, {}, 30 * 3600.0, 3600.0).keys() == {"b"}


def test_usage_held_between_sessions_is_counted():
    past = UsageHistory({}, 3600.0)
    assert past.advance(0.0, {}) == {}
    past.set_current_usage({"a": {"cpu": 1000}})
    assert past.advance(3600.0, {"a": {"cpu": 1000}})["a"]["cpu"] == pytest.approx(500)
    assert past.advance(3600.0, {})["a"]["cpu"] == pytest.approx(500)


def test_usage_that_has_ended_counts_for_at_most_the_maximum_unobserved_time():
    past = UsageHistory({}, 3600.0)
    past.advance(0.0, {})
    past.set_current_usage({"a": {"cpu": 1000}})
    late = past.advance(30 * 86400.0, {})
    assert late == {}
    past = UsageHistory({}, 3600.0)
    past.advance(0.0, {})
    past.set_current_usage({"a": {"cpu": 1000}})
    soon = past.advance(MAX_UNOBSERVED_SECONDS, {})["a"]["cpu"]
    assert soon == pytest.approx(1000 * (1 - 0.5 ** (MAX_UNOBSERVED_SECONDS / 3600)))


def test_history_continues_from_the_given_usage_and_ignores_time_that_goes_back():
    past = UsageHistory({"a": {"cpu": 8.0}}, 3600.0)
    assert past.advance(5000.0, {})["a"]["cpu"] == 8.0
    assert past.advance(4000.0, {})["a"]["cpu"] == 8.0
    assert past.advance(5000.0 + 3600.0, {})["a"]["cpu"] == pytest.approx(4.0)


def test_usage_is_converted_to_snapshot_entries_and_back():
    usage = {"b": {"cpu": 1.5}, "a": {"memory": 2.0, "cpu": 1.0}}
    assert [(one.queue, one.resource) for one in past_usage_entries(usage)] == [
        ("a", "cpu"),
        ("a", "memory"),
        ("b", "cpu"),
    ]
    assert past_usage_by_queue(past_usage_entries(usage)) == usage


def test_copied_history_continues_with_another_half_life():
    past = UsageHistory({"a": {"cpu": 8.0}}, 3600.0)
    past.advance(0.0, {})
    past.set_current_usage({"b": {"cpu": 100}})
    other = past.with_half_life(7200.0)
    assert other.advance(7200.0, {"b": {"cpu": 100}}) == {
        "a": {"cpu": pytest.approx(4.0)},
        "b": {"cpu": pytest.approx(50.0)},
    }
    assert past.usage == {"a": {"cpu": 8.0}}

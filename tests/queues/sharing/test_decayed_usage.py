"""Decayed usage: the past decides who is next, and how the surplus is divided."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.queues.entitlements import entitlements, siblings_of
from batchsched.queues.sharing.decayed_usage import DecayedUsage, DecayedUsageArgs
from batchsched.queues.usage_history import decayed
from tests.queues.sharing.trees import cluster, divided, queue, shares_of, trees


def test_default_penalty_is_that_of_five_minutes_and_seven_days():
    assert DecayedUsageArgs().penalty == pytest.approx(1 - 0.5 ** (300 / (7 * 86400)), rel=1e-3)


def test_score_is_used_and_penalty_over_capacity_and_weight():
    # KEP-4136: sum over resources of w_r (U_r + penalty_r), over the weight; here over the capacity first.
    queues = (queue("a", weight=2), queue("b"))
    shares = shares_of(
        queues,
        cluster(cpu=10_000, memory=100),
        history={"a": [4000, 20], "b": [2000, 10]},
        usage={"a": [1, 1]},
    )
    siblings = siblings_of(shares, entitlements(shares, [DecayedUsage()] * len(shares)), 0)
    policy = DecayedUsage(DecayedUsageArgs(penalty=0.5))
    keys = policy.key(siblings, np.tile([2000, 40], (3, 1)))
    assert siblings.names == ("a", "b", "default")
    # Of a half of the CPUs and 0.4 of the memory by 2; of b 0.3 and 0.3; the mean of both resources.
    assert keys.tolist() == pytest.approx([0.225, 0.3, 0.15])


def test_queue_that_used_less_gets_more_until_it_has_caught_up():
    queues = (queue("a"), queue("b"))
    waits = {"a": [10], "b": [10]}
    fair = divided(shares_of(queues, cluster(gpu=10), waits=waits, history={"a": [4]}), "decayed-usage")
    assert (fair["a"], fair["b"]) == ([3], [7])
    fair = divided(shares_of(queues, cluster(gpu=10), waits=waits, history={"a": [90]}), "decayed-usage")
    assert (fair["a"], fair["b"]) == ([0], [10])


def test_equal_requests_get_equal_usage_over_time():
    # Two queues want all of 16 GPUs, in gangs of 16: they take turns, and neither gets ahead by more than one.
    queues = (queue("a"), queue("b"))
    history: dict[str, dict[str, float]] = {}
    turns = {"a": 0, "b": 0}
    for _ in range(100):
        past = {name: [amounts["gpu"]] for name, amounts in history.items()}
        shares = shares_of(queues, cluster(gpu=16), waits={"a": [16], "b": [16]}, history=past)
        siblings = siblings_of(shares, entitlements(shares, [DecayedUsage()] * len(shares)), 0)
        keys = DecayedUsage().key(siblings, siblings.demand)
        turn = min("ab", key=lambda name: (keys[siblings.names.index(name)], name))
        turns[turn] += 1
        assert abs(turns["a"] - turns["b"]) <= 2
        history = decayed(history, {turn: {"gpu": 16}}, 3600.0, 86400.0)
    assert turns == {"a": 50, "b": 50}


@given(shares=trees(), pull=st.sampled_from([0.0, 1.0]))
def test_without_a_past_it_divides_as_drf_does(shares, pull):
    if pull:
        shares.history[:] = 0
    assert divided(shares, DecayedUsage(DecayedUsageArgs(pull=pull))) == divided(shares, "drf")

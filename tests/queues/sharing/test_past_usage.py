"""KAI's quota, priority, over-quota and time-aware splits, against its formulas.

Source: KAI-Scheduler, docs/fairness, docs/timeaware and `resource_division`.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.queues.entitlements import build_sibling_queues, compute_entitlements
from batchsched.queues.reclaim_rules import may_reclaim
from batchsched.queues.sharing.past_usage import (
    DecayedUsageArgs,
    DecayedUsageSharing,
    TimeBased,
    TimeBasedArgs,
)
from batchsched.queues.sharing.sibling_queues import ReclaimRequest
from batchsched.queues.usage_history import decay_usage
from tests.queues.sharing.trees import GPU, case, cluster, divided, queue, shares_of, trees


def gpus(amount: int) -> dict[str, str]:
    return {GPU: str(amount)}


def fair(shares, **args) -> dict[str, int]:
    return {name: share[0] for name, share in divided(shares, "time-based", **args).items() if share[0]}


def test_quota_first_then_over_quota_by_weight():
    # docs/fairness: "Quota resources are allocated to all queues ... additional resources are distributed based on the
    # over-quota weight": 16 GPUs, quotas of 4 and 4, weights 1 and 3 divide the other 8.
    queues = (
        queue("a", guarantee=gpus(4), weight=1),
        queue("b", guarantee=gpus(4), weight=3),
    )
    shares = shares_of(queues, cluster(gpu=16), waits={"a": [16], "b": [16]})
    assert fair(shares) == {"a": 6, "b": 10}


def test_over_quota_goes_to_the_higher_priority_first():
    queues = (queue("high", priority=1), queue("low", guarantee=gpus(4)))
    assert fair(shares_of(queues, cluster(gpu=16), waits={"high": [20], "low": [16]})) == {
        "high": 12,
        "low": 4,
    }
    assert fair(shares_of(queues, cluster(gpu=16), waits={"high": [2], "low": [16]})) == {
        "high": 2,
        "low": 14,
    }


def test_surplus_beyond_the_request_of_a_queue_is_divided_among_the_others():
    queues = tuple(queue(name) for name in "abc")
    shares = shares_of(queues, cluster(gpu=16), waits={"a": [2], "b": [16], "c": [16]})
    assert fair(shares) == {"a": 2, "b": 7, "c": 7}


def test_whole_devices_are_rounded_by_the_largest_remainder():
    queues = (queue("a", weight=2), queue("b", weight=1))
    shares = shares_of(queues, cluster(gpu=8), waits={"a": [8], "b": [8]})
    assert fair(shares) == {"a": 5, "b": 3}


@pytest.mark.parametrize("k, expected", [(0.0, (8, 8)), (0.5, (6, 10)), (1.0, (5, 11))], ids=str)
def test_over_quota_weight_shrinks_with_normalised_usage(k, expected):
    # P = max(0, W + k (W - U)); 16 GPUs, equal weights; a used 8 of 16 lately: P_a = 0.5, P_b = 0.5 + k / 2.
    queues = (queue("a"), queue("b"))
    shares = shares_of(queues, cluster(gpu=16), waits={"a": [16], "b": [16]}, history={"a": [8]})
    assert fair(shares, k=k) == dict(zip("ab", expected, strict=True))


def test_usage_of_24_of_100_gpu_hours_is_normalised_to_0_24():
    # docs/timeaware: 10 GPUs over 10 hours, 24 GPU hours used: a mean of 2.4 GPUs, normalised 0.24.
    queues = (queue("a"), queue("b"))
    shares = shares_of(queues, cluster(gpu=1000), waits={"a": [1000], "b": [1000]}, history={"a": [240]})
    # P_a = 0.5 + 1 · (0.5 - 0.24) = 0.76, P_b = 1: 432 and 568 of 1000.
    assert fair(shares, k=1.0) == {"a": 432, "b": 568}


def test_two_queues_that_request_the_whole_cluster_take_turns():
    # Story 1 of the design: without past usage each queue is entitled to half, so neither may start a job of 16.
    queues = (queue("a"), queue("b"))
    for a_used, turn in ((16.0, "b"), (0.0, "a")):
        history = {"a": [a_used], "b": [16.0 - a_used]}
        shares = shares_of(queues, cluster(gpu=16), waits={"a": [16], "b": [16]}, history=history)
        assert fair(shares, k=1.0) == {turn: 16}


def test_queue_reclaims_up_to_its_fair_share_from_queues_above_theirs():
    queues = (queue("a", guarantee=gpus(4)), queue("b", guarantee=gpus(4)))
    shares = shares_of(queues, cluster(gpu=16), {"a": [4], "b": [12]}, {"a": [8], "b": [4]})
    found = case(shares, TimeBased())
    a, b = shares.own_gangs_row("a"), shares.own_gangs_row("b")

    def allowed(gains: int, loses: int, multiplier: float = 1.0) -> bool:
        policy = TimeBased(TimeBasedArgs(utilization_multiplier=multiplier))
        wish = ReclaimRequest(a, b, np.array([gains]), np.array([loses]))
        return may_reclaim(shares, found.entitled, [policy] * len(shares), wish)

    assert allowed(4, 4)  # 8 of 8 is less saturated than 12 of 8
    assert not allowed(5, 5)
    assert not allowed(4, 9)  # no reclaim pushes b below its quota
    assert not allowed(4, 4, multiplier=1.5)


def test_order_is_fair_share_then_quota_then_priority_then_saturation():
    queues = (
        queue("over", guarantee=gpus(1)),
        queue("quota", guarantee=gpus(6)),
        queue("urgent", priority=5),
        queue("low"),
    )
    used = {"over": [9], "quota": [2], "urgent": [1], "low": [1]}
    waits = {"over": [4], "quota": [4], "urgent": [2], "low": [4]}
    shares = shares_of(queues, cluster(gpu=20), used, waits)
    siblings = build_sibling_queues(shares, compute_entitlements(shares, [TimeBased()] * len(shares)), 0)
    keys = TimeBased().key(siblings, np.full_like(siblings.usage, 1))
    order = [
        siblings.names[at] for at in np.lexsort(keys.T[::-1]).tolist() if siblings.names[at] != "default"
    ]
    assert order == ["quota", "urgent", "low", "over"]


def test_default_penalty_is_that_of_five_minutes_and_seven_days():
    assert DecayedUsageArgs().penalty == pytest.approx(1 - 0.5 ** (300 / (7 * 86400)), rel=1e-3)


def test_score_is_usage_plus_penalty_divided_by_capacity_and_weight():
    # KEP-4136: sum over resources of w_r (U_r + penalty_r), over the weight; here over the capacity first.
    queues = (queue("a", weight=2), queue("b"))
    shares = shares_of(
        queues,
        cluster(cpu=10_000, memory=100),
        history={"a": [4000, 20], "b": [2000, 10]},
        usage={"a": [1, 1]},
    )
    siblings = build_sibling_queues(
        shares, compute_entitlements(shares, [DecayedUsageSharing()] * len(shares)), 0
    )
    policy = DecayedUsageSharing(DecayedUsageArgs(penalty=0.5))
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
        siblings = build_sibling_queues(
            shares, compute_entitlements(shares, [DecayedUsageSharing()] * len(shares)), 0
        )
        keys = DecayedUsageSharing().key(siblings, siblings.surplus_demand)
        turn = min("ab", key=lambda name: (keys[siblings.names.index(name)], name))
        turns[turn] += 1
        assert abs(turns["a"] - turns["b"]) <= 2
        history = decay_usage(history, {turn: {"gpu": 16}}, 3600.0, 86400.0)
    assert turns == {"a": 50, "b": 50}


@given(shares=trees(), pull=st.sampled_from([0.0, 1.0]))
def test_decayed_usage_without_pull_or_history_divides_as_drf(shares, pull):
    if pull:
        shares.history[:] = 0
    assert divided(shares, DecayedUsageSharing(DecayedUsageArgs(pull=pull))) == divided(shares, "drf")

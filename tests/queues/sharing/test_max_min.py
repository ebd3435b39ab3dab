"""Weighted max-min fairness, against its definition."""

import numpy as np
from hypothesis import given

from batchsched.queues.entitlements import build_sibling_queues, compute_entitlements
from batchsched.queues.reclaim_rules import may_reclaim
from batchsched.queues.sharing.max_min import GuaranteedRatio, MaxMin
from batchsched.queues.sharing.sibling_queues import ReclaimRequest
from tests.queues.sharing.trees import case, cluster, divided, queue, shares_of, trees


def test_each_resource_is_divided_separately():
    queues = (queue("a", weight=3), queue("b"))
    shares = shares_of(queues, cluster(cpu=8000, gpu=8), waits={"a": [8000, 2], "b": [8000, 8]})
    assert divided(shares, "max-min") == {"a": [6000, 2], "b": [2000, 6], "default": [0, 0]}


@given(shares=trees())
def test_no_queue_has_more_per_weight_than_an_unsatisfied_one(shares):
    found = case(shares, MaxMin())
    for parent in found.parents():
        siblings = found.siblings(parent)
        given = siblings.fair - siblings.floor
        weighty = siblings.weight > 0
        for resource in range(given.shape[1]):
            unsated = weighty & (siblings.fair[:, resource] < siblings.ceiling[:, resource])
            level = np.divide(given[:, resource], siblings.weight, out=np.zeros(len(siblings)), where=weighty)
            slack = np.divide(1.0, siblings.weight, out=np.zeros(len(siblings)), where=weighty)
            if unsated.any():
                assert (
                    level[weighty] <= level[unsated].min() + 2 * slack[weighty].max() + 1e-6 * level.max()
                ).all()


def keys(shares) -> dict[str, float]:
    siblings = build_sibling_queues(
        shares, compute_entitlements(shares, [GuaranteedRatio()] * len(shares)), 0
    )
    found = GuaranteedRatio().key(siblings, np.zeros_like(siblings.usage))
    return dict(zip(siblings.names, found.tolist(), strict=True))


def test_ratio_without_guarantees_is_that_of_the_cluster():
    # YUNIKORN-2678: 10 CPUs and 100 GB; A uses 2 and 10, B 3 and 30: 0.2 is before 0.3.
    shares = shares_of(
        (queue("a"), queue("b")), cluster(cpu=10_000, memory=100), {"a": [2000, 10], "b": [3000, 30]}
    )
    assert keys(shares) == {"a": 0.2, "b": 0.3, "default": 0.0}


def test_ratio_with_guarantees_is_that_of_the_guarantee():
    queues = (queue("a", guarantee={"cpu": "2"}), queue("b", guarantee={"cpu": "6"}))
    shares = shares_of(queues, cluster(cpu=10_000, memory=100), {"a": [2000, 10], "b": [3000, 30]})
    assert keys(shares) == {"a": 1.0, "b": 0.5, "default": 0.0}


def test_ratio_with_a_limit_and_no_guarantee_is_that_of_the_limit():
    shares = shares_of((queue("a", limit={"cpu": "4"}),), cluster(cpu=10_000), {"a": [2000]})
    assert keys(shares)["a"] == 0.5


def test_four_tiers_share_in_the_ratio_of_their_guarantees():
    # YUNIKORN-2678: guarantees of 46,666, 23,333, 14,000 and 9,333 mCPU, each with more work than that.
    amounts = {"tier0": 46_666, "tier1": 23_333, "tier2": 14_000, "tier3": 9333}
    queues = [queue(name, guarantee={"cpu": f"{amount}m"}) for name, amount in amounts.items()]
    total = sum(amounts.values())
    waits = {name: [100_000] for name in amounts}
    exact = divided(shares_of(queues, cluster(cpu=total), waits=waits), "guaranteed-ratio")
    assert {name: exact[name][0] for name in amounts} == amounts
    twice = divided(shares_of(queues, cluster(cpu=2 * total), waits=waits), "guaranteed-ratio")
    assert {name: twice[name][0] for name in amounts} == {
        name: 2 * amount for name, amount in amounts.items()
    }


def test_only_a_queue_under_its_guarantee_preempts_and_only_from_one_over_its_own():
    queues = (queue("a", guarantee={"cpu": "4"}), queue("b", guarantee={"cpu": "4"}), queue("c"))
    shares = shares_of(queues, cluster(cpu=10_000), {"a": [2000], "b": [6000], "c": [2000]}, {"a": [5000]})
    found = case(shares, GuaranteedRatio())
    a, b = shares.own_gangs_row("a"), shares.own_gangs_row("b")

    def allowed(gains: int, victim: int) -> bool:
        wish = ReclaimRequest(a, victim, np.array([gains]), np.array([1000]))
        return may_reclaim(shares, found.entitled, found.policies, wish)

    assert allowed(2000, b)
    assert not allowed(3000, b)
    assert not may_reclaim(
        shares, found.entitled, found.policies, ReclaimRequest(b, a, np.array([1000]), np.array([1000]))
    )

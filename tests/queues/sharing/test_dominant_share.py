"""Kueue's fair sharing, against the cases that Kueue documents and tests: quotas of 3 CPUs each in one cohort.

Source: Kueue, `TestDominantResourceShare` and `TestFairPreemptions`, and the rules of KEP-1714.
"""

import numpy as np
import pytest

from batchsched.queues.entitlements import build_sibling_queues, compute_entitlements
from batchsched.queues.reclaim_rules import may_reclaim, may_reclaim_all
from batchsched.queues.sharing.dominant_share import DominantResourceShare, DominantResourceShareArgs
from batchsched.queues.sharing.dominant_share import dominant_resource_shares_of_borrowed as drs
from batchsched.queues.sharing.sibling_queues import ReclaimRequest
from tests.queues.sharing.trees import case, cluster, queue, shares_of

FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"


def cohort(**usage: float):
    """Queues a, b and c with 3 CPUs each, `idle` with none, and what they use, in CPUs."""
    queues = [queue(name, guarantee={"cpu": "3"}) for name in "abc"]
    held = {name: [int(cpus * 1000)] for name, cpus in usage.items()}
    return shares_of([*queues, queue("idle")], cluster(cpu=9000), held, {name: [9000] for name in "abc"})


def allowed(shares, reclaimer: str, wants: float, victim: str, holds: float, *strategies: str) -> bool:
    policy = DominantResourceShare(
        DominantResourceShareArgs.model_validate({"strategies": strategies or (FINAL, INITIAL)})
    )
    found = case(shares, policy)
    wish = ReclaimRequest(
        shares.own_gangs_row(reclaimer),
        shares.own_gangs_row(victim),
        np.array([int(wants * 1000)]),
        np.array([int(holds * 1000)]),
    )
    return may_reclaim(shares, found.entitled, found.policies, wish)


def two_queues(usage, mine, theirs, weight=1.0):
    """Kueue's pair: `cq` with a usage, and `lending-cq`, which uses nothing; (CPUs, GPUs) of quota."""
    cpu, gpu = mine[0] + theirs[0], mine[1] + theirs[1]
    resources = cluster(cpu=cpu * 1000, gpu=gpu)
    queues = [
        queue("cq", weight=weight, guarantee={"cpu": str(mine[0]), "nvidia.com/gpu": str(mine[1])}),
        queue("lending-cq", guarantee={"cpu": str(theirs[0]), "nvidia.com/gpu": str(theirs[1])}),
    ]
    shares = shares_of(queues, resources, {"cq": [usage[0] * 1000, usage[1]]})
    siblings = build_sibling_queues(
        shares, compute_entitlements(shares, [DominantResourceShare()] * len(shares)), 0
    )
    return drs(siblings, siblings.usage)[siblings.names.index("cq")]


@pytest.mark.parametrize(
    "usage, own, other, weight, expected",
    [
        ((1, 2), (2, 5), (8, 5), 1.0, 0),  # usage below nominal
        ((3, 7), (2, 5), (8, 5), 1.0, 200),  # (7 - 5) · 1000 / 10
        ((3, 3), (2, 5), (8, 5), 1.0, 100),  # (3 - 2) · 1000 / 10
        ((5, 6), (2, 5), (8, 5), 1.0, 300),  # (1 + 4 - 2) · 1000 / 10
        ((0, 7), (0, 5), (0, 5), 2.0, 100),  # ((7 - 5) · 1000 / 10) / 2
        ((0, 800), (0, 500), (0, 1000), 300.0, 200 / 300),  # Kueue shows 1: it rounds up
        ((0, 3), (0, 2), (0, 64), 0.0, float("inf")),  # weight 0, borrowing
    ],
)
def test_dominant_share_equals_that_of_kueue(usage, own, other, weight, expected):
    assert two_queues(usage, own, other, weight) == pytest.approx(expected)


def test_resource_that_no_queue_lends_is_ignored():
    # "A resource with zero lendable": 4 + 1 CPUs of 2, 4 + 1 GPUs of 2, and no GPU can be lent: 300 by the CPUs.
    queues = [
        queue("cq", guarantee={"cpu": "2", "nvidia.com/gpu": "2"}, lendingLimit={"nvidia.com/gpu": "0"}),
        queue("other", guarantee={"cpu": "8", "nvidia.com/gpu": "64"}, lendingLimit={"nvidia.com/gpu": "0"}),
    ]
    shares = shares_of(queues, cluster(cpu=10_000, gpu=66), {"cq": [5000, 5]})
    siblings = build_sibling_queues(
        shares, compute_entitlements(shares, [DominantResourceShare()] * len(shares)), 0
    )
    assert siblings.lendable.tolist() == [10_000, 0]
    assert drs(siblings, siblings.usage)[siblings.names.index("cq")] == pytest.approx(300)


def test_nominal_quota_is_reclaimed_from_the_user_that_borrows_and_from_no_other():
    # "reclaim nominal from user using the most": a 3, b 5, c 1, one more of c.
    shares = cohort(a=3, b=5, c=1)
    assert allowed(shares, "c", 1, "b", 1)
    assert not allowed(shares, "c", 1, "a", 1)


def test_borrowable_quota_is_reclaimed_from_the_user_that_borrows_most():
    # "reclaim borrowable quota from user using the most": a 3, b 5, c 1, one more of a.
    assert allowed(cohort(a=3, b=5, c=1), "a", 1, "b", 1)


def test_no_gang_is_preempted_when_every_queue_is_below_nominal():
    # "can't preempt when everyone under nominal"
    shares = cohort(a=3, b=3, c=3)
    assert not any(allowed(shares, "c", 1, victim, 1) for victim in "ab")


def test_no_gang_is_preempted_when_that_would_reverse_the_imbalance():
    # "can't preempt when it would switch the imbalance": a 3, b 5, two more of a.
    shares = cohort(a=3, b=5)
    found = case(shares, DominantResourceShare())
    a, b, one = shares.own_gangs_row("a"), shares.own_gangs_row("b"), np.array([1000])
    wanted = np.array([2000])
    assert not may_reclaim_all(shares, found.entitled, found.policies, a, wanted, [(b, one)])
    assert not may_reclaim_all(shares, found.entitled, found.policies, a, wanted, [(b, one), (b, one)])


def test_huge_workload_is_preempted_if_nominal_quota_is_available_in_no_other_way():
    # "preempt huge workload if there is no other option": b holds 9 in one workload, 2 of 3 for a.
    assert allowed(cohort(b=9), "a", 2, "b", 9)


def test_huge_workload_is_not_preempted_by_another_huge_workload():
    # "can't preempt huge workload if the incoming is also huge": a 2, b 7 in one, 5 more of a.
    assert not allowed(cohort(a=2, b=7), "a", 5, "b", 7)


def test_workload_that_leaves_its_queue_the_larger_share_is_preempted_first():
    # "prefer to preempt workloads that don't make the target CQ have the biggest share": b 2, 1, 2; c 1; 3.5 for a.
    shares = cohort(b=5, c=1)
    assert allowed(shares, "a", 3.5, "b", 1, FINAL)
    assert not allowed(shares, "a", 3.5, "b", 2, FINAL)
    assert allowed(shares, "a", 3.5, "b", 2, INITIAL)


def test_two_queues_may_lose_one_workload_each_and_do_not_reclaim_it():
    # "preempt from different cluster queues if the end result has a smaller max share", "scenario above does not flap"
    shares = cohort(b=4.5, c=4.5)
    found = case(shares, DominantResourceShare())
    a, b, c = (shares.own_gangs_row(name) for name in "abc")
    assert may_reclaim(
        shares, found.entitled, found.policies, ReclaimRequest(a, b, np.array([3500]), np.array([1500]))
    )
    assert may_reclaim(
        shares, found.entitled, found.policies, ReclaimRequest(a, c, np.array([3500]), np.array([1500]))
    )
    later = cohort(a=3.5, b=2.5, c=2.5)
    assert not allowed(later, "b", 2, "a", 3.5)


def test_queue_that_borrows_does_not_push_another_below_nominal():
    # "cannot preempt if it would make the candidate CQ go under nominal": b 3 + 3, c 3, 4 for a. Kueue lets a single
    # large workload go under LessThanInitialShare ("preempt lower priority first, even if big": a 3, b 5 + 1); we do
    # not: a guarantee is never reclaimed by one that is above its own.
    assert not allowed(cohort(b=6, c=3), "a", 4, "c", 3)
    assert not allowed(cohort(a=3, b=6), "a", 1, "b", 5, INITIAL)


def test_next_queue_has_the_smallest_share_including_the_candidate():
    shares = cohort(a=3, b=2, c=4)
    siblings = build_sibling_queues(
        shares, compute_entitlements(shares, [DominantResourceShare()] * len(shares)), 0
    )
    keys = dict(
        zip(
            siblings.names,
            DominantResourceShare().key(siblings, np.full_like(siblings.usage, 2000)),
            strict=True,
        )
    )
    assert {name: round(keys[name], 1) for name in "abc"} == {"a": 222.2, "b": 111.1, "c": 333.3}


def test_a_demand_of_a_resource_that_no_queue_lends_is_measured_by_its_capacity():
    queues = [queue(name, guarantee={"cpu": "2"}, lendingLimit={"cpu": "0"}) for name in "ab"]
    shares = shares_of(queues, cluster(cpu=4000, gpu=0), {})
    siblings = build_sibling_queues(
        shares, compute_entitlements(shares, [DominantResourceShare()] * len(shares)), 0
    )
    demand = np.zeros_like(siblings.usage)
    demand[:, 0] = 1000
    assert set(DominantResourceShare().demand_sizes(siblings, demand).tolist()) == {0.25}

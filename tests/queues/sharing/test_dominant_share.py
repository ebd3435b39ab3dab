"""Kueue's fair sharing, against the cases that Kueue documents and tests: quotas of 3 CPUs each in one cohort.

Source: Kueue, `TestDominantResourceShare` and `TestFairPreemptions`, and the rules of KEP-1714.
"""

import numpy as np
import pytest

from batchsched.queues.entitlements import entitlements, siblings_of
from batchsched.queues.reclaim_rules import all_permitted, may_reclaim
from batchsched.queues.sharing.dominant_share import DominantShare, DominantShareArgs
from batchsched.queues.sharing.dominant_share import shares_of as drs
from batchsched.queues.sharing.sibling_queues import ReclaimRequest
from tests.queues.sharing.trees import case, cluster, queue, shares_of

FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"


def cohort(**usage: float):
    """Queues a, b and c with 3 CPUs each, `idle` with none, and what they use, in CPUs."""
    queues = [queue(name, guarantee={"cpu": "3"}) for name in "abc"]
    held = {name: [int(cpus * 1000)] for name, cpus in usage.items()}
    return shares_of([*queues, queue("idle")], cluster(cpu=9000), held, {name: [9000] for name in "abc"})


def allowed(shares, reclaimer: str, wants: float, victim: str, holds: float, *strategies: str) -> bool:
    policy = DominantShare(DominantShareArgs.model_validate({"strategies": strategies or (FINAL, INITIAL)}))
    found = case(shares, policy)
    wish = ReclaimRequest(
        shares.own_row(reclaimer),
        shares.own_row(victim),
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
    siblings = siblings_of(shares, entitlements(shares, [DominantShare()] * len(shares)), 0)
    return drs(siblings, siblings.usage)[siblings.names.index("cq")]


@pytest.mark.parametrize(
    "usage, mine, theirs, weight, expected",
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
def test_dominant_share_is_kueues(usage, mine, theirs, weight, expected):
    assert two_queues(usage, mine, theirs, weight) == pytest.approx(expected)


def test_resource_of_which_nobody_lends_anything_is_passed_over():
    # "A resource with zero lendable": 4 + 1 CPUs of 2, 4 + 1 GPUs of 2, and no GPU can be lent: 300 by the CPUs.
    queues = [
        queue("cq", guarantee={"cpu": "2", "nvidia.com/gpu": "2"}, lendingLimit={"nvidia.com/gpu": "0"}),
        queue("other", guarantee={"cpu": "8", "nvidia.com/gpu": "64"}, lendingLimit={"nvidia.com/gpu": "0"}),
    ]
    shares = shares_of(queues, cluster(cpu=10_000, gpu=66), {"cq": [5000, 5]})
    siblings = siblings_of(shares, entitlements(shares, [DominantShare()] * len(shares)), 0)
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


def test_nobody_is_preempted_when_everyone_is_under_nominal():
    # "can't preempt when everyone under nominal"
    shares = cohort(a=3, b=3, c=3)
    assert not any(allowed(shares, "c", 1, victim, 1) for victim in "ab")


def test_nobody_is_preempted_when_it_would_switch_the_imbalance():
    # "can't preempt when it would switch the imbalance": a 3, b 5, two more of a.
    shares = cohort(a=3, b=5)
    found = case(shares, DominantShare())
    a, b, one = shares.own_row("a"), shares.own_row("b"), np.array([1000])
    wanted = np.array([2000])
    assert not all_permitted(shares, found.entitled, found.policies, a, wanted, [(b, one)])
    assert not all_permitted(shares, found.entitled, found.policies, a, wanted, [(b, one), (b, one)])


def test_huge_workload_goes_when_a_nominal_quota_can_be_had_no_other_way():
    # "preempt huge workload if there is no other option": b holds 9 in one workload, a wants 2 of its 3.
    assert allowed(cohort(b=9), "a", 2, "b", 9)


def test_huge_workload_stays_when_the_incoming_one_is_huge_too():
    # "can't preempt huge workload if the incoming is also huge": a 2, b 7 in one, 5 more of a.
    assert not allowed(cohort(a=2, b=7), "a", 5, "b", 7)


def test_workload_that_leaves_its_queue_the_larger_share_is_preempted_first():
    # "prefer to preempt workloads that don't make the target CQ have the biggest share": b 2, 1, 2; c 1; a wants 3.5.
    shares = cohort(b=5, c=1)
    assert allowed(shares, "a", 3.5, "b", 1, FINAL)
    assert not allowed(shares, "a", 3.5, "b", 2, FINAL)
    assert allowed(shares, "a", 3.5, "b", 2, INITIAL)


def test_one_from_each_of_two_queues_when_the_end_has_a_smaller_largest_share_and_it_does_not_flap():
    # "preempt from different cluster queues if the end result has a smaller max share", "scenario above does not flap"
    shares = cohort(b=4.5, c=4.5)
    found = case(shares, DominantShare())
    a, b, c = (shares.own_row(name) for name in "abc")
    assert may_reclaim(
        shares, found.entitled, found.policies, ReclaimRequest(a, b, np.array([3500]), np.array([1500]))
    )
    assert may_reclaim(
        shares, found.entitled, found.policies, ReclaimRequest(a, c, np.array([3500]), np.array([1500]))
    )
    later = cohort(a=3.5, b=2.5, c=2.5)
    assert not allowed(later, "b", 2, "a", 3.5)


def test_victims_queue_is_not_pushed_below_nominal_by_one_that_borrows():
    # "cannot preempt if it would make the candidate CQ go under nominal": b 3 + 3, c 3, a wants 4. Kueue lets a single
    # large workload go under LessThanInitialShare ("preempt lower priority first, even if big": a 3, b 5 + 1); we do
    # not: a guarantee is never reclaimed by one that is above its own.
    assert not allowed(cohort(b=6, c=3), "a", 4, "c", 3)
    assert not allowed(cohort(a=3, b=6), "a", 1, "b", 5, INITIAL)


def test_smallest_share_with_the_candidate_is_next():
    shares = cohort(a=3, b=2, c=4)
    siblings = siblings_of(shares, entitlements(shares, [DominantShare()] * len(shares)), 0)
    keys = dict(
        zip(siblings.names, DominantShare().key(siblings, np.full_like(siblings.usage, 2000)), strict=True)
    )
    assert {name: round(keys[name], 1) for name in "abc"} == {"a": 222.2, "b": 111.1, "c": 333.3}

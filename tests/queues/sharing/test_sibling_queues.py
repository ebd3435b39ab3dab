"""Shares of the cluster: raw units are never compared."""

import numpy as np
import pytest
from hypothesis import given

from batchsched.queues.entitlements import build_sibling_queues
from batchsched.queues.gang_order import POLICIES
from batchsched.queues.sharing.policy import make_sharing_policy, registered_policy_classes
from batchsched.queues.sharing.sibling_queues import (
    capacity_shares,
    dominant_shares,
    dominant_shares_with_unweighed_fallback,
    shares_per_weight,
)
from tests.queues.sharing.trees import case, trees

CAPACITY = np.array([10_000, 2**40, 8, 0])
WEIGHED = np.array([True, True, True, False])


def test_dominant_share_is_the_largest_fraction_of_a_capacity():
    amounts = np.array([[5000, 2**30, 0, 0], [100, 2**38, 0, 0], [0, 0, 8, 0]])
    assert dominant_shares(amounts, CAPACITY, WEIGHED).tolist() == [0.5, 0.25, 1.0]


def test_share_of_a_weighed_resource_without_capacity_is_infinite():
    amounts = np.array([0, 0, 0, 3])
    assert dominant_shares(amounts, CAPACITY, WEIGHED) == 0
    assert dominant_shares(amounts, CAPACITY, np.ones(4, np.bool_)) == np.inf
    assert capacity_shares(np.zeros(4), CAPACITY, np.ones(4, np.bool_)).tolist() == [0, 0, 0, 0]


def test_size_of_a_demand_without_weighed_resources_counts_the_other_resources():
    weighed = np.array([True, True, False, False])
    assert dominant_shares_with_unweighed_fallback(
        np.array([[0, 0, 4, 0], [1000, 0, 8, 0]]), CAPACITY, weighed
    ).tolist() == [
        0.5,
        0.1,
    ]


def test_share_per_weight_of_0_is_infinite_unless_the_share_is_0():
    found = shares_per_weight(np.array([0.0, 0.5, 0.5]), np.array([0.0, 0.0, 2.0]))
    assert found.tolist() == [0.0, np.inf, 0.25]


@pytest.mark.parametrize("name", sorted({*registered_policy_classes(), *POLICIES}))
@given(trees())
def test_key_of_a_sibling_does_not_depend_on_the_other_siblings(name, shares):
    # Turns are taken by it: a sibling's keys are worked out alone, for many of its gangs at once.
    policy = make_sharing_policy(name, {})
    found = case(shares, policy)
    head = np.arange(len(shares), dtype=np.float64)
    for parent in found.parents():
        begin, end = shares.child_row_ranges()[parent].tolist()
        siblings = build_sibling_queues(found.shares, found.entitled, parent, head[begin:end])
        together = policy.key(siblings, siblings.surplus_demand).tolist()
        for at in range(len(siblings)):
            twice = siblings.copies_of_sibling(
                at, np.repeat(siblings.usage[[at]], 2, axis=0), siblings.head[[at, at]]
            )
            alone = policy.key(twice, np.repeat(siblings.surplus_demand[[at]], 2, axis=0)).tolist()
            assert alone == [together[at]] * 2

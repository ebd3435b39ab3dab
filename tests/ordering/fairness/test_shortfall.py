"""Shortfall: who misses most of its fair share is next, and the gangs decide among those that miss alike."""

from dataclasses import replace

import numpy as np
from hypothesis import given

from batchsched.ordering.entitlements import siblings_of
from batchsched.ordering.fairness.drf import Drf
from batchsched.ordering.fairness.registry import make
from batchsched.ordering.fairness.shortfall import Shortfall
from batchsched.ordering.fairness.siblings import Siblings, dominant
from tests.ordering.fairness.trees import Case, case, cluster, queue, shares_of, trees


def keys(policy: Shortfall, found: Case, parent: int = 0) -> tuple[Siblings, list[float]]:
    siblings = siblings_of(found.shares, found.entitled, parent)
    return siblings, policy.key(siblings, np.zeros_like(siblings.usage)).tolist()


def test_who_misses_most_is_next():
    queues = (queue("a"), queue("b"), queue("c"))
    used, waits = {"a": [3], "b": [1], "c": [4]}, {"a": [9], "b": [9], "c": [9]}
    policy = Shortfall()
    siblings, found = keys(policy, case(shares_of(queues, cluster(gpu=12), used, waits), policy))
    # Four each: b misses a quarter of the cluster, a a twelfth, c nothing.
    assert dict(zip(siblings.names, found, strict=True)) == {"a": 0.0, "b": -2.0, "c": 0.0, "default": 0.0}


def test_a_finer_grain_tells_smaller_shortfalls_apart():
    queues = (queue("a"), queue("b"))
    policy = make("shortfall", {"grain": 0.01})
    shares = shares_of(queues, cluster(gpu=10), {"a": [4], "b": [5]}, {"a": [9], "b": [9]})
    assert isinstance(policy, Shortfall)
    siblings, found = keys(policy, case(shares, policy))
    assert dict(zip(siblings.names, found, strict=True)) == {"a": -10.0, "b": 0.0, "default": 0.0}


@given(trees())
def test_it_entitles_as_drf_does(shares):
    assert np.array_equal(case(shares, Shortfall()).entitled.fair, case(shares, Drf()).entitled.fair)


@given(trees())
def test_who_misses_a_grain_more_goes_first_and_nobody_at_its_share_before(shares):
    policy = Shortfall()
    found = case(shares, policy)
    for parent in found.parents():
        siblings, told = keys(policy, found, parent)
        missing = dominant(np.maximum(0, siblings.fair - siblings.usage), siblings.capacity, siblings.weighed)
        for one in range(len(siblings)):
            for other in range(len(siblings)):
                if missing[one] >= missing[other] + policy.args.grain:
                    assert told[one] < told[other] or np.isinf(missing[other])


def test_a_key_does_not_depend_on_who_else_is_there():
    queues = (queue("a"), queue("b"), queue("c", weight=3))
    policy = Shortfall()
    found = case(shares_of(queues, cluster(gpu=20), {"a": [3]}, {"b": [9], "c": [19]}), policy)
    siblings, told = keys(policy, found)
    doubled = replace(siblings, head=siblings.head + 5.0)
    assert policy.key(doubled, siblings.demand).tolist() == told

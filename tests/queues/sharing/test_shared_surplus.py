"""Queues that share one pool."""

from dataclasses import replace

import numpy as np
import pytest

from batchsched.queues.entitlements import entitlements, siblings_of
from batchsched.queues.reclaim_rules import QueueReclaim, may_reclaim
from batchsched.queues.sharing.registry import make_sharing_policy
from tests.queues.sharing.trees import case, cluster, divided, queue, shares_of

POOLS = ["fifo", "strict-fifo", "fcfs", "sjf", "saf", "wfp3", "f1"]


@pytest.mark.parametrize("name", POOLS)
def test_every_sibling_is_entitled_to_the_whole_pool_less_guarantees(name):
    queues = (queue("a", guarantee={"cpu": "2"}), queue("b"), queue("c"))
    shares = shares_of(queues, cluster(cpu=10_000), waits={"a": [9000], "b": [9000], "c": [3000]})
    assert divided(shares, name) == {"a": [9000], "b": [8000], "c": [3000], "default": [0]}


@pytest.mark.parametrize("name", POOLS)
def test_queue_whose_gang_is_first_in_the_order_is_next(name):
    policy = make_sharing_policy(name, {})
    shares = shares_of((queue("a"), queue("b")), cluster(cpu=10_000), {"a": [5000]})
    siblings = siblings_of(shares, entitlements(shares, [policy] * len(shares)), 0)
    siblings = replace(siblings, head=np.array([3.0, 7.0, np.inf]))
    assert policy.key(siblings, siblings.usage).tolist() == [3.0, 7.0, np.inf]


@pytest.mark.parametrize("name", POOLS)
def test_surplus_is_never_reclaimed_and_a_guarantee_is(name):
    queues = (queue("a", guarantee={"cpu": "2"}), queue("b"), queue("c"))
    shares = shares_of(queues, cluster(cpu=10_000), {"b": [10_000]}, {"a": [4000], "c": [1000]})
    found = case(shares, make_sharing_policy(name, {}))
    a, b, c = (shares.home(one) for one in "abc")

    def allowed(reclaimer: int, gains: int) -> bool:
        wish = QueueReclaim(reclaimer, b, np.array([gains]), np.array([5000]))
        return may_reclaim(shares, found.entitled, found.policies, wish)

    assert allowed(a, 2000)
    assert not allowed(a, 3000)
    assert not allowed(c, 1000)


def test_strict_fifo_alone_is_strict_and_orders_are_those_they_are_named_for():
    assert [name for name in POOLS if make_sharing_policy(name, {}).strict] == ["strict-fifo"]
    orders = [made.gangs.name for name in POOLS if (made := make_sharing_policy(name, {})).gangs is not None]
    assert orders == ["fcfs", "fcfs", "fcfs", "sjf", "saf", "wfp3", "f1"]

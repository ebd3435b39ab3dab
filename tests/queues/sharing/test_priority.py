"""Queues by priority."""

import numpy as np

from batchsched.queues.entitlements import entitlements, siblings_of
from batchsched.queues.sharing.priority import PrioritySharing
from tests.queues.sharing.trees import cluster, divided, queue, shares_of


def test_surplus_goes_down_the_priorities_and_guarantees_hold():
    queues = (queue("high", priority=2), queue("low", guarantee={"cpu": "1"}), queue("mid", priority=1))
    shares = shares_of(queues, cluster(cpu=10_000), waits={"high": [6000], "mid": [6000], "low": [6000]})
    fair = divided(shares, "priority")
    assert fair == {"default": [0], "high": [6000], "low": [1000], "mid": [3000]}


def test_equals_share_by_weight():
    queues = (queue("a", weight=2), queue("b"))
    shares = shares_of(queues, cluster(cpu=9000), waits={"a": [9000], "b": [9000]})
    assert divided(shares, "priority")["a"] == [6000]


def test_next_is_the_highest_priority_then_who_borrowed_least():
    queues = (queue("a"), queue("b"), queue("c", priority=1))
    shares = shares_of(queues, cluster(cpu=9000), {"a": [2000], "b": [1000], "c": [5000]})
    siblings = siblings_of(shares, entitlements(shares, [PrioritySharing()] * len(shares)), 0)
    keys = PrioritySharing().key(siblings, np.zeros_like(siblings.usage))
    order = [siblings.names[at] for at in np.lexsort(keys.T[::-1]).tolist()]
    assert order == ["c", "default", "b", "a"]

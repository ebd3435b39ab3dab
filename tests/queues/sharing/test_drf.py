"""Dominant resource fairness: the paper's examples, weights, guarantees."""

import numpy as np

from tests.queues.sharing.trees import cluster, divided, queue, shares_of

# NSDI 2011, section 4.1, figure 1: 9 CPUs and 18 GB; tasks of A want 1 CPU and 4 GB, those of B 3 CPUs and 1 GB.
PAPER = cluster(cpu=9000, memory=18)
A, B = np.array([1000, 4]), np.array([3000, 1])


def tasks(fair: list[int], task: np.ndarray) -> int:
    return int(min(np.array(fair) // task))


def test_papers_example_is_three_tasks_of_a_and_two_of_b():
    # Ghodsi et al., NSDI 2011: "user A gets 3 tasks, user B 2": dominant shares of 2/3 each.
    shares = shares_of((queue("a"), queue("b")), PAPER, waits={"a": 9 * A, "b": 9 * B})
    fair = divided(shares)
    assert (tasks(fair["a"], A), tasks(fair["b"], B)) == (3, 2)
    assert fair["a"] == [3000, 15]
    # The four GB that these tasks leave over are divided again, by dominant share: 3 to A, 1 to B.
    assert fair["b"] == [6000, 3]


def test_papers_order_of_tasks_is_that_of_its_table():
    # NSDI 2011, table 2: B, A, A, B, A are launched in that order; B first only because ties are free there.
    from batchsched.queues.entitlements import entitlements, siblings_of
    from batchsched.queues.sharing.drf import Drf

    usage = {"a": np.zeros(2, np.int64), "b": np.zeros(2, np.int64)}
    launched = ["b"]
    usage["b"] += B
    for _ in range(4):
        shares = shares_of((queue("a"), queue("b")), PAPER, usage, {"a": 9 * A, "b": 9 * B})
        siblings = siblings_of(shares, entitlements(shares, [Drf()] * len(shares)), 0)
        nothing = np.zeros_like(siblings.usage)
        keys = Drf().key(siblings, nothing)
        assert siblings.names == ("a", "b", "default")
        chosen = "ab"[int(np.argmin(keys[:2]))]
        launched.append(chosen)
        usage[chosen] += A if chosen == "a" else B
    assert launched == ["b", "a", "a", "b", "a"]

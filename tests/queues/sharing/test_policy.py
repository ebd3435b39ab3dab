"""Dominant resource fairness: the paper's examples, weights, guarantees."""

from dataclasses import replace

import numpy as np
import pytest

from batchsched.errors import InvalidInput
from batchsched.queues.entitlements import build_sibling_queues, compute_entitlements
from batchsched.queues.gang_order import POLICIES
from batchsched.queues.reclaim_rules import may_reclaim
from batchsched.queues.sharing.dominant_share import DominantResourceShare
from batchsched.queues.sharing.policy import (
    DEFAULT_SHARING_POLICY,
    PrioritySharing,
    make_sharing_policy,
    registered_policy_classes,
)
from batchsched.queues.sharing.sibling_queues import ReclaimRequest
from tests.queues.sharing.trees import case, cluster, divided, queue, shares_of

# NSDI 2011, section 4.1, figure 1: 9 CPUs and 18 GB; tasks of A want 1 CPU and 4 GB, those of B 3 CPUs and 1 GB.
PAPER = cluster(cpu=9000, memory=18)
A, B = np.array([1000, 4]), np.array([3000, 1])


def tasks(fair: list[int], task: np.ndarray) -> int:
    return int(min(np.array(fair) // task))


def test_example_of_the_drf_paper_gives_three_tasks_to_a_and_two_to_b():
    # Ghodsi et al., NSDI 2011: "user A gets 3 tasks, user B 2": dominant shares of 2/3 each.
    shares = shares_of((queue("a"), queue("b")), PAPER, waits={"a": 9 * A, "b": 9 * B})
    fair = divided(shares)
    assert (tasks(fair["a"], A), tasks(fair["b"], B)) == (3, 2)
    assert fair["a"] == [3000, 15]
    # The four GB that these tasks leave over are divided again, by dominant share: 3 to A, 1 to B.
    assert fair["b"] == [6000, 3]


def test_drf_launches_tasks_in_the_order_of_the_table_of_the_paper():
    # NSDI 2011, table 2: B, A, A, B, A are launched in that order; B first only because ties are free there.
    from batchsched.queues.entitlements import build_sibling_queues, compute_entitlements
    from batchsched.queues.sharing.policy import Drf

    usage = {"a": np.zeros(2, np.int64), "b": np.zeros(2, np.int64)}
    launched = ["b"]
    usage["b"] += B
    for _ in range(4):
        shares = shares_of((queue("a"), queue("b")), PAPER, usage, {"a": 9 * A, "b": 9 * B})
        siblings = build_sibling_queues(shares, compute_entitlements(shares, [Drf()] * len(shares)), 0)
        nothing = np.zeros_like(siblings.usage)
        keys = Drf().key(siblings, nothing)
        assert siblings.names == ("a", "b", "default")
        chosen = "ab"[int(np.argmin(keys[:2]))]
        launched.append(chosen)
        usage[chosen] += A if chosen == "a" else B
    assert launched == ["b", "a", "a", "b", "a"]


def test_surplus_is_given_by_priority_after_the_guarantees():
    queues = (queue("high", priority=2), queue("low", guarantee={"cpu": "1"}), queue("mid", priority=1))
    shares = shares_of(queues, cluster(cpu=10_000), waits={"high": [6000], "mid": [6000], "low": [6000]})
    fair = divided(shares, "priority")
    assert fair == {"default": [0], "high": [6000], "low": [1000], "mid": [3000]}


def test_queues_of_equal_priority_share_by_weight():
    queues = (queue("a", weight=2), queue("b"))
    shares = shares_of(queues, cluster(cpu=9000), waits={"a": [9000], "b": [9000]})
    assert divided(shares, "priority")["a"] == [6000]


def test_next_queue_has_the_highest_priority_then_the_least_borrowed():
    queues = (queue("a"), queue("b"), queue("c", priority=1))
    shares = shares_of(queues, cluster(cpu=9000), {"a": [2000], "b": [1000], "c": [5000]})
    siblings = build_sibling_queues(
        shares, compute_entitlements(shares, [PrioritySharing()] * len(shares)), 0
    )
    keys = PrioritySharing().key(siblings, np.zeros_like(siblings.usage))
    order = [siblings.names[at] for at in np.lexsort(keys.T[::-1]).tolist()]
    assert order == ["c", "default", "b", "a"]


def test_every_policy_of_the_documentation_is_an_entry_point():
    assert list(registered_policy_classes()) == [
        "armada",
        "decayed-usage",
        "dominant-share",
        "drf",
        "fifo",
        "guaranteed-ratio",
        "max-min",
        "priority",
        "strict-fifo",
        "time-based",
    ]
    assert DEFAULT_SHARING_POLICY in registered_policy_classes()


@pytest.mark.parametrize("name", sorted({*registered_policy_classes(), *POLICIES}))
def test_every_registered_name_makes_the_policy_of_that_name(name):
    assert make_sharing_policy(name, {}).name == name


def test_arguments_reach_the_policy():
    made = make_sharing_policy("dominant-share", {"strategies": ["LessThanInitialShare"]})
    assert isinstance(made, DominantResourceShare)
    assert made.args.strategies == ("LessThanInitialShare",)


def test_unknown_name_is_refused_with_the_registered_names():
    with pytest.raises(InvalidInput) as caught:
        make_sharing_policy("lottery", {})
    assert str(caught.value) == (
        "policy.name: there is no policy 'lottery'; known are armada, auto, decayed-usage, dominant-share, drf, f1, "
        "fcfs, fifo, guaranteed-ratio, headroom, max-min, priority, saf, sjf, strict-fifo, time-based, wfp3"
    )


@pytest.mark.parametrize(
    "name, args, message",
    [
        ("time-based", {"k": -1}, "policy time-based: args.k: expected 0 or more, found -1"),
        ("time-based", {"kk": 1}, "policy time-based: args.kk: unknown field; did you mean k?"),
        ("drf", {"k": 1}, "policy drf: args: the policy takes no such arguments: k"),
    ],
    ids=["range", "name", "none"],
)
def test_wrong_argument_names_the_policy_and_the_field(name, args, message):
    with pytest.raises(InvalidInput) as caught:
        make_sharing_policy(name, args)
    assert str(caught.value) == message


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
    siblings = build_sibling_queues(shares, compute_entitlements(shares, [policy] * len(shares)), 0)
    siblings = replace(siblings, head=np.array([3.0, 7.0, np.inf]))
    assert policy.key(siblings, siblings.usage).tolist() == [3.0, 7.0, np.inf]


@pytest.mark.parametrize("name", POOLS)
def test_surplus_is_never_reclaimed_and_a_guarantee_is(name):
    queues = (queue("a", guarantee={"cpu": "2"}), queue("b"), queue("c"))
    shares = shares_of(queues, cluster(cpu=10_000), {"b": [10_000]}, {"a": [4000], "c": [1000]})
    found = case(shares, make_sharing_policy(name, {}))
    a, b, c = (shares.own_gangs_row(one) for one in "abc")

    def allowed(reclaimer: int, gains: int) -> bool:
        wish = ReclaimRequest(reclaimer, b, np.array([gains]), np.array([5000]))
        return may_reclaim(shares, found.entitled, found.policies, wish)

    assert allowed(a, 2000)
    assert not allowed(a, 3000)
    assert not allowed(c, 1000)


def test_only_strict_fifo_is_strict_and_each_pool_policy_has_its_gang_order():
    assert [name for name in POOLS if make_sharing_policy(name, {}).strict] == ["strict-fifo"]
    orders = [made.gangs.name for name in POOLS if (made := make_sharing_policy(name, {})).gangs is not None]
    assert orders == ["fcfs", "fcfs", "fcfs", "sjf", "saf", "wfp3", "f1"]

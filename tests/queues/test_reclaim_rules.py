"""Reclaim between queues, under every policy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.queues.entitlements import build_sibling_queues
from batchsched.queues.gang_order import POLICIES
from batchsched.queues.reclaim_rules import may_reclaim, may_reclaim_all, reclaimer_stays_within_guarantee
from batchsched.queues.sharing.policy import make_sharing_policy, registered_policy_classes
from batchsched.queues.sharing.sibling_queues import ReclaimRequest
from tests.queues.sharing.trees import Case, case, cluster, queue, shares_of, trees

EVERY = sorted({*registered_policy_classes(), *POLICIES})


def wishes(found: Case, seed: int) -> list[ReclaimRequest]:
    """Twelve reclaim requests between leaf queues; each victim loses a part of its usage."""
    chance = np.random.default_rng(seed)
    shares = found.shares
    leaves = [row for row in range(1, len(shares)) if row not in shares.parent]
    made = []
    for _ in range(12):
        reclaimer, victim = chance.choice(leaves, 2).tolist()
        holds = shares.usage[victim]
        loses = (holds * chance.choice([0.25, 0.5, 1.0])).astype(np.int64)
        gains = (found.entitled.ceiling[reclaimer] * chance.choice([0.1, 0.3, 0.6])).astype(np.int64)
        made.append(ReclaimRequest(reclaimer, victim, gains, loses))
    return made


def after(shares, wish: ReclaimRequest):
    """The table after the victim is evicted and the reclaiming gang is placed."""
    usage = shares.usage.copy()
    usage[shares.row_and_ancestors_without_root(wish.victim)] -= wish.loses
    usage[shares.row_and_ancestors_without_root(wish.reclaimer)] += wish.gains
    return shares.with_usage(usage)


def granted(name: str, shares, seed: int):
    found = case(shares, make_sharing_policy(name, {}))
    for wish in wishes(found, seed):
        if may_reclaim(shares, found.entitled, found.policies, wish):
            yield found, wish


SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize("name", EVERY)
@given(shares=trees(), seed=SEEDS)
def test_guarantee_is_never_reclaimed(name, shares, seed):
    for found, wish in granted(name, shares, seed):
        touched = (wish.gains > 0) & (wish.loses > 0)
        mine = [
            row
            for row in shares.row_and_ancestors_without_root(wish.reclaimer).tolist()
            if row not in shares.row_and_ancestors_without_root(wish.victim)
        ]
        inside = (
            (shares.usage[mine[-1]] + wish.gains <= found.entitled.guarantee[mine[-1]]) | (wish.gains == 0)
        ).all()
        for row in shares.row_and_ancestors_without_root(wish.victim).tolist():
            if row in shares.row_and_ancestors_without_root(wish.reclaimer):
                continue
            usage, guarantee = shares.usage[row], found.entitled.guarantee[row]
            assert ((usage > guarantee) & touched).any()
            # A queue above its own guarantee may not push another queue below its guarantee.
            fell = (usage >= guarantee) & (usage - wish.loses < guarantee) & touched
            assert inside or not fell.any()


@pytest.mark.parametrize("name", EVERY)
@given(shares=trees(), seed=SEEDS)
def test_victims_come_only_from_queues_above_their_entitlement(name, shares, seed):
    for found, wish in granted(name, shares, seed):
        path = [
            row
            for row in shares.row_and_ancestors_without_root(wish.victim).tolist()
            if row not in shares.row_and_ancestors_without_root(wish.reclaimer)
        ]
        assert (shares.usage[path] > found.entitled.guarantee[path]).any(axis=1).all()
        if reclaimer_stays_within_guarantee(shares, found.entitled, wish):
            continue
        for row in path[
            :-1
        ]:  # among its siblings at the top, the policy compares it with the queue that reclaims
            parent = int(shares.parent[row])
            siblings = build_sibling_queues(shares, found.entitled, parent)
            at = row - int(np.searchsorted(shares.parent, parent))
            over = found.policies[parent].exceeded_resources(siblings, at)
            assert (over & wish.affected_resources).any()


def test_a_queue_reclaims_from_the_child_that_exceeds_its_fair_share_among_its_siblings():
    queues = (queue("a"), queue("org"), queue("large", parent="org"), queue("small", parent="org"))
    shares = shares_of(queues, cluster(gpu=12), {"large": [9], "small": [3]}, {"a": [6]})
    found = case(shares, make_sharing_policy("drf", {}))
    a, amount = shares.own_gangs_row("a"), np.array([3])
    for name, reclaimed in (("large", True), ("small", False)):
        wish = ReclaimRequest(a, shares.own_gangs_row(name), amount, amount)
        assert may_reclaim(shares, found.entitled, found.policies, wish) is reclaimed


@pytest.mark.parametrize("name", EVERY)
@given(shares=trees(), seed=SEEDS)
def test_two_queues_never_evict_each_other_in_turn(name, shares, seed):
    for found, wish in granted(name, shares, seed):
        back = ReclaimRequest(wish.victim, wish.reclaimer, wish.loses, wish.gains)
        assert not may_reclaim(after(shares, wish), found.entitled, found.policies, back)


@pytest.mark.parametrize("name", EVERY)
@given(shares=trees(), seed=SEEDS)
def test_a_queue_reclaims_neither_from_itself_nor_without_a_gain(name, shares, seed):
    found = case(shares, make_sharing_policy(name, {}))
    for wish in wishes(found, seed):
        itself = ReclaimRequest(wish.victim, wish.victim, wish.gains, wish.loses)
        assert not may_reclaim(shares, found.entitled, found.policies, itself)
        nothing = ReclaimRequest(wish.reclaimer, wish.victim, np.zeros_like(wish.gains), wish.loses)
        assert not may_reclaim(shares, found.entitled, found.policies, nothing)


@pytest.mark.parametrize("name", EVERY)
@given(shares=trees(), seed=SEEDS)
def test_a_set_of_one_victim_is_permitted_exactly_when_the_victim_is(name, shares, seed):
    found = case(shares, make_sharing_policy(name, {}))
    for wish in wishes(found, seed):
        alone = may_reclaim(shares, found.entitled, found.policies, wish)
        assert alone == may_reclaim_all(
            shares, found.entitled, found.policies, wish.reclaimer, wish.gains, [(wish.victim, wish.loses)]
        )


def test_second_victim_is_judged_after_the_first_is_removed():
    shares = shares_of((queue("a"), queue("b")), cluster(gpu=8), {"b": [8]}, {"a": [8]})
    found = case(shares, make_sharing_policy("drf", {}))
    a, b, half = shares.own_gangs_row("a"), shares.own_gangs_row("b"), np.array([4])
    assert may_reclaim(shares, found.entitled, found.policies, ReclaimRequest(a, b, half, half))
    assert not may_reclaim_all(shares, found.entitled, found.policies, a, half, [(b, half), (b, half)])


def test_child_without_a_guarantee_reclaims_within_the_guarantee_of_its_parent():
    queues = (
        queue("red", guarantee={"nvidia.com/gpu": "4"}),
        queue("r1", parent="red"),
        queue("blue"),
        queue("b1", parent="blue"),
    )
    shares = shares_of(queues, cluster(gpu=8), {"b1": [8]}, {"r1": [4]})
    for name in EVERY:
        found = case(shares, make_sharing_policy(name, {}))
        wish = ReclaimRequest(
            shares.own_gangs_row("r1"), shares.own_gangs_row("b1"), np.array([4]), np.array([8])
        )
        assert may_reclaim(shares, found.entitled, found.policies, wish), name

"""Properties of entitlements under every policy."""

import numpy as np
import pytest
from hypothesis import given

from batchsched.queues.entitlements import compute_entitlements, kept_guarantees
from batchsched.queues.gang_order import POLICIES
from batchsched.queues.sharing.policy import make_sharing_policy, registered_policy_classes
from tests.queues.sharing.trees import case, cluster, divided, queue, shares_of, trees

EVERY = sorted({*registered_policy_classes(), *POLICIES})


@pytest.mark.parametrize("name", EVERY)
@given(shares=trees())
def test_fair_shares_are_between_floor_and_ceiling_and_within_that_of_the_parent(name, shares):
    found = case(shares, make_sharing_policy(name, {}))
    entitled = found.entitled
    assert (entitled.floor[1:] <= entitled.fair[1:]).all()
    assert (entitled.fair[1:] <= entitled.ceiling[1:]).all()
    assert (entitled.guarantee[1:] <= shares.limit[1:]).all()
    assert (entitled.fair[1:] <= np.maximum(shares.limit[1:], 0)).all()
    over = np.maximum(entitled.guarantee + shares.borrowing, entitled.floor)
    assert (entitled.fair[1:] <= over[1:]).all()
    for parent in found.parents():
        children = np.flatnonzero(shares.parent == parent)
        assert (entitled.guarantee[children].sum(axis=0) <= entitled.guarantee[parent]).all()
        assert (entitled.floor[children].sum(axis=0) <= entitled.fair[parent]).all()
        most = (
            entitled.fair[children].max(axis=0)
            if found.policies[0].pooled
            else entitled.fair[children].sum(axis=0)
        )
        assert (most <= entitled.fair[parent]).all()


@pytest.mark.parametrize("name", EVERY)
@given(shares=trees())
def test_fair_share_covers_the_requested_part_of_the_guarantee(name, shares):
    found = case(shares, make_sharing_policy(name, {}))
    leaves = np.array([row not in shares.parent for row in range(len(shares))])
    wanted = np.minimum(found.entitled.guarantee, shares.request)[leaves]
    assert (found.entitled.fair[leaves] >= wanted).all()


@pytest.mark.parametrize("name", EVERY)
@given(shares=trees())
def test_entitlements_are_deterministic_and_leave_their_input_unchanged(name, shares):
    before = [getattr(shares, one).copy() for one in ("guarantee", "usage", "request", "history", "limit")]
    first, second = (
        case(shares, make_sharing_policy(name, {})).entitled,
        case(shares, make_sharing_policy(name, {})).entitled,
    )
    assert (first.fair == second.fair).all()
    after = [getattr(shares, one) for one in ("guarantee", "usage", "request", "history", "limit")]
    assert all((one == other).all() for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("name", ["drf", "dominant-share", "max-min", "priority"])
@given(shares=trees())
def test_no_resource_that_a_queue_could_use_stays_undivided(name, shares):
    found = case(shares, make_sharing_policy(name, {}))
    for parent in found.parents():
        children = np.flatnonzero(shares.parent == parent)
        left = found.entitled.fair[parent] - found.entitled.fair[children].sum(axis=0)
        unmet = (found.entitled.ceiling[children] - found.entitled.fair[children]).sum(axis=0)
        # A unit a sibling is what rounding may leave of a resource that is spent together with another.
        assert (np.minimum(left, unmet) <= len(children)).all()


def test_guarantees_above_that_of_the_parent_are_scaled_down():
    queues = (
        queue("org", guarantee={"cpu": "6"}),
        *(queue(name, parent="org", guarantee={"cpu": "4"}) for name in ("a", "b", "c")),
    )
    shares = shares_of(queues, cluster(cpu=10_000), waits={"a": [9000], "b": [9000]})
    entitled = compute_entitlements(shares, [make_sharing_policy("drf", {})] * len(shares))
    rows = {name: entitled.guarantee[row].tolist() for row, name in enumerate(shares.names)}
    assert [rows[name] for name in ("org", "a", "b", "c")] == [[6000], [2000], [2000], [2000]]


def test_unused_guarantee_is_lent_up_to_the_lending_limit():
    def fair(**settings):
        a = queue("a", guarantee={"cpu": "6"}, **settings)
        shares = shares_of((a, queue("b")), cluster(cpu=10_000), waits={"a": [1000], "b": [10_000]})
        return divided(shares)

    assert fair()["b"] == [9000]
    assert fair(lendingLimit={"cpu": "2"}) == {"a": [4000], "b": [6000], "default": [0]}
    assert fair(lendingLimit={"cpu": "0"})["b"] == [4000]


def test_lending_limit_of_a_child_holds_under_a_parent_without_one():
    queues = (
        queue("org", guarantee={"cpu": "6"}),
        queue("a", parent="org", guarantee={"cpu": "6"}, lendingLimit={"cpu": "1"}),
        queue("b"),
    )
    shares = shares_of(queues, cluster(cpu=10_000), waits={"b": [10_000]})
    assert divided(shares) == {"a": [5000], "b": [5000], "default": [0], "org": [5000]}


def test_kept_guarantee_is_scaled_down_and_includes_what_queues_below_keep():
    queues = (
        queue("org", guarantee={"cpu": "8"}, lendingLimit={"cpu": "2"}),
        queue("a", parent="org", guarantee={"cpu": "8"}, lendingLimit={"cpu": "3"}),
        queue("b", parent="org", guarantee={"cpu": "8"}),
        queue("peer", guarantee={"cpu": "4"}, lendingLimit={"cpu": "4"}),
    )
    shares = shares_of(queues, cluster(cpu=100_000))
    kept = dict(zip(shares.names, kept_guarantees(shares)[:, 0].tolist(), strict=True))
    # Of its 8 CPUs, 4 belong to `a`, which keeps 1 of them.
    assert (kept["org"], kept["a"], kept["b"], kept["peer"]) == (6000, 1000, 0, 0)


def test_borrowing_limit_bounds_the_fair_share():
    queues = (queue("a", guarantee={"cpu": "2"}, borrowingLimit={"cpu": "3"}), queue("b"))
    shares = shares_of(queues, cluster(cpu=20_000), waits={"a": [20_000], "b": [2000]})
    assert divided(shares)["a"] == [5000]


def test_limit_of_a_parent_bounds_its_children_together():
    queues = (queue("org", limit={"cpu": "4"}), queue("a", parent="org"), queue("b", parent="org"))
    shares = shares_of(queues, cluster(cpu=20_000), waits={"a": [9000], "b": [1000]})
    assert divided(shares) == {"a": [3000], "b": [1000], "default": [0], "org": [4000]}


def test_pod_groups_of_a_parent_queue_share_with_its_children():
    queues = (queue("org"), queue("a", parent="org"))
    shares = shares_of(queues, cluster(cpu=10_000), waits={"org": [9000], "a": [9000]})
    assert shares.names == ("", "default", "org", "a", "org/")
    assert divided(shares) == {"default": [0], "org": [10_000], "a": [5000], "org/": [5000]}
    assert shares.own_gangs_row("org") == 4
    assert shares.own_gangs_row("a") == 3


def reaches(*queues, cpu):
    """What the children of each queue can reach together, in milli-CPU."""
    shares = shares_of(queues, cluster(cpu=cpu))
    lendable = compute_entitlements(shares, [make_sharing_policy("drf", {})] * len(shares)).lendable
    return {name: lendable[row].tolist() for row, name in enumerate(shares.names)}


def test_children_may_use_what_their_parent_withholds_and_what_other_queues_lend():
    org = queue("org", guarantee={"cpu": "6"}, lendingLimit={"cpu": "2"})
    team = queue("team", parent="org", guarantee={"cpu": "1"})
    found = reaches(org, team, queue("peer", guarantee={"cpu": "3"}), cpu=10_000)
    # 4 of its 6 CPUs are for org alone; of the 6 that all may reach, its own 2 are a part.
    assert (found[""], found["org"], found["peer"]) == ([6000], [10_000], [6000])
    assert found["team"] == found["org"]


def test_borrowing_limit_and_limit_of_a_parent_bound_what_its_children_may_use():
    peer = queue("peer", guarantee={"cpu": "3"})
    for settings, reach in (({"borrowingLimit": {"cpu": "1"}}, 7000), ({"limit": {"cpu": "8"}}, 8000)):
        org = queue("org", guarantee={"cpu": "6"}, **settings)
        assert reaches(org, queue("team", parent="org"), peer, cpu=10_000)["org"] == [reach]

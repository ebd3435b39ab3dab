"""The remaining amounts of queue limits, at every ancestor."""

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from batchsched.api.core.pod import QUEUE_LABEL, USER_LABEL
from batchsched.api.snapshot import Snapshot
from batchsched.queues.tree import NO_USER
from batchsched.session.gangs.queue_limits import QueueLimits, compute_remaining_limits
from batchsched.session.statement import GangPlacement, PlacedPod
from batchsched.solver.problem import UNLIMITED
from tests.session.clusters import on
from tests.session.scenario import GPU, cluster, gang, group, nodes, pod, profile, queue, schedule
from tests.session.scenes import Inside, inside

TREE = (
    queue("org", limit={GPU: "4"}, maxRunningPodGroups=2),
    queue("team", parent="org", limit={GPU: "8", "cpu": "1500m"}),
    queue("free", parent="org"),
)


def running(count: int, queue: str) -> Snapshot:
    pods = tuple(on(pod(f"run-{at}", group="run", gpu=1), f"n{at}") for at in range(count))
    return Snapshot(pods=pods, pod_groups=(group("run", count, queue=queue),))


def left(found: QueueLimits, there: Inside, name: str) -> tuple[int, int, int]:
    """GPUs, milli-CPU and PodGroups that a queue has left."""
    at = next(at for at, limit in enumerate(found.limits) if limit.name == name)
    column = there.inputs.tables.node_table.column
    return (
        int(found.remaining_amounts[at, column[GPU]]),
        int(found.remaining_amounts[at, column["cpu"]]),
        int(found.remaining_gang_starts[at]),
    )


def test_running_pods_of_a_child_count_at_every_ancestor_and_at_no_sibling():
    there = inside(cluster(nodes(4, gpu=4), running(3, queue="team"), queues=TREE))
    assert left(there.inputs.quotas, there, "org") == (1, UNLIMITED, 1)
    assert left(there.inputs.quotas, there, "team") == (5, 1500, UNLIMITED)
    assert [limit.name for limit in there.inputs.quotas.limits] == ["org", "team"]


def test_queue_over_its_limit_has_nothing_left_and_a_negative_balance():
    there = inside(cluster(nodes(6, gpu=4), running(6, queue="free"), queues=TREE))
    found = there.inputs.quotas
    assert left(found, there, "org") == (0, UNLIMITED, 1)
    assert int(found.remaining[0, there.inputs.tables.node_table.column[GPU]]) == -2


def test_pods_of_other_schedulers_count_only_against_a_queue_that_they_name():
    strange = on(pod("s", gpu=1), "n0")
    other = msgspec.structs.replace(strange.spec, scheduler_name="other")
    strange = msgspec.structs.replace(strange, spec=other)
    named = msgspec.structs.replace(
        strange, metadata=msgspec.structs.replace(strange.metadata, name="t", labels={QUEUE_LABEL: "team"})
    )
    there = inside(cluster(nodes(1, gpu=4), Snapshot(pods=(strange, named)), queues=TREE))
    assert left(there.inputs.quotas, there, "org")[0] == 3


def test_placed_gang_is_charged_once_to_every_ancestor():
    snapshot = cluster(nodes(4, gpu=4), gang("new", 2, queue="team"), queues=TREE)
    there = inside(snapshot)
    fresh = there.gang("team/new")
    (part,) = fresh.parts
    walked = GangPlacement(fresh, [PlacedPod(one, 0, part.pod_class, None) for one in part.pods])  # type: ignore[arg-type]
    after = there.inputs.quotas.after_placements(there.inputs.tables, [walked])
    assert left(after, there, "org") == (2, UNLIMITED, 1)
    assert left(after, there, "team") == (6, 1500, UNLIMITED)


def test_first_exceeded_names_the_queue_with_the_exceeded_limit():
    there = inside(cluster(nodes(4, gpu=4), running(3, queue="team"), queues=TREE))
    tables, found = there.inputs.tables, there.inputs.quotas
    gpus = np.zeros(len(tables.node_table.resources), np.int64)
    gpus[tables.node_table.column[GPU]] = 1
    assert found.find_queue_with_exceeded_limit(tables, ("free", ""), gpus, 1) == ""
    assert found.find_queue_with_exceeded_limit(tables, ("free", ""), 2 * gpus, 0) == "org"
    assert found.find_queue_with_exceeded_limit(tables, ("default", ""), 9 * gpus, 9) == ""
    assert (
        replace(
            found, remaining_gangs=np.zeros_like(found.remaining_gang_starts)
        ).find_queue_with_exceeded_limit(tables, ("team", ""), 0 * gpus, 1)
        == "org"
    )


def test_without_limits_no_queue_is_measured():
    there = inside(cluster(nodes(1, gpu=4), running(1, queue="default")))
    found = compute_remaining_limits(there.inputs.tables, "batchsched")
    assert found.limits == ()
    assert (
        found.find_queue_with_exceeded_limit(
            there.inputs.tables, ("default", ""), found.remaining_amounts.sum(axis=0), 1
        )
        == ""
    )


def test_a_queue_borrows_no_more_than_its_borrowing_limit_above_its_guarantee():
    queues = (queue("a", guarantee={GPU: "2"}, borrowingLimit={GPU: "1"}),)
    decision = schedule(
        cluster(nodes(1, gpu=8), *(gang(f"a{at}", 1, queue="a") for at in range(6)), queues=queues)
    )
    assert len(decision.assignments) == 3


@pytest.mark.parametrize("borrowed, started", [("0", 8), ("4", 12)])
def test_borrowing_limit_of_a_queue_without_a_guarantee_counts_from_those_of_its_children(borrowed, started):
    queues = (
        queue("cohort", borrowingLimit={GPU: borrowed}),
        queue("x", parent="cohort", guarantee={GPU: "4"}),
        queue("y", parent="cohort", guarantee={GPU: "4"}),
    )
    gangs = (gang(f"x{at}", 1, queue="x") for at in range(16))
    assert len(schedule(cluster(nodes(2, gpu=8), *gangs, queues=queues)).assignments) == started


@pytest.mark.parametrize("asked", [8, 1])
def test_capacity_that_a_queue_does_not_lend_stays_free_for_it(asked):
    queues = (
        queue("a", guarantee={GPU: "3"}, lendingLimit={GPU: "1"}),
        queue("b", guarantee={GPU: "3"}, lendingLimit={GPU: "1"}),
        queue("c"),
    )
    takers = (gang(f"c{at}", 1, queue="c") for at in range(8))
    decision = schedule(cluster(nodes(1, gpu=9), *takers, gang("b", asked, 1, queue="b"), queues=queues))
    of_c = sum(one.pod.startswith("c") for one in decision.assignments)
    assert (of_c, len(decision.assignments) - of_c) == ({8: 2, 1: 5}[asked], {8: 5, 1: 1}[asked])


KEEPING: dict[str, Any] = {"guarantee": {GPU: "8"}, "lendingLimit": {GPU: "0"}}


@pytest.mark.parametrize(
    "queues",
    [
        pytest.param((queue("a", **KEEPING), queue("b", **KEEPING)), id="less capacity"),
        pytest.param(
            (
                queue("org", guarantee={GPU: "8"}),
                queue("a", parent="org", **KEEPING),
                queue("b", parent="org", **KEEPING),
            ),
            id="smaller guarantee of the parent",
        ),
    ],
)
def test_queues_keep_only_what_is_left_of_guarantees_that_are_scaled_down(queues):
    gangs = (gang(f"{name}{at}", 1, queue=name) for name in "ab" for at in range(8))
    decision = schedule(cluster(nodes(1, gpu=8), *gangs, queues=queues))
    assert Counter(one.pod[0] for one in decision.assignments) == {"a": 4, "b": 4}


def test_each_user_has_a_limit_of_its_own_in_a_queue_and_below():
    queues = (queue("a", userLimits={GPU: "2"}), queue("team", parent="a"))
    pods = tuple(
        pod(f"{user}-{at}", gpu=1, labels={USER_LABEL: user, QUEUE_LABEL: "team"})
        for user in ("ann", "bob")
        for at in range(3)
    )
    decision = schedule(cluster(nodes(1, gpu=8), pods=pods, queues=queues))
    assert sorted(one.pod[:3] for one in decision.assignments) == ["ann", "ann", "bob", "bob"]
    assert {one.reason for one in decision.refusals} == {"QueueLimit"}
    assert "a for user ann" in next(one.message for one in decision.refusals if "ann" in one.pod_group)


USER_LIMIT = (queue("a", userLimits={GPU: "2"}),)


def gang_of_users(*users: str, **labels: str) -> Snapshot:
    """A gang in queue a with a pod for each user, "" for a pod without the label; the PodGroup has `labels`."""
    pods = tuple(
        pod(f"g-{at}", group="g", gpu=1, labels={USER_LABEL: user} if user else None)
        for at, user in enumerate(users)
    )
    made = group("g", len(users), queue="a")
    labelled = made.model_copy(
        update={"metadata": made.metadata.model_copy(update={"labels": labels or None})}
    )
    return Snapshot(pods=pods, pod_groups=(labelled,))


@pytest.mark.parametrize("users", [("", "u", "u", "u"), ("u", "", "", ""), ("v", "u")])
@pytest.mark.parametrize("settings", [{}, {"selection": "ordered"}, {"solver": {"enabled": False}}])
def test_gang_with_pods_of_several_users_is_refused_where_users_are_limited(users, settings):
    decision = schedule(
        cluster(nodes(1, gpu=8), gang_of_users(*users), queues=USER_LIMIT), profile(**settings)
    )
    (refusal,) = decision.refusals
    assert refusal.reason == "SeveralUsers"
    assert USER_LABEL in refusal.message
    assert "queue a sets spec.userLimits" in refusal.message


def test_label_of_the_podgroup_is_the_user_of_all_its_pods():
    for count, placed in ((2, 2), (3, 0)):
        users = gang_of_users(*["", "v", "w"][:count], **{USER_LABEL: "u"})
        decision = schedule(cluster(nodes(1, gpu=8), users, queues=USER_LIMIT))
        assert len(decision.assignments) == placed
        assert [one.reason for one in decision.refusals] == ["QueueLimit"] * (not placed)


def test_gang_with_pods_of_several_users_is_placed_where_users_are_not_limited():
    some = cluster(nodes(1, gpu=8), gang_of_users("", "u", "v"), queues=(queue("a", limit={GPU: "3"}),))
    assert len(schedule(some).assignments) == 3


def test_gangs_without_a_user_share_the_limit_of_one_user():
    unlabelled = tuple(gang(f"g{at}", 1, queue="a") for at in range(3))
    decision = schedule(cluster(nodes(1, gpu=8), *unlabelled, queues=USER_LIMIT))
    assert len(decision.assignments) == 2
    (refusal,) = decision.refusals
    assert refusal.reason == "QueueLimit"
    assert "a for pods without a user" in refusal.message


@pytest.mark.parametrize("settings", [{}, {"selection": "ordered"}, {"solver": {"enabled": False}}])
@pytest.mark.parametrize("relabelled", ["", "v"])
def test_member_that_is_relabelled_after_it_is_bound_starts_no_more_pods_of_its_gang(relabelled, settings):
    """Two pods of user u are bound and use up the limit; a third one is pending."""
    users = gang_of_users(relabelled, "u", "u")
    bound_pods = tuple(on(one, "n0") if at < 2 else one for at, one in enumerate(users.pods))
    snapshot = cluster(nodes(1, gpu=8), replace(users, pods=bound_pods), queues=USER_LIMIT)
    decision = schedule(snapshot, profile(**settings))
    assert decision.assignments == ()
    assert [one.reason for one in decision.refusals] == ["SeveralUsers"]


def test_relabelled_running_pods_count_for_the_user_that_they_name_and_never_for_none():
    """Whatever a tenant names, all pods together have at most the limit of each user that is named."""
    for user in ("u", "v", ""):
        held = gang_of_users(user, user)
        full = replace(held, pods=tuple(on(one, "n0") for one in held.pods))
        wants = pod("w", gpu=1, labels={QUEUE_LABEL: "a"} | ({USER_LABEL: user} if user else {}))
        decision = schedule(cluster(nodes(1, gpu=8), full, pods=(wants,), queues=USER_LIMIT))
        assert [one.reason for one in decision.refusals] == ["QueueLimit"]


def test_running_pods_count_for_their_own_users_and_their_gang_once():
    mixed = gang_of_users("", "u", "u", "v")
    running_pods = tuple(on(one, "n0") for one in mixed.pods)
    limited = (queue("a", userLimits={GPU: "2"}, maxRunningPodGroups=2),)
    there = inside(cluster(nodes(1, gpu=8), replace(mixed, pods=running_pods), queues=limited))
    found, column = there.inputs.quotas, there.inputs.tables.node_table.column[GPU]
    free_by_user = {
        limit.user: int(found.remaining_amounts[at, column]) for at, limit in enumerate(found.limits)
    }
    assert free_by_user == {"": UNLIMITED, NO_USER: 1, "u": 0, "v": 1}
    assert int(found.remaining_gang_starts[[limit.user for limit in found.limits].index("")]) == 1

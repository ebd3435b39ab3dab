"""Sessions over random trees of queues keep limits at every level, meet guarantees and leave no device idle."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import Pod
from batchsched.api.crd.queue import Queue
from batchsched.api.snapshot import Snapshot
from tests.session.preemption.running import asked_to_leave, gone, queued_again, started_now, wanting
from tests.session.scenario import GPU, cluster, nodes, profile, queue, schedule

POLICIES = ("drf", "max-min", "dominant-share", "decayed-usage", "time-based", "guaranteed-ratio", "priority")
PARENTS = {"a": "", "b": "", "a1": "a", "a2": "a", "b1": "b", "b2": "b"}
LEAVES = ("a1", "a2", "b1", "b2")
NONE = 10**6


def random_tree(dice: random.Random, capacity: int, lending: bool) -> dict[str, dict[str, int]]:
    """Guarantees that fit into those above, limits and borrowing limits: amounts by queue."""
    tree: dict[str, dict[str, int]] = {name: {} for name in PARENTS}
    left = {"": capacity}
    for name, parent in PARENTS.items():
        guarantee = dice.randint(0, left[parent])
        left[parent] -= guarantee
        left[name] = guarantee
        tree[name]["guarantee"] = guarantee
        if dice.random() < 0.3:
            tree[name]["limit"] = guarantee + dice.randint(0, capacity)
        if dice.random() < 0.3:
            tree[name]["borrowingLimit"] = dice.randint(0, capacity)
        if lending and dice.random() < 0.3:
            tree[name]["lendingLimit"] = dice.randint(0, guarantee)
    return tree


def queues_of(dice: random.Random, tree: dict[str, dict[str, int]], policy: str) -> tuple[Queue, ...]:
    found = []
    for name, amounts in tree.items():
        spec: dict[str, Any] = {key: {GPU: str(amount)} for key, amount in amounts.items()}
        spec |= {"parent": PARENTS[name]} if PARENTS[name] else {}
        spec |= {"weight": dice.randint(1, 3), "priority": dice.randint(0, 2), "policy": {"name": policy}}
        found.append(queue(name, **spec))
    return tuple(found)


def with_ancestors(name: str) -> Iterator[str]:
    while name:
        yield name
        name = PARENTS[name]


def usage(snapshot: Snapshot) -> Counter[str]:
    used: Counter[str] = Counter()
    for pod in snapshot.pods:
        if pod.node_name:
            used.update(with_ancestors(pod.name.partition("-")[0]))
    return used


def unbound(pod: Pod) -> Pod:
    """A new pod of the same name that is pending."""
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        status=msgspec.structs.replace(pod.status, start_time=None),
    )


def most(amounts: dict[str, int]) -> int:
    """What a queue may use by its own limit and borrowing limit."""
    borrowing = amounts["guarantee"] + amounts["borrowingLimit"] if "borrowingLimit" in amounts else NONE
    return min(amounts.get("limit", NONE), borrowing)


def next_session(snapshot: Snapshot, settings: Any) -> Snapshot:
    decision = schedule(snapshot, settings)
    return started_now(queued_again(snapshot, gone(asked_to_leave(snapshot, decision)), decision))


@pytest.mark.properties
@given(policy=st.sampled_from(POLICIES), seed=st.integers(0, 2**32 - 1))
def test_limits_hold_guarantees_are_met_and_no_device_is_idle(policy: str, seed: int):
    """Pods of one device each, so that no fragmentation is in the way; some pods end between two sessions."""
    dice = random.Random(seed)
    count, capacity = 1, 4
    lending = dice.random() < 0.3
    tree = random_tree(dice, capacity, lending)
    demand = {name: dice.choice([0, 2, capacity]) for name in LEAVES}
    parts = [
        wanting(f"{name}-{at}", 1, priority=0, queue=name) for name in LEAVES for at in range(demand[name])
    ]
    snapshot = cluster(nodes(count, gpu=4), *parts, queues=queues_of(dice, tree, policy))
    settings = profile(queuePolicy={"name": policy})
    for number in range(4):
        snapshot = next_session(snapshot, settings)
        used = usage(snapshot)
        assert all(used[name] <= most(tree[name]) for name in PARENTS), f"session {number}: {used}"
        if number == 1:  # some pods end, and their jobs submit others
            ended = {pod.key for pod in snapshot.pods if pod.node_name and dice.random() < 0.3}
            again = tuple(unbound(pod) if pod.key in ended else pod for pod in snapshot.pods)
            snapshot = replace(snapshot, pods=again)
    for name in LEAVES:
        owed = min(
            demand[name],
            tree[name]["guarantee"],
            *(most(tree[above]) for above in with_ancestors(name)),
        )
        assert used[name] >= owed, f"{name} has {used[name]} of {owed}"
    if not lending and used["a"] + used["b"] < capacity:
        for name in LEAVES:
            above = list(with_ancestors(name))
            assert used[name] == demand[name] or any(used[one] >= most(tree[one]) for one in above)

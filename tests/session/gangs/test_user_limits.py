"""`userLimits` of queues on random trees, checked against the sums over the pods of each user."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import Snapshot
from tests.session.preemption.running import at_work
from tests.session.scenario import GPU, cluster, gang, nodes, profile, queue, schedule

USER = "scheduling.batchsched.dev/user"
PARENTS = {"lab": "org", "shop": "org", "org": "", "free": ""}
GANG_QUEUES = ("lab", "shop", "free")
NO_EVICTIONS = profile(plugins={"postFilter": {"disabled": [{"name": "*"}]}})


def labelled(part: Snapshot, user: str, on_group: bool) -> Snapshot:
    """The gang of a user, named by the label of the PodGroup or by that of each pod."""
    label = {USER: user} if user else {}
    if on_group:
        (group,) = part.pod_groups
        metadata = group.metadata.model_copy(update={"labels": label})
        return replace(part, pod_groups=(group.model_copy(update={"metadata": metadata}),))
    return replace(part, pods=tuple(with_labels(one, label) for one in part.pods))


def with_labels(pod: Pod, labels: dict[str, str]) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, labels={**pod.labels, **labels})
    return msgspec.structs.replace(pod, metadata=metadata)


def random_cluster(dice: random.Random) -> tuple[Snapshot, dict[str, str]]:
    """Queues with and without limits of users, and gangs of one-device pods; also the user of each gang."""
    parts, users = [], {}
    room = [f"n{number}" for number in range(3) for _ in range(4)]
    dice.shuffle(room)
    for number in range(dice.randint(2, 7)):
        name, size = f"g{number}", dice.randint(1, 4)
        part = gang(name, size, age=number, queue=dice.choice(GANG_QUEUES))
        users[f"team/{name}"] = user = dice.choice(["", "ann", "bob"])
        part = labelled(part, user, dice.random() < 0.5)
        if dice.random() < 0.3 and len(room) >= size:
            part = replace(part, pods=tuple(at_work(one, room.pop()) for one in part.pods))
        parts.append(part)
    queues = [
        queue(
            name,
            **({"parent": parent} if parent else {}),
            **({"userLimits": {GPU: str(dice.randint(1, 6))}} if dice.random() < 0.6 else {}),
        )
        for name, parent in PARENTS.items()
    ]
    return cluster(nodes(3, gpu=4), *parts, queues=tuple(queues)), users


def with_ancestors(name: str) -> Iterator[str]:
    while name:
        yield name
        name = PARENTS[name]


def size_of(snapshot: Snapshot, group: PodGroup) -> int:
    return sum(one.name.rpartition("-")[0] == group.metadata.name for one in snapshot.pods)


@pytest.mark.properties
@given(st.integers(0, 2**32 - 1))
def test_no_user_exceeds_a_limit_and_no_gang_within_all_limits_waits(seed: int):
    snapshot, users = random_cluster(random.Random(seed))
    decision = schedule(snapshot, NO_EVICTIONS)
    placed = {f"team/{one.pod.rpartition('-')[0]}" for one in decision.assignments}
    running = {f"team/{one.name.rpartition('-')[0]}" for one in snapshot.pods if one.node_name}
    used: Counter[tuple[str, str]] = Counter()
    grown = set()
    for group in snapshot.pod_groups:
        if group.key not in placed | running:
            continue
        for name in with_ancestors(group.spec.queue or ""):
            used[name, users[group.key]] += size_of(snapshot, group)
            if group.key in placed:
                grown.add((name, users[group.key]))
    limits = {
        one.metadata.name: int(str((one.spec.user_limits or {}).get(GPU, 99))) for one in snapshot.queues
    }
    assert all(used[name, user] <= limits[name] for name, user in grown)
    free = 12 - sum(size_of(snapshot, one) for one in snapshot.pod_groups if one.key in placed | running)
    for group in snapshot.pod_groups:
        if group.key not in placed | running:
            size, user = size_of(snapshot, group), users[group.key]
            above = with_ancestors(group.spec.queue or "")
            assert size > free or any(used[name, user] + size > limits[name] for name in above)

"""Clusters in which gangs run, and what becomes of them when a decision is carried out."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from tests.session.scenario import NOW, bound, gang, pod


def running(
    name: str, places: Iterable[str], *, started: float = 3600, priority: int = 0, **more: Any
) -> Snapshot:
    """A gang that runs, a pod on each place, `started` seconds ago."""
    where = list(places)
    made = gang(name, len(where), more.pop("minimum", None), **more)
    return replace(
        made,
        pods=tuple(
            at_work(one, place, started, priority) for one, place in zip(made.pods, where, strict=True)
        ),
    )


def draw_places(dice: random.Random, room: dict[str, int], size: int, pods: int) -> list[str]:
    """Nodes for at most `pods` pods of `size` GPUs; what they take is subtracted from `room`."""
    places: list[str] = []
    for name in sorted(room, key=lambda _: dice.random()):
        while room[name] >= size and len(places) < pods:
            room[name] -= size
            places.append(name)
    return places


def at_work(one: Pod, place: str, started: float = 3600, priority: int = 0) -> Pod:
    """The pod as it runs on a node."""
    spec = msgspec.structs.replace(one.spec, node_name=place, priority=priority)
    status = msgspec.structs.replace(one.status, start_time=format_timestamp(NOW - started))
    return msgspec.structs.replace(one, spec=spec, status=status)


def lone(name: str, place: str, priority: int = 0, started: float = 3600, **more: Any) -> Pod:
    """A pod without a PodGroup that runs, unless `group` names one."""
    return at_work(pod(name, **more), place, started, priority)


def budget(allowed: int, **labels: str) -> PodDisruptionBudget:
    return msgspec.convert(
        {
            "metadata": {"name": "budget", "namespace": "team"},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"disruptionsAllowed": allowed},
        },
        PodDisruptionBudget,
    )


def wanting(
    name: str, count: int, minimum: int | None = None, *, priority: int = 10, **more: Any
) -> Snapshot:
    """A gang that waits."""
    made = gang(name, count, minimum, **more)
    return replace(
        made,
        pods=tuple(
            msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, priority=priority))
            for one in made.pods
        ),
    )


def asked_to_leave(snapshot: Snapshot, decision: Decision) -> Snapshot:
    """The cluster while the decision's victims leave: nominations are written, and pods are terminating."""
    victims = {(one.namespace, one.pod) for one in decision.evictions}
    places = {(one.namespace, one.pod): one.node for one in decision.nominations}

    def changed(one: Pod) -> Pod:
        key = one.namespace, one.name
        if key in victims:
            stamp = msgspec.structs.replace(one.metadata, deletion_timestamp=format_timestamp(NOW + 30))
            return msgspec.structs.replace(one, metadata=stamp)
        if not one.node_name:
            status = msgspec.structs.replace(one.status, nominated_node_name=places.get(key, ""))
            return msgspec.structs.replace(one, status=status)
        return one

    after = bound(snapshot, decision)
    return replace(after, pods=tuple(changed(one) for one in after.pods))


def gone(snapshot: Snapshot) -> Snapshot:
    """The cluster once those that were leaving have left."""
    return replace(snapshot, pods=tuple(one for one in snapshot.pods if not one.terminating))


def queued_again(before: Snapshot, after: Snapshot, decision: Decision) -> Snapshot:
    """The cluster with fresh pods of those that were evicted, as their controllers make them."""
    victims = {(one.namespace, one.pod) for one in decision.evictions}
    fresh = tuple(
        msgspec.structs.replace(
            one,
            spec=msgspec.structs.replace(one.spec, node_name=""),
            status=msgspec.structs.replace(one.status, start_time=None),
        )
        for one in before.pods
        if (one.namespace, one.name) in victims
    )
    return replace(after, pods=after.pods + fresh)


def started_now(snapshot: Snapshot) -> Snapshot:
    """The cluster in which what is bound has begun to run."""
    return replace(
        snapshot,
        pods=tuple(
            at_work(one, one.node_name, 0, one.spec.priority or 0)
            if one.node_name and not one.status.start_time
            else one
            for one in snapshot.pods
        ),
    )


def evicted(decision: Decision) -> dict[str, tuple[str, str]]:
    """By pod: the preemptor and the reason."""
    return {one.pod: (one.for_, one.reason) for one in decision.evictions}


def kept(decision: Decision) -> dict[str, str]:
    """By pod: its nominated node."""
    return {one.pod: one.node for one in decision.nominations}

"""Protection: a gang keeps its room against its own queue and fair shares, and a guarantee is met nevertheless."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.crd.queue import Queue
from batchsched.api.snapshot import Snapshot
from tests.session.preemption.running import (
    asked_to_leave,
    evicted,
    gone,
    kept,
    queued_again,
    running,
    started_now,
    wanting,
)
from tests.session.scenario import cluster, nodes, profile, queue, schedule

GPU = "nvidia.com/gpu"
WHOLE: dict[str, Any] = {"requests": {"gpu": 8}}
FIRM: dict[str, Any] = {"preemptible": False}
LASTING: dict[str, Any] = {"minRuntimeSeconds": 2**31 - 1}
PROTECTIONS = {"not preemptible": FIRM, "minRuntimeSeconds": LASTING}


def of_tenants(count: int, *parts: Snapshot, a: dict[str, Any], tenants: dict[str, Any]) -> Snapshot:
    """Nodes of eight devices, a queue `a` and a queue `tenants`."""
    return cluster(nodes(count, gpu=8), *parts, queues=(queue("a", **a), queue("tenants", **tenants)))


def held(count: int, **more: Any) -> list[Snapshot]:
    """Gangs of the queue `tenants`, one on each node."""
    return [running(f"t{at}", [f"n{at}"], queue="tenants", **WHOLE, **more) for at in range(count)]


def claims(count: int) -> list[Snapshot]:
    """Pending gangs of the queue `a`, each of a whole node."""
    return [wanting(f"a{at}", 1, priority=0, queue="a", **WHOLE) for at in range(count)]


GUARANTEED = {"guarantee": {GPU: "16"}}


@pytest.mark.parametrize("spec", PROTECTIONS.values(), ids=PROTECTIONS)
def test_protected_gangs_of_a_queue_without_a_guarantee_leave_for_the_guarantee_of_another_queue(spec):
    decision = schedule(of_tenants(4, *held(4, **spec), *claims(4), a=GUARANTEED, tenants={}))
    assert len(decision.evictions) == 2
    assert {reason for _, reason in evicted(decision).values()} == {"Reclaimed"}
    assert len(kept(decision)) == 2


@pytest.mark.parametrize("spec", PROTECTIONS.values(), ids=PROTECTIONS)
def test_protected_gangs_within_the_guarantee_of_their_queue_stay(spec):
    """Both queues are guaranteed 16 of 32; tenants has 16 protected, and 16 that are not."""
    protected = [running(f"t{at}", [f"n{at}"], queue="tenants", **WHOLE, **spec) for at in (0, 1)]
    others = [
        running(f"u{at}", [f"n{at}"], queue="tenants", priority=100, started=86400, **WHOLE) for at in (2, 3)
    ]
    snapshot = of_tenants(4, *protected, *others, *claims(4), a=GUARANTEED, tenants=GUARANTEED)
    assert set(evicted(schedule(snapshot))) == {"u2-0", "u3-0"}


def test_protected_gangs_above_the_guarantee_of_their_queue_leave_after_all_others():
    """Of 32 devices tenants has 24 protected and 8 others, and is guaranteed 16."""
    protected = [
        running(f"t{at}", [f"n{at}"], queue="tenants", started=0, **WHOLE, **FIRM) for at in range(3)
    ]
    other = running("u", ["n3"], queue="tenants", priority=100, started=86400, **WHOLE)
    for wanted, leaving in ((1, {"u-0"}), (2, {"u-0", "t0-0"})):
        snapshot = of_tenants(4, *protected, other, *claims(wanted), a=GUARANTEED, tenants=GUARANTEED)
        assert set(evicted(schedule(snapshot))) == leaving


def test_gang_that_needs_several_victims_takes_protected_gangs_only_down_to_the_guarantee_of_their_queue():
    """a is guaranteed 24 and tenants 8: two of its three protected gangs may leave, and the one that is not."""
    protected = [running(f"t{at}", [f"n{at}"], queue="tenants", **WHOLE, **FIRM) for at in range(3)]
    other = running("u", ["n3"], queue="tenants", priority=100, started=86400, **WHOLE)
    wants = wanting("a0", 3, priority=0, queue="a", **WHOLE)
    guarantees: dict[str, Any] = {"a": {"guarantee": {GPU: "24"}}, "tenants": {"guarantee": {GPU: "8"}}}
    decision = schedule(of_tenants(4, *protected, other, wants, **guarantees))
    assert len(decision.evictions) == 3
    assert "u-0" in evicted(decision)


@pytest.mark.parametrize("spec", PROTECTIONS.values(), ids=PROTECTIONS)
def test_protected_gangs_stay_if_another_queue_claims_a_fair_share(spec):
    snapshot = of_tenants(4, *held(4, **spec), *claims(4), a={"weight": 1}, tenants={"weight": 1})
    assert schedule(snapshot).evictions == ()


@pytest.mark.parametrize("spec", PROTECTIONS.values(), ids=PROTECTIONS)
def test_protected_gangs_stay_if_a_gang_of_their_queue_has_a_higher_priority(spec):
    wants = wanting("w", 1, priority=1000, queue="tenants", **WHOLE)
    assert schedule(of_tenants(4, *held(4, **spec), wants, a={}, tenants=GUARANTEED)).evictions == ()


def test_protected_gangs_are_not_moved_for_a_guarantee_that_fits_without_evictions():
    snapshot = of_tenants(4, *held(2, **FIRM), *claims(2), a=GUARANTEED, tenants={})
    assert schedule(snapshot).evictions == ()


WAYS = {"solver": profile(), "pod by pod": profile(solver={"enabled": False})}


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    "tenants, parent, leaving",
    [
        ({}, {}, 0),
        ({"maxMinRuntimeSeconds": 3600}, {}, 1),
        ({"maxMinRuntimeSeconds": 3601}, {}, 0),
        ({}, {"maxMinRuntimeSeconds": 0}, 1),
        ({"maxMinRuntimeSeconds": 7200}, {"maxMinRuntimeSeconds": 0}, 0),
    ],
)
def test_nearest_queue_that_sets_max_min_runtime_seconds_bounds_the_protection(
    settings, tenants, parent, leaving
):
    """The gang runs for an hour."""
    queues = (queue("parent", **parent), queue("tenants", parent="parent", **tenants))
    wants = wanting("w", 1, priority=1000, queue="tenants", **WHOLE)
    snapshot = cluster(nodes(1, gpu=8), *held(1, **LASTING), wants, queues=queues)
    assert len(schedule(snapshot, settings).evictions) == leaving


@pytest.mark.properties
@given(st.integers(0, 2**32 - 1))
def test_guarantee_is_met_within_some_sessions_whatever_the_tenants_protect(seed):
    """Pods of one device each, so that no fragmentation is in the way; evicted pods are pending again."""
    dice = random.Random(seed)
    count = dice.randint(1, 3)
    guarantee = dice.randint(1, 8 * count)
    rest = 8 * count - guarantee
    queues = (queue("a", guarantee={GPU: str(guarantee)}), *_of_tenants(dice, rest))
    names = [one.name for one in queues if one.name != "a"]
    slots = [f"n{at}" for at in range(count) for _ in range(8)]
    dice.shuffle(slots)
    parts: list[Snapshot] = []
    while slots:
        size = dice.randint(1, min(4, len(slots)))
        where, slots = slots[:size], slots[size:]
        spec = dice.choice(
            ({}, FIRM, LASTING, FIRM | LASTING, {"disruptionMode": "Elastic", "minimum": 1} | FIRM)
        )
        more = {"queue": dice.choice(names), "started": dice.choice((0, 3600)), **spec}
        parts.append(running(f"t{len(parts)}", where, priority=dice.choice((0, 9)), **more))
    parts += [wanting(f"a{at}", 1, priority=0, queue="a") for at in range(guarantee)]
    snapshot = cluster(nodes(count, gpu=8), *parts, queues=queues)
    for _ in range(12):
        decision = schedule(snapshot)
        snapshot = started_now(queued_again(snapshot, gone(asked_to_leave(snapshot, decision)), decision))
        if sum(one.name.startswith("a") for one in snapshot.pods if one.node_name) == guarantee:
            return
    raise AssertionError(f"seed {seed}: the guarantee of {guarantee} is not met")


def _of_tenants(dice: random.Random, guaranteed: int) -> tuple[Queue, ...]:
    """Queues of tenants, some below a parent; their guarantees are no more than `guaranteed` together."""
    upper = dice.randint(0, guaranteed)
    lower = dice.randint(0, upper)
    specs: dict[str, dict[str, Any]] = {
        "t": {"guarantee": {GPU: str(guaranteed - upper)}},
        "org": {"guarantee": {GPU: str(upper)}},
        "org-x": {"parent": "org", "guarantee": {GPU: str(lower)}},
        "org-y": {"parent": "org"},
    }
    return tuple(queue(name, **spec) for name, spec in specs.items())


def test_running_gang_of_a_deleted_queue_does_not_fail_a_reclaim():
    snapshot = of_tenants(2, *held(2, **FIRM), *claims(2), a=GUARANTEED, tenants={})
    without = replace(snapshot, queues=snapshot.queues[:1])
    assert schedule(without).evictions == ()

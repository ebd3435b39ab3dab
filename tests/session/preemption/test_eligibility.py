"""Reclaim between queues: an entitled queue takes capacity back, others wait, and no two evict each other in turn."""

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.pod import Pod, PodStatus
from batchsched.api.snapshot import Snapshot
from batchsched.framework.runtime.registry import standard_registry
from batchsched.session.preemption.eligibility import VictimCandidates
from batchsched.session.tables.session_tables import SessionTables
from tests.session.audit import overcommitted
from tests.session.preemption.running import (
    asked_to_leave,
    at_work,
    evicted,
    gone,
    kept,
    lone,
    queued_again,
    running,
    started_now,
    wanting,
)
from tests.session.scenario import (
    NOW,
    cluster,
    group,
    nodes,
    placed,
    pod,
    priority_class,
    profile,
    queue,
    schedule,
)

GPU = "nvidia.com/gpu"
WHOLE: dict[str, Any] = {"requests": {"gpu": 8}}


def teams(count: int, *parts: Snapshot, **specs: dict[str, Any]) -> Snapshot:
    """Nodes of eight devices, and two teams: a and b."""
    queues = tuple(queue(name, **specs.get(name, {})) for name in ("a", "b"))
    return cluster(nodes(count, gpu=8), *parts, queues=queues)


def of_b(count: int, **more: Any) -> list[Snapshot]:
    return [running(f"b{at}", [f"n{at}"], queue="b", **more, **WHOLE) for at in range(count)]


def test_queue_reclaims_its_guarantee_in_one_session_and_no_more():
    wants = [wanting(f"a{at}", 1, priority=0, queue="a", **WHOLE) for at in range(4)]
    decision = schedule(
        teams(4, *of_b(4), *wants, a={"guarantee": {GPU: "16"}}, b={"guarantee": {GPU: "16"}})
    )
    assert {reason for _, reason in evicted(decision).values()} == {"Reclaimed"}
    assert len(decision.evictions) == 2
    assert set(kept(decision)) == {"a0-0", "a1-0"}


@pytest.mark.parametrize("selection", ["weight", "ordered"])
@pytest.mark.parametrize("disabled, evictions", [([], 2), (["DefaultPreemption"], 0)])
def test_no_pod_is_evicted_if_default_preemption_is_disabled(selection, disabled, evictions):
    wants = [wanting(f"a{at}", 1, priority=0, queue="a", **WHOLE) for at in range(4)]
    decision = schedule(
        teams(4, *of_b(4), *wants, a={"guarantee": {GPU: "16"}}, b={"guarantee": {GPU: "16"}}),
        profile(selection=selection, plugins={"disabled": disabled}),
    )
    assert len(decision.evictions) == evictions


def test_queue_without_a_guarantee_reclaims_its_fair_share():
    wants = [wanting(f"a{at}", 1, priority=0, queue="a", **WHOLE) for at in range(4)]
    decision = schedule(teams(4, *of_b(4), *wants, a={"weight": 1}, b={"weight": 1}))
    assert len(decision.evictions) == 2


def test_no_gang_is_reclaimed_from_a_queue_within_its_guarantee():
    wants = wanting("a0", 1, queue="a", **WHOLE)
    assert schedule(teams(2, *of_b(2), wants, a={"weight": 1}, b={"guarantee": {GPU: "16"}})).evictions == ()


def test_queue_within_its_guarantee_reclaims_whatever_the_priorities():
    wants = wanting("a0", 1, priority=-100, queue="a", **WHOLE)
    decision = schedule(teams(2, *of_b(2, priority=1000), wants, a={"guarantee": {GPU: "8"}}))
    assert len(decision.evictions) == 1


@pytest.mark.parametrize("patience, leaving", [(7200, 0), (3600, 1)])
def test_gangs_are_not_reclaimed_before_reclaim_min_runtime_seconds(patience, leaving):
    wants = wanting("a0", 1, queue="a", **WHOLE)
    specs = {"a": {"guarantee": {GPU: "8"}}, "b": {"reclaimMinRuntimeSeconds": patience}}
    assert len(schedule(teams(2, *of_b(2), wants, **specs)).evictions) == leaving


def test_victims_that_are_fair_only_one_at_a_time_are_not_evicted_together():
    """b has 16 and is entitled to 8: either gang may be taken, both may not.

    Source: kueue#14543, where adding back made the final set unfair.
    """
    wants = wanting("a0", 2, priority=0, queue="a", **WHOLE)
    decision = schedule(teams(2, *of_b(2), wants, a={"weight": 1}, b={"weight": 1}))
    assert (decision.evictions, decision.nominations) == ((), ())


@pytest.mark.parametrize("spec, leaving", [({"guarantee": {GPU: "8"}}, 4), ({"weight": 1}, 0)])
def test_eviction_of_more_than_requested_is_allowed_for_a_guarantee_and_not_for_a_fair_share(spec, leaving):
    """Clearing any node evicts two gangs of 8 GPUs for one; CPUs and pods, which have no guarantee, do not matter."""
    half: dict[str, Any] = {"requests": {"gpu": 4, "cpu": 1}, "queue": "b"}
    pairs = [("n0", "n1"), ("n0", "n2"), ("n1", "n3"), ("n2", "n3")]
    b = [running(f"b{at}", pair, **half) for at, pair in enumerate(pairs)]
    wants = wanting("a0", 1, queue="a", requests={"gpu": 8, "cpu": 2})
    assert len(schedule(teams(4, *b, wants, a=spec)).evictions) == leaving


def test_cheaper_victim_is_skipped_if_its_eviction_is_not_fair():
    """c is within its guarantee and lost the least work; b is above its own."""
    queues = (queue("a", guarantee={GPU: "8"}), queue("b", weight=1), queue("c", guarantee={GPU: "8"}))
    young = running("young", ["n1"], started=60, queue="c", **WHOLE)
    old = running("old", ["n0"], started=86400, queue="b", **WHOLE)
    wants = wanting("a0", 1, queue="a", **WHOLE)
    decision = schedule(cluster(nodes(2, gpu=8), young, old, wants, queues=queues))
    assert evicted(decision) == {"old-0": ("team/a0", "Reclaimed")}


def test_queue_that_lost_by_reclaim_does_not_reclaim_in_turn():
    """Sessions over a cluster with controllers that recreate evicted pods: the evictions end."""
    wants = [wanting(f"a{at}", 1, priority=0, queue="a", **WHOLE) for at in range(4)]
    snapshot = teams(4, *of_b(4), *wants, a={"weight": 1}, b={"weight": 1})
    seen = []
    for _ in range(6):
        decision = schedule(snapshot)
        seen.append(len(decision.evictions))
        after = gone(asked_to_leave(snapshot, decision))
        snapshot = started_now(queued_again(snapshot, after, decision))
    assert seen == [2, 0, 0, 0, 0, 0]


def test_reclaiming_gang_is_placed_on_the_nodes_cleared_for_it():
    snapshot = teams(2, *of_b(2), wanting("a0", 1, queue="a", **WHOLE), a={"guarantee": {GPU: "8"}})
    first = schedule(snapshot)
    again = schedule(gone(asked_to_leave(snapshot, first)))
    assert placed(again) == kept(first)


def test_queue_at_its_limit_reclaims_nothing_from_other_queues():
    wants = wanting("a0", 1, queue="a", **WHOLE)
    snapshot = teams(2, *of_b(2), wants, a={"guarantee": {GPU: "8"}, "limit": {GPU: "8"}})
    mine = running("a1", ["n0"], queue="a", priority=50, **WHOLE)
    crowded = replace(
        snapshot,
        pods=tuple(one for one in snapshot.pods if one.name != "b0-0") + mine.pods,
        pod_groups=snapshot.pod_groups + mine.pod_groups,
    )
    assert schedule(crowded).evictions == ()


@pytest.mark.properties
@given(st.integers(0, 2**32 - 1))
def test_reclaim_between_random_queues_comes_to_an_end(seed):
    """Evicted gangs are pending again; after some session no pod is evicted, and no node is overcommitted."""
    snapshot = _random(random.Random(seed))
    last = 0
    for session in range(12):
        decision = schedule(snapshot)
        preemptors = {one.for_.partition("/")[2] for one in decision.evictions}
        assert preemptors <= {one.pod.rpartition("-")[0] for one in decision.nominations}
        last = session if decision.evictions else last
        after = gone(asked_to_leave(snapshot, decision))
        assert not overcommitted(after, {})
        snapshot = started_now(queued_again(snapshot, after, decision))
        if session > last + 1:
            return
    raise AssertionError(f"session {last} still evicts")


@pytest.mark.properties
@given(st.integers(0, 2**32 - 1))
def test_only_a_reclaim_for_a_guarantee_leaves_a_queue_below_its_guarantee_and_no_eviction_is_without_effect(
    seed,
):
    """Such a queue was above its guarantee, and would be so with each of the gangs that it loses."""
    snapshot = _random(random.Random(seed))
    queue_of = {group.name: group.spec.queue or "" for group in snapshot.pod_groups}
    stated = {one.name: int((one.spec.guarantee or {}).get(GPU, 0)) for one in snapshot.queues}
    # Guarantees above the capacity of the cluster are scaled down.
    scale = min(1.0, 8 * len(snapshot.nodes) / max(1, sum(stated.values())))
    guarantee = {name: scale * amount for name, amount in stated.items()}
    used = dict.fromkeys(guarantee, 0)
    size: dict[str, int] = {}
    for one in snapshot.pods:
        resources = one.spec.containers[0].resources
        amount = int(resources.requests[GPU]) if resources is not None and resources.requests else 0
        gang = one.name.rpartition("-")[0]
        size[gang] = size.get(gang, 0) + amount
        used[queue_of[gang]] += amount if one.node_name else 0
    decision = schedule(snapshot)
    reclaimed = {entry.pod_group: entry.for_ for entry in decision.evictions if entry.reason == "Reclaimed"}
    evicted_gangs = {entry.pod_group for entry in decision.evictions}
    gaining = {entry.pod.rpartition("-")[0] for entry in (*decision.assignments, *decision.nominations)}
    for name in {queue_of[gang] for gang in reclaimed}:
        victims = [gang for gang in evicted_gangs if queue_of[gang] == name]
        # Gangs of the queue itself start in this session, or have nominated nodes after a preemption in the queue.
        gained = sum(size[gang] for gang in gaining if queue_of[gang] == name)
        left = used[name] - sum(size[gang] for gang in victims) + gained
        if left >= guarantee[name] or used[name] < guarantee[name]:
            continue
        assert all(left + size[gang] > guarantee[name] for gang in victims)
        for preemptor in {reclaimed[gang].partition("/")[2] for gang in victims if gang in reclaimed}:
            own = queue_of[preemptor]
            assert used[own] + size[preemptor] <= guarantee[own]


def _random(dice: random.Random) -> Snapshot:
    count = dice.randint(1, 4)
    specs: list[dict[str, Any]] = [
        {},
        {"weight": dice.randint(0, 3)},
        {"guarantee": {GPU: str(4 * dice.randint(0, count))}},
        {"priority": dice.randint(0, 3), "weight": 1},
    ]
    names = ("a", "b", "c")
    room = {f"n{at}": 8 for at in range(count)}
    parts = []
    for at in range(dice.randint(0, 5)):
        size = dice.choice((2, 4, 8))
        places: list[str] = []
        for name in sorted(room, key=lambda _: dice.random()):
            if room[name] >= size and len(places) < 2:
                room[name] -= size
                places.append(name)
        if places:
            parts.append(
                running(
                    f"r{at}",
                    places,
                    priority=dice.choice((0, 5)),
                    queue=dice.choice(names),
                    requests={"gpu": size},
                )
            )
    for at in range(dice.randint(1, 4)):
        gpu, size = dice.choice((2, 4, 8)), dice.randint(1, 3)
        more: dict[str, Any] = {"queue": dice.choice(names), "requests": {"gpu": gpu}}
        parts.append(wanting(f"w{at}", size, priority=dice.choice((0, 5, 10)), **more))
    queues = tuple(queue(name, **dice.choice(specs)) for name in names)
    return cluster(nodes(count, gpu=8), *parts, queues=queues)


HALF: dict[str, Any] = {"requests": {"gpu": 4}}


def tenants(*parts: Snapshot, **more: Any) -> dict[str, list[tuple[int, int, bool]]]:
    """By gang: pods, cost and whether it ends, of each unit."""
    tables = SessionTables(
        cluster(nodes(2, gpu=8), *parts, **more), standard_registry().create_pipeline(profile())
    )
    tables.update_pending_gangs_and_indexes()
    return {
        one.members.key: [(len(unit.pods), unit.cost, unit.ends) for unit in one.eviction_units]
        for one in VictimCandidates(tables, NOW, "batchsched").unprotected_candidates
    }


def test_gang_is_one_unit_and_a_single_pod_another():
    found = tenants(running("g", ["n0", "n1"], **HALF), pods=(lone("p", "n0", gpu=1),))
    assert {name: [unit[::2] for unit in units] for name, units in found.items()} == {
        "team/g": [(2, True)],
        "team/p": [(1, True)],
    }


def test_units_of_an_elastic_gang_are_its_surplus_pods_and_then_its_minimum():
    elastic = running("g", ["n0", "n0", "n1", "n1"], minimum=2, disruptionMode="Elastic", **HALF)
    units = tenants(elastic)["team/g"]
    assert [unit[::2] for unit in units] == [(1, False), (1, False), (2, True)]
    assert units[0][1] * 8 == units[2][1]


def test_pod_that_its_subgroup_needs_is_not_surplus():
    subs = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}]
    members = (
        at_work(pod("g-0", group="g", sub="x", gpu=1), "n0", started=0),
        *(at_work(pod(f"g-{at}", group="g", sub="y", gpu=1), "n0", started=60 * at) for at in (1, 2, 3)),
    )
    elastic = Snapshot(pods=members, pod_groups=(group("g", 2, subGroups=subs, disruptionMode="Elastic"),))
    assert [unit[::2] for unit in tenants(elastic)["team/g"]] == [(1, False), (1, False), (2, True)]


def test_cost_of_a_victim_grows_with_lost_work_and_priority():
    new, old = running("new", ["n0"], started=0, **HALF), running("old", ["n0"], started=7200, **HALF)
    high = running("high", ["n1"], started=0, priority=9, **HALF)
    small = running("small", ["n1"], started=7200, requests={"gpu": 2})
    cost = {name: units[0][1] for name, units in tenants(new, old, high, small).items()}
    assert cost["team/new"] < cost["team/small"] < cost["team/old"]
    assert cost["team/new"] < cost["team/old"]
    assert cost["team/high"] == 2 * cost["team/new"]


def test_gang_below_its_minimum_has_the_least_cost():
    broken = running("g", ["n0", "n1"], **HALF)
    rest = Snapshot(pods=broken.pods[:1], pod_groups=broken.pod_groups)
    assert tenants(rest)["team/g"] == [(1, 1, True)]


def test_gang_not_preemptible_or_below_its_minimum_runtime_is_not_a_candidate():
    young = running("young", ["n0"], minRuntimeSeconds=9999, **HALF)
    assert tenants(young, running("firm", ["n1"], preemptible=False, **HALF)) == {}


WAYS = {"solver": profile(), "pod by pod": profile(solver={"enabled": False})}
CRITICAL = 2_000_000_000
NAMED = (priority_class("system-node-critical", CRITICAL + 1000), priority_class("low", -5))


def one_node(*parts: Snapshot) -> Snapshot:
    return cluster(nodes(1, gpu=8), *parts, priority_classes=NAMED)


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("victim", [0, CRITICAL])
def test_class_of_a_podgroup_above_its_pods_evicts_no_pod(settings, victim):
    made = wanting("w", 1, priority=0, priorityClassName="system-node-critical", **WHOLE)
    snapshot = one_node(running("v", ["n0"], priority=victim, **WHOLE), made)
    assert schedule(snapshot, settings).evictions == ()


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
def test_system_critical_pods_are_not_evicted_for_lower_pods_if_their_podgroup_lowers_their_priority(
    settings,
):
    lowered = running("v", ["n0"], priority=CRITICAL, priorityClassName="low", **WHOLE)
    assert schedule(one_node(lowered, wanting("w", 1, priority=1000, **WHOLE)), settings).evictions == ()
    above = wanting("w", 1, priority=CRITICAL + 1000, **WHOLE)
    assert len(schedule(one_node(lowered, above), settings).evictions) == 1


def test_system_critical_pods_of_another_scheduler_are_not_reclaimed():
    held = [lone(f"v{at}", f"n{at}", CRITICAL, gpu=8) for at in range(2)]
    wants = wanting("a0", 1, priority=1000, queue="a", **WHOLE)
    for own in (True, False):
        pods = [one if own else of_other_scheduler(one) for one in held]
        full = Snapshot(pods=tuple(in_queue(one, "b") for one in pods))
        assert schedule(teams(2, full, wants, a={"guarantee": {GPU: "16"}})).evictions == (), own


def test_gang_with_system_critical_pods_is_not_moved_for_a_lower_gang():
    lowered = running("v", ["n0"], priority=CRITICAL, priorityClassName="low", requests={"gpu": 4})
    free = cluster(
        nodes(2, gpu=8), lowered, running("u", ["n1"], requests={"gpu": 4}), priority_classes=NAMED
    )
    wants = wanting("w", 1, priority=1, **WHOLE)
    decision = schedule(
        replace(free, pods=(*free.pods, *wants.pods), pod_groups=(*free.pod_groups, *wants.pod_groups))
    )
    assert all(name.startswith("u") for name in evicted(decision))


def of_other_scheduler(one: Pod) -> Pod:
    return msgspec.structs.replace(
        one, spec=msgspec.structs.replace(one.spec, scheduler_name="default-scheduler")
    )


def in_queue(one: Pod, name: str) -> Pod:
    labels = {**one.labels, "scheduling.batchsched.dev/queue": name}
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels=labels))


@pytest.mark.parametrize(
    "created, phase, is_evicted",
    [
        (None, "Running", True),
        (format_timestamp(NOW - 3600), "Running", True),
        (format_timestamp(NOW - 60), "Running", False),
        (format_timestamp(NOW - 3600), "Pending", False),
    ],
    ids=["without any time", "created long ago", "created recently", "not accepted by the kubelet"],
)
def test_running_pod_without_a_start_time_runs_since_its_creation(created, phase, is_evicted):
    one = running("b0", ["n0"], queue="b", **WHOLE)
    unknown = tuple(
        msgspec.structs.replace(
            member,
            metadata=msgspec.structs.replace(member.metadata, creation_timestamp=created),
            status=PodStatus(phase=phase),
        )
        for member in one.pods
    )
    snapshot = teams(
        1,
        replace(one, pods=unknown),
        wanting("a0", 1, queue="a", **WHOLE),
        a={"guarantee": {GPU: "8"}},
        b={"reclaimMinRuntimeSeconds": 600},
    )
    assert bool(schedule(snapshot).evictions) == is_evicted

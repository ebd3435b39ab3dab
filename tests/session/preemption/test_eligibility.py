"""Room for gangs of other queues: who is entitled takes back, who is not waits, and nobody does it twice."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from tests.session.scenario import NOW, cluster, group, nodes, placed, pod, profile, queue, schedule

GPU = "nvidia.com/gpu"
WHOLE: dict[str, Any] = {"requests": {"gpu": 8}}


def teams(count: int, *parts: Snapshot, **specs: dict[str, Any]) -> Snapshot:
    """Nodes of eight devices, and two teams: a and b."""
    queues = tuple(queue(name, **specs.get(name, {})) for name in ("a", "b"))
    return cluster(nodes(count, gpu=8), *parts, queues=queues)


def of_b(count: int, **more: Any) -> list[Snapshot]:
    return [running(f"b{at}", [f"n{at}"], queue="b", **more, **WHOLE) for at in range(count)]


def test_team_takes_back_its_guarantee_at_once_and_no_more_than_that():
    wants = [wanting(f"a{at}", 1, priority=0, queue="a", **WHOLE) for at in range(4)]
    decision = schedule(
        teams(4, *of_b(4), *wants, a={"guarantee": {GPU: "16"}}, b={"guarantee": {GPU: "16"}})
    )
    assert {reason for _, reason in evicted(decision).values()} == {"Reclaimed"}
    assert len(decision.evictions) == 2
    assert set(kept(decision)) == {"a0-0", "a1-0"}


def test_team_without_a_guarantee_takes_back_its_fair_share():
    wants = [wanting(f"a{at}", 1, priority=0, queue="a", **WHOLE) for at in range(4)]
    decision = schedule(teams(4, *of_b(4), *wants, a={"weight": 1}, b={"weight": 1}))
    assert len(decision.evictions) == 2


def test_nobody_takes_from_a_team_that_is_within_its_guarantee():
    wants = wanting("a0", 1, queue="a", **WHOLE)
    assert schedule(teams(2, *of_b(2), wants, a={"weight": 1}, b={"guarantee": {GPU: "16"}})).evictions == ()


def test_team_within_its_guarantee_takes_whatever_its_gangs_priority():
    wants = wanting("a0", 1, priority=-100, queue="a", **WHOLE)
    decision = schedule(teams(2, *of_b(2, priority=1000), wants, a={"guarantee": {GPU: "8"}}))
    assert len(decision.evictions) == 1


@pytest.mark.parametrize("patience, leaving", [(7200, 0), (3600, 1)])
def test_teams_gangs_are_left_alone_for_as_long_as_its_queue_says(patience, leaving):
    wants = wanting("a0", 1, queue="a", **WHOLE)
    specs = {"a": {"guarantee": {GPU: "8"}}, "b": {"reclaimMinRuntimeSeconds": patience}}
    assert len(schedule(teams(2, *of_b(2), wants, **specs)).evictions) == leaving


def test_final_set_is_fair_where_each_victim_by_itself_is():
    """b has 16 and is entitled to 8: either gang may be taken, both may not.

    Source: kueue#14543, where adding back made the final set unfair.
    """
    wants = wanting("a0", 2, priority=0, queue="a", **WHOLE)
    decision = schedule(teams(2, *of_b(2), wants, a={"weight": 1}, b={"weight": 1}))
    assert (decision.evictions, decision.nominations) == ((), ())


@pytest.mark.parametrize("spec, leaving", [({"guarantee": {GPU: "8"}}, 4), ({"weight": 1}, 0)])
def test_guarantee_is_won_back_where_gangs_leave_more_than_is_asked_for_and_a_fair_share_is_not(
    spec, leaving
):
    """Whichever node is cleared, two gangs of 8 leave for 8; CPUs and pods, which nobody guarantees, do not matter."""
    half: dict[str, Any] = {"requests": {"gpu": 4, "cpu": 1}, "queue": "b"}
    pairs = [("n0", "n1"), ("n0", "n2"), ("n1", "n3"), ("n2", "n3")]
    b = [running(f"b{at}", pair, **half) for at, pair in enumerate(pairs)]
    wants = wanting("a0", 1, queue="a", requests={"gpu": 8, "cpu": 2})
    assert len(schedule(teams(4, *b, wants, a=spec)).evictions) == leaving


def test_cheaper_gang_is_passed_over_where_taking_it_would_not_be_fair():
    """c is within its guarantee and lost the least work; b is above its own."""
    queues = (queue("a", guarantee={GPU: "8"}), queue("b", weight=1), queue("c", guarantee={GPU: "8"}))
    young = running("young", ["n1"], started=60, queue="c", **WHOLE)
    old = running("old", ["n0"], started=86400, queue="b", **WHOLE)
    wants = wanting("a0", 1, queue="a", **WHOLE)
    decision = schedule(cluster(nodes(2, gpu=8), young, old, wants, queues=queues))
    assert evicted(decision) == {"old-0": ("team/a0", "Reclaimed")}


def test_whoever_lost_by_right_does_not_take_it_back():
    """Sessions over a cluster whose controllers make evicted pods anew: it comes to rest."""
    wants = [wanting(f"a{at}", 1, priority=0, queue="a", **WHOLE) for at in range(4)]
    snapshot = teams(4, *of_b(4), *wants, a={"weight": 1}, b={"weight": 1})
    seen = []
    for _ in range(6):
        decision = schedule(snapshot)
        seen.append(len(decision.evictions))
        after = gone(asked_to_leave(snapshot, decision))
        snapshot = started_now(queued_again(snapshot, after, decision))
    assert seen == [2, 0, 0, 0, 0, 0]


def test_guaranteed_team_binds_where_room_was_made_for_it():
    snapshot = teams(2, *of_b(2), wanting("a0", 1, queue="a", **WHOLE), a={"guarantee": {GPU: "8"}})
    first = schedule(snapshot)
    again = schedule(gone(asked_to_leave(snapshot, first)))
    assert placed(again) == kept(first)


def test_user_of_a_queue_with_a_limit_gets_room_in_it_alone():
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
def test_queues_that_take_from_each_other_come_to_rest(seed):
    """Whoever is evicted queues again; from some session on nobody has to leave, and nothing is overcommitted."""
    snapshot = _random(random.Random(seed))
    last = 0
    for session in range(12):
        decision = schedule(snapshot)
        for_whom = {one.for_.partition("/")[2] for one in decision.evictions}
        assert for_whom <= {one.pod.rpartition("-")[0] for one in decision.nominations}
        last = session if decision.evictions else last
        after = gone(asked_to_leave(snapshot, decision))
        assert not overcommitted(after, {})
        snapshot = started_now(queued_again(snapshot, after, decision))
        if session > last + 1:
            return
    raise AssertionError(f"session {last} still evicts")


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
    tables = SessionTables(cluster(nodes(2, gpu=8), *parts, **more), standard_registry().pipeline(profile()))
    tables.refresh()
    return {
        one.members.key: [(len(unit.pods), unit.cost, unit.ends) for unit in one.units]
        for one in VictimCandidates(tables, NOW, "batchsched").candidates
    }


def test_gang_is_one_unit_and_a_pod_alone_another():
    found = tenants(running("g", ["n0", "n1"], **HALF), pods=(lone("p", "n0", gpu=1),))
    assert {name: [unit[::2] for unit in units] for name, units in found.items()} == {
        "team/g": [(2, True)],
        "team/p": [(1, True)],
    }


def test_elastic_gang_is_its_surplus_pod_by_pod_and_then_its_minimum():
    elastic = running("g", ["n0", "n0", "n1", "n1"], minimum=2, disruptionMode="Elastic", **HALF)
    units = tenants(elastic)["team/g"]
    assert [unit[::2] for unit in units] == [(1, False), (1, False), (2, True)]
    assert units[0][1] * 8 == units[2][1]


def test_pod_that_its_subgroup_needs_is_no_surplus_and_others_may_still_be():
    subs = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}]
    members = (
        at_work(pod("g-0", group="g", sub="x", gpu=1), "n0", started=0),
        *(at_work(pod(f"g-{at}", group="g", sub="y", gpu=1), "n0", started=60 * at) for at in (1, 2, 3)),
    )
    elastic = Snapshot(pods=members, pod_groups=(group("g", 2, subGroups=subs, disruptionMode="Elastic"),))
    assert [unit[::2] for unit in tenants(elastic)["team/g"]] == [(1, False), (1, False), (2, True)]


def test_work_that_is_lost_costs_and_so_does_a_priority():
    new, old = running("new", ["n0"], started=0, **HALF), running("old", ["n0"], started=7200, **HALF)
    high = running("high", ["n1"], started=0, priority=9, **HALF)
    cost = {name: units[0][1] for name, units in tenants(new, old, high).items()}
    assert cost["team/new"] < cost["team/old"]
    assert cost["team/high"] == 2 * cost["team/new"]


def test_gang_that_lost_its_minimum_costs_next_to_nothing():
    broken = running("g", ["n0", "n1"], **HALF)
    rest = Snapshot(pods=broken.pods[:1], pod_groups=broken.pod_groups)
    assert tenants(rest)["team/g"] == [(1, 1, True)]


def test_who_is_not_preemptible_or_has_not_run_for_its_minimum_is_no_tenant():
    young = running("young", ["n0"], minRuntimeSeconds=9999, **HALF)
    assert tenants(young, running("firm", ["n1"], preemptible=False, **HALF)) == {}

"""Preemption by priority: the chosen victims, nominated capacity, and gangs that are never evicted."""

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.pod import LAST_CHECKPOINT
from batchsched.api.decision import without_measured_durations
from batchsched.api.snapshot import Snapshot
from tests.session.audit import overcommitted
from tests.session.preemption.running import (
    asked_to_leave,
    at_work,
    budget,
    draw_places,
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
    gang,
    group,
    node,
    nodes,
    placed,
    pod,
    profile,
    queue,
    schedule,
    topology,
)

WHOLE: dict[str, Any] = {"requests": {"gpu": 8}}


def full(count: int, *parts: Snapshot, **more: Any) -> Snapshot:
    """Nodes of eight devices each."""
    return cluster(nodes(count, gpu=8), *parts, **more)


def test_gang_of_higher_priority_preempts_one_of_lower_priority():
    decision = schedule(full(2, running("low", ["n0", "n1"], **WHOLE), wanting("high", 2, **WHOLE)))
    assert evicted(decision) == {"low-0": ("team/high", "Preempted"), "low-1": ("team/high", "Preempted")}
    assert kept(decision) == {"high-0": "n0", "high-1": "n1"}
    assert placed(decision) == {}
    assert [one.pod_group for one in decision.evictions] == ["low", "low"]
    assert "2 pods are evicted for it" in decision.refusals[0].message


@pytest.mark.parametrize("priority", [0, -5])
def test_gang_of_equal_or_lower_priority_evicts_no_pod(priority):
    snapshot = full(2, running("low", ["n0", "n1"], **WHOLE), wanting("high", 2, priority=priority, **WHOLE))
    assert schedule(snapshot).evictions == ()


def test_gang_with_preemption_policy_never_evicts_no_pod():
    waits = wanting("high", 2, preemptionPolicy="Never", **WHOLE)
    assert schedule(full(2, running("low", ["n0", "n1"], **WHOLE), waits)).evictions == ()


def test_no_pod_is_evicted_without_a_post_filter_plugin():
    snapshot = full(2, running("low", ["n0", "n1"], **WHOLE), wanting("high", 2, **WHOLE))
    settings = profile(plugins={"postFilter": {"disabled": [{"name": "*"}]}})
    assert schedule(snapshot, settings).evictions == ()


def test_gang_of_48_gpus_evicts_48_of_376_gpus():
    """Source: the regression of a peer that the issue on queues names."""
    gangs = [running(f"g{at}", [f"n{at}"], **WHOLE) for at in range(47)]
    decision = schedule(full(47, *gangs, wanting("high", 6, **WHOLE)))
    assert len(decision.evictions) == 6
    assert len(decision.nominations) == 6


def test_gang_with_the_least_lost_work_is_evicted():
    old, young = running("old", ["n0"], started=86400, **WHOLE), running("young", ["n1"], started=60, **WHOLE)
    assert evicted(schedule(full(2, old, young, wanting("high", 1, **WHOLE)))).keys() == {"young-0"}


def test_work_before_the_last_checkpoint_does_not_count_as_lost():
    old, young = (
        running("old", ["n0"], started=86400, **WHOLE),
        running("young", ["n1"], started=7200, **WHOLE),
    )
    stamp = {LAST_CHECKPOINT: format_timestamp(NOW - 60)}
    saved = replace(
        old,
        pods=tuple(
            msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, annotations=stamp))
            for one in old.pods
        ),
    )
    assert evicted(schedule(full(2, saved, young, wanting("high", 1, **WHOLE)))).keys() == {"old-0"}


def test_gang_of_the_lowest_priority_is_evicted_first():
    low, middle = running("low", ["n0"], priority=0, **WHOLE), running("middle", ["n1"], priority=5, **WHOLE)
    assert evicted(schedule(full(2, low, middle, wanting("high", 1, **WHOLE)))).keys() == {"low-0"}


def test_all_pods_of_a_gang_are_evicted_even_for_one_pod():
    decision = schedule(full(3, running("low", ["n0", "n1", "n2"], **WHOLE), wanting("high", 1, **WHOLE)))
    assert len(decision.evictions) == 3
    assert len(decision.nominations) == 1


def test_surplus_of_a_gang_that_is_not_elastic_is_not_evicted_alone():
    low = running("low", ["n0", "n1", "n2"], minimum=1, **WHOLE)
    assert len(schedule(full(3, low, wanting("high", 1, **WHOLE))).evictions) == 3


@pytest.mark.parametrize("wanted, leaving", [(1, 1), (2, 2), (3, 3)])
def test_surplus_of_an_elastic_gang_is_evicted_pod_by_pod_before_its_minimum(wanted, leaving):
    low = running("low", ["n0", "n1", "n2"], minimum=1, disruptionMode="Elastic", **WHOLE)
    assert len(schedule(full(3, low, wanting("high", wanted, **WHOLE))).evictions) == leaving


@pytest.mark.parametrize("place", ["n0", "n1", "n2"])
def test_surplus_pod_on_the_node_that_the_gang_needs_is_evicted_alone(place):
    low = running("low", ["n0", "n1", "n2"], minimum=2, disruptionMode="Elastic", **WHOLE)
    want = wanting("want", 1, **WHOLE)
    (waiting,) = want.pods
    chosen = msgspec.structs.replace(waiting.spec, node_selector={"kubernetes.io/hostname": place})
    want = replace(want, pods=(msgspec.structs.replace(waiting, spec=chosen),))
    decision = schedule(cluster(nodes(3, gpu=8), low, want))
    assert evicted(decision).keys() == {f"low-{place[1:]}"}


def test_two_gangs_evict_no_more_of_an_elastic_gang_than_its_surplus_and_then_its_minimum():
    """The first gang takes the surplus on its node, so that the second one can only evict the whole gang."""
    low = running("low", ["n0", "n1"], minimum=1, disruptionMode="Elastic", **WHOLE)
    wants = [wanting(f"want{at}", 1, age=9 - at, **WHOLE) for at in range(2)]
    pinned = tuple(
        msgspec.structs.replace(
            one.pods[0],
            spec=msgspec.structs.replace(
                one.pods[0].spec, node_selector={"kubernetes.io/hostname": f"n{1 - at}"}
            ),
        )
        for at, one in enumerate(wants)
    )
    parts = [replace(one, pods=(each,)) for one, each in zip(wants, pinned, strict=True)]
    decision = schedule(cluster(nodes(2, gpu=8), low, *parts))
    assert evicted(decision) == {
        "low-1": ("team/want0", "Preempted"),
        "low-0": ("team/want1", "Preempted"),
    }


def test_minimum_of_an_elastic_gang_is_evicted_completely_or_not_at_all():
    low = running("low", ["n0", "n1", "n2"], minimum=2, disruptionMode="Elastic", **WHOLE)
    assert [len(schedule(full(3, low, wanting("high", n, **WHOLE))).evictions) for n in (1, 2, 3)] == [
        1,
        3,
        3,
    ]


@pytest.mark.parametrize("spec", [{"preemptible": False}, {"minRuntimeSeconds": 7200}])
def test_gang_not_preemptible_or_below_its_minimum_runtime_is_never_evicted(spec):
    low = running("low", ["n0", "n1"], **spec, **WHOLE)
    decision = schedule(full(2, low, wanting("high", 2, **WHOLE)))
    assert decision.evictions == ()
    assert decision.nominations == ()


def test_gang_past_its_minimum_runtime_may_be_evicted():
    low = running("low", ["n0"], minRuntimeSeconds=3600, **WHOLE)
    assert len(schedule(full(1, low, wanting("high", 1, **WHOLE))).evictions) == 1


def test_disruption_budget_protects_a_cheaper_victim_and_is_never_exceeded():
    cheap = lone("cheap", "n0", gpu=8)
    cheap = msgspec.structs.replace(
        cheap, metadata=msgspec.structs.replace(cheap.metadata, labels={"app": "web"})
    )
    dear = running("dear", ["n1"], priority=5, **WHOLE)
    snapshot = full(2, dear, wanting("high", 1, **WHOLE), pods=(cheap,))
    assert evicted(schedule(snapshot)).keys() == {"cheap"}
    guarded = replace(snapshot, pod_disruption_budgets=(budget(0, app="web"),))
    assert evicted(schedule(guarded)).keys() == {"dear-0"}
    both = replace(
        full(2, dear, wanting("high", 2, **WHOLE), pods=(cheap,)),
        pod_disruption_budgets=(budget(0, app="web"),),
    )
    assert schedule(both).evictions == ()


def test_gang_that_no_eviction_makes_fit_evicts_no_pod():
    low = running("low", ["n0", "n1"], **WHOLE)
    decision = schedule(full(2, low, wanting("high", 3, **WHOLE)))
    assert (decision.evictions, decision.nominations) == ((), ())


def test_gang_with_a_required_rack_evicts_pods_of_one_rack_only():
    racks = [node(f"n{at}", {"rack": f"r{at // 2}"}, gpu=8) for at in range(6)]
    gangs = [running(f"g{at}", [f"n{at}"], started=60 + at, **WHOLE) for at in (0, 2, 3, 5)]
    dear = [running(f"d{at}", [f"n{at}"], priority=5, **WHOLE) for at in (1, 4)]
    high = wanting("high", 2, topology={"required": "rack"}, **WHOLE)
    decision = schedule(cluster(racks, *gangs, *dear, high, topologies=(topology("rack"),)))
    assert evicted(decision).keys() == {"g2-0", "g3-0"}
    assert set(kept(decision).values()) == {"n2", "n3"}


def test_gang_of_a_queue_at_its_limit_preempts_within_that_queue():
    low, other = (running(name, ["n0"], queue=name, requests={"gpu": 4}) for name in ("q", "r"))
    high = wanting("high", 1, queue="q", requests={"gpu": 4})
    queues = (queue("q", limit={"nvidia.com/gpu": "4"}), queue("r"))
    assert evicted(schedule(full(2, low, other, high, queues=queues))) == {"q-0": ("team/high", "Preempted")}


def test_gang_of_higher_priority_does_not_preempt_in_another_queue():
    low = running("low", ["n0"], queue="q", **WHOLE)
    assert schedule(full(1, low, wanting("high", 1, **WHOLE), queues=(queue("q"),))).evictions == ()


def test_sessions_decide_the_same_while_victims_terminate():
    snapshot = full(
        3,
        running("low", ["n0", "n1"], **WHOLE),
        running("other", ["n2"], **WHOLE),
        wanting("high", 2, **WHOLE),
    )
    first = schedule(snapshot)
    leaving = asked_to_leave(snapshot, first)
    second = schedule(leaving)
    assert second.evictions == ()
    assert kept(second) == kept(first)
    assert without_measured_durations(
        schedule(asked_to_leave(leaving, second))
    ) == without_measured_durations(second)


def test_nominated_capacity_is_kept_until_the_preemptor_binds():
    """Gangs of its tier and below stay pending, although they would fit while it cannot start yet."""
    snapshot = full(2, running("low", ["n1"], **WHOLE), wanting("high", 2, **WHOLE))
    first = schedule(snapshot)
    late = wanting("late", 1, age=1e6, **WHOLE)
    below = wanting("below", 1, priority=1, **WHOLE)
    leaving = asked_to_leave(snapshot, first)
    crowded = replace(
        leaving,
        pods=leaving.pods + late.pods + below.pods,
        pod_groups=leaving.pod_groups + late.pod_groups + below.pod_groups,
    )
    second = schedule(crowded)
    assert (placed(second), second.evictions) == ({}, ())
    assert kept(second) == kept(first)
    third = schedule(gone(crowded))
    assert set(placed(third)) == {"high-0", "high-1"}


def test_nominated_capacity_is_kept_for_a_resting_preemptor():
    snapshot = full(2, running("low", ["n1"], **WHOLE), wanting("high", 2, **WHOLE))
    first = schedule(snapshot)
    leaving = asked_to_leave(snapshot, first)
    late = wanting("late", 1, **WHOLE)
    resting = replace(
        leaving,
        pods=leaving.pods + late.pods,
        pod_groups=leaving.pod_groups + late.pod_groups,
        resting=("team/high",),
    )
    second = schedule(resting)
    assert placed(second) == {}
    assert kept(second) == kept(first)


def with_leaving_pod(capacity: int, waiting: Snapshot, nominees: int, **more: Any) -> Snapshot:
    """One node that a leaving pod fills, and a gang with its first pods nominated for this node."""
    leaving = at_work(pod("old", gpu=capacity), "n0")
    stamp = msgspec.structs.replace(leaving.metadata, deletion_timestamp=format_timestamp(NOW + 30))
    leaving = msgspec.structs.replace(leaving, metadata=stamp)
    nominated = tuple(
        msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, nominated_node_name="n0"))
        for one in waiting.pods[:nominees]
    )
    waiting = replace(waiting, pods=nominated + waiting.pods[nominees:])
    return cluster(nodes(1, gpu=capacity), waiting, pods=(leaving,), **more)


DIVIDED = (queue("default", weight=1), queue("other", weight=1))


@pytest.mark.parametrize("queues", [(), DIVIDED])
def test_gang_with_nominated_pods_of_one_subgroup_only_is_nominated_with_all_pods_that_it_needs(queues):
    subgroups = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]
    pods = tuple(pod(f"a-{at}", group="g", sub="a", gpu=1) for at in range(3))
    pods += (pod("b-0", group="g", sub="b", gpu=1),)
    waiting = Snapshot(pods=pods, pod_groups=(group("g", 2, subGroups=subgroups),))
    decision = schedule(with_leaving_pod(4, waiting, 3, queues=queues))
    assert kept(decision).keys() == {"a-0", "b-0"}


@pytest.mark.parametrize("queues", [(), DIVIDED])
def test_gang_keeps_the_nominations_that_fit_if_they_meet_its_minimum(queues):
    decision = schedule(with_leaving_pod(2, gang("g", 3, 2), 3, queues=queues))
    assert kept(decision).keys() == {"g-0", "g-1"}
    assert "its places are kept by nomination" in decision.refusals[0].message


def test_gang_of_higher_priority_takes_capacity_nominated_for_a_lower_one():
    snapshot = full(2, running("low", ["n1"], **WHOLE), wanting("high", 2, **WHOLE))
    leaving = asked_to_leave(snapshot, schedule(snapshot))
    top = wanting("top", 1, priority=99, **WHOLE)
    crowded = replace(leaving, pods=leaving.pods + top.pods, pod_groups=leaving.pod_groups + top.pod_groups)
    assert placed(schedule(crowded)) == {"top-0": "n0"}


def test_evicted_gang_never_evicts_its_preemptor():
    snapshot = full(2, running("low", ["n0", "n1"], **WHOLE), wanting("high", 2, **WHOLE))
    seen = 0
    for _ in range(5):
        decision = schedule(snapshot)
        seen += len(decision.evictions)
        after = gone(asked_to_leave(snapshot, decision))
        snapshot = started_now(queued_again(snapshot, after, decision))
    assert seen == 2


def test_refused_eviction_of_a_gang_member_is_requested_again():
    """One of two evictions was refused by the API server: the next session asks for the same pod again."""
    snapshot = full(
        3,
        running("low", ["n0", "n1"], started=86400, **WHOLE),
        running("other", ["n2"], **WHOLE),
        wanting("high", 2, **WHOLE),
    )
    first = schedule(snapshot)
    assert {one.pod_group for one in first.evictions} == {"low"}
    half = msgspec.structs.replace(first, evictions=first.evictions[:1])
    second = schedule(gone(asked_to_leave(snapshot, half)))
    assert evicted(second).keys() == {"low-1"}
    assert kept(second) == kept(first)


def test_pod_that_terminates_for_too_long_is_not_waited_for():
    stuck = at_work(pod("stuck", gpu=8), "n0")
    stuck = msgspec.structs.replace(
        stuck,
        metadata=msgspec.structs.replace(stuck.metadata, deletion_timestamp=format_timestamp(NOW - 3600)),
    )
    low = running("low", ["n1"], **WHOLE)
    decision = schedule(full(2, low, wanting("high", 1, **WHOLE), pods=(stuck,)))
    assert evicted(decision).keys() == {"low-0"}


def test_pod_without_a_pod_group_is_preempted():
    snapshot = full(1, wanting("high", 1, **WHOLE), pods=(lone("web", "n0", gpu=8),))
    assert evicted(schedule(snapshot)) == {"web": ("team/high", "Preempted")}


@pytest.mark.properties
@given(st.integers(0, 2**32 - 1))
def test_sessions_over_random_clusters_settle_without_evicting_protected_gangs(seed):
    """Until no session changes anything: no protected gang is evicted, and each eviction has a nominated preemptor."""
    snapshot = _random(seed)
    protected = {
        one.name for one in snapshot.pod_groups if not one.spec.preemptible or one.spec.min_runtime_seconds
    }
    for _ in range(9):
        decision = schedule(snapshot)
        assert not {one.pod_group for one in decision.evictions} & protected
        preemptors = {one.for_ for one in decision.evictions}
        nominated = {one.pod.rpartition("-")[0] for one in decision.nominations}
        assert {one.partition("/")[2] for one in preemptors} <= nominated
        after = gone(asked_to_leave(snapshot, decision))
        assert not overcommitted(after, {})
        snapshot = started_now(after)
        if not decision.evictions and not decision.assignments:
            return
    raise AssertionError("the sessions do not settle")


def _random(seed: int) -> Snapshot:
    dice = random.Random(seed)
    count = dice.randint(1, 5)
    room = {f"n{at}": 8 for at in range(count)}
    parts = []
    for at in range(dice.randint(0, 6)):
        size, pods = dice.choice((2, 4, 8)), dice.randint(1, 3)
        places = draw_places(dice, room, size, pods)
        spec = dice.choice(
            ({}, {}, {"preemptible": False}, {"minRuntimeSeconds": 7200}, {"disruptionMode": "Elastic"})
        )
        if places:
            least = dice.randint(1, len(places)) if "disruptionMode" in spec else None
            parts.append(
                running(
                    f"r{at}",
                    places,
                    priority=dice.choice((0, 0, 5)),
                    minimum=least,
                    requests={"gpu": size},
                    **spec,
                )
            )
    for at in range(dice.randint(1, 3)):
        pods = dice.randint(1, 4)
        parts.append(
            wanting(
                f"w{at}",
                pods,
                dice.randint(1, pods),
                priority=dice.choice((0, 5, 10)),
                requests={"gpu": dice.choice((2, 4, 8))},
            )
        )
    return full(count, *parts)


MOVING = profile(consolidate=True)
HALF: dict[str, Any] = {"requests": {"gpu": 4}}


def scattered(priority: int = 0, wanted: int = 0, **more: Any) -> Snapshot:
    """Two half-full nodes, and a gang that requests a whole one."""
    halves = [
        running(f"g{at}", [f"n{at}"], priority=priority, started=60 * at, **more, **HALF) for at in (0, 1)
    ]
    whole = wanting("whole", 1, priority=wanted, requests={"gpu": 8})
    return cluster(nodes(2, gpu=8), *halves, whole)


def test_consolidation_evicts_a_gang_to_free_a_whole_node():
    decision = schedule(scattered(), MOVING)
    assert evicted(decision) == {"g0-0": ("team/whole", "Consolidated")}
    assert {one.pod: one.node for one in decision.nominations} == {"whole-0": "n0"}


def test_consolidated_gang_is_placed_on_another_node_afterwards():
    snapshot = scattered()
    first = schedule(snapshot, MOVING)
    after = queued_again(snapshot, gone(asked_to_leave(snapshot, first)), first)
    second = schedule(after, MOVING)
    assert placed(second) == {"whole-0": "n0", "g0-0": "n1"}
    assert second.evictions == ()


def test_no_gang_is_consolidated_unless_the_profile_enables_it():
    assert schedule(scattered()).evictions == ()


@pytest.mark.parametrize(
    "snapshot", [scattered(priority=5), scattered(preemptible=False), scattered(minRuntimeSeconds=9999)],
    ids=["higher priority", "not preemptible", "minimum run time"],
)  # fmt: skip
def test_gang_that_may_not_be_evicted_is_not_consolidated(snapshot):
    assert schedule(snapshot, MOVING).evictions == ()


def test_gang_that_fits_on_no_other_node_is_not_consolidated():
    full = running("full", ["n2", "n2"], **HALF)
    lone = running("lone", ["n0"], requests={"gpu": 5})
    other = running("other", ["n1"], requests={"gpu": 5})
    whole = wanting("whole", 1, priority=0, requests={"gpu": 6})
    assert schedule(cluster(nodes(3, gpu=8), full, lone, other, whole), MOVING).evictions == ()


def test_consolidated_gang_counts_once_against_the_limit_of_its_queue():
    halves = [running(f"g{at}", [f"n{at}"], queue="q", **HALF) for at in (0, 1)]
    whole = wanting("whole", 1, priority=0, requests={"gpu": 8})
    queues = (queue("q", limit={"nvidia.com/gpu": "8"}),)
    decision = schedule(cluster(nodes(2, gpu=8), *halves, whole, queues=queues), MOVING)
    assert len(decision.evictions) == 1

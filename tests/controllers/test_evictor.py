"""Preemption, carried out: nominations are written first, then victims are evicted, and the preemptor is bound."""

from dataclasses import replace

import msgspec
import pytest

from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from tests.service.town import Town
from tests.session.clusters import on
from tests.session.scenario import alone, cluster, gang, nodes, pod, profile

PODWISE = profile(solver={"enabled": False})
BOTH = pytest.mark.parametrize("settings", [PODWISE, profile()], ids=["podwise", "solver"])


def contended(settings: Profile = PODWISE) -> Town:
    low = on(pod("low", priority=0, gpu=1), "n0")
    return Town(cluster(nodes(1, gpu=1), replace(alone(0), pods=(low,))), settings)


@BOTH
async def test_room_of_an_evicted_pod_is_kept_for_the_preemptor(settings):
    town = contended(settings)
    town.make([pod("high", priority=10, gpu=1)])
    await town.turn()
    assert town.server.evicted == ["team/low"]
    assert town.server.pods["team/high"].status.nominated_node_name == "n0"
    town.make([pod("quick", priority=5, gpu=1)])
    town.delete("low")
    await town.turns(3)
    assert set(town.bound) == {"high"}


@BOTH
async def test_victim_is_evicted_once(settings):
    town = contended(settings)
    town.make([pod("high", priority=10, gpu=1)])
    await town.turns(5)
    assert town.server.evicted == ["team/low"]


@BOTH
async def test_eviction_refused_by_a_budget_is_retried_later(settings):
    town = contended(settings)
    town.server.budgets.add("team/low")
    town.make([pod("high", priority=10, gpu=1)])
    await town.turns(5)
    assert town.server.evicted == []
    town.server.budgets.clear()
    await town.turns(10)
    assert town.server.evicted == ["team/low"]


async def test_nomination_is_cleared_if_the_pod_may_be_placed_on_another_node():
    town = contended()
    town.make([pod("high", priority=10, gpu=1)])
    await town.turn()
    high = town.server.pods["team/high"]
    spec = msgspec.structs.replace(high.spec, node_selector={"disk": "none"})
    town.make([msgspec.structs.replace(high, spec=spec)])
    await town.turns(3)
    assert town.server.pods["team/high"].status.nominated_node_name in ("", "n0")
    assert "high" not in town.bound


async def test_no_pod_is_nominated_without_a_victim():
    town = Town(cluster(nodes(1, gpu=1), alone(2, gpu=1)))
    await town.turns(3)
    assert all(not one.status.nominated_node_name for one in town.server.pods.values())


def crowded(settings: Profile, *more: Pod) -> Town:
    """Four nodes with a pod of low priority on each, and a gang of high priority that needs `minMember` of them."""
    low = [on(pod(f"low-{number}", priority=0, gpu=1), f"n{number}") for number in range(4)]
    return Town(cluster(nodes(4, gpu=1), replace(alone(0), pods=(*low, *more))), settings)


def high(count: int) -> Snapshot:
    return gang("high", count, requests={"gpu": 1, "priority": 10})


async def test_no_victim_is_evicted_if_one_eviction_of_the_plan_is_refused():
    town = crowded(profile())
    town.server.denied.add("team/low-2")
    urgent = high(4)
    town.cache.put(urgent.pod_groups[0])
    town.make(urgent.pods)
    await town.turns(30)
    assert town.server.evicted == []
    assert {one.status.nominated_node_name for one in town.server.pods.values()} == {""}


@BOTH
async def test_next_plan_leaves_out_the_victim_with_a_refused_eviction(settings):
    town = crowded(settings)
    town.make([pod("high", priority=10, gpu=1)])
    town.server.denied.update({"team/low-0", "team/low-1", "team/low-2"})
    await town.turns(60)
    assert town.server.evicted == ["team/low-3"]
    assert town.server.pods["team/high"].status.nominated_node_name == "n3"


@BOTH
async def test_refused_eviction_is_forgotten_after_some_minutes(settings):
    town = contended(settings)
    town.server.denied.add("team/low")
    town.make([pod("high", priority=10, gpu=1)])
    await town.turns(5)
    town.server.denied.clear()
    await town.turns(60)
    assert town.server.evicted == []
    await town.turns(60, seconds=10.0)
    assert town.server.evicted == ["team/low"]


async def test_room_of_a_failed_plan_is_free_for_other_pods():
    town = crowded(profile())
    town.server.denied_late.add("team/low-2")
    urgent = high(4)
    town.cache.put(urgent.pod_groups[0])
    town.make(urgent.pods)
    await town.turns(2)
    assert len(town.server.evicted) == 3
    for key in town.server.evicted:
        town.delete(key.removeprefix("team/"))
    town.make([pod("next", priority=5, gpu=1)])
    await town.turns(15)
    assert "next" in town.bound


async def test_no_second_plan_is_made_for_a_gang_while_its_dry_runs_get_no_answer():
    town = crowded(profile())
    town.server.answer.clear()
    town.make([pod("high", priority=10, gpu=1)])
    await town.turns(20)
    assert (town.server.dry_runs, town.server.evicted) == (1, [])
    town.server.answer.set()
    await town.turns(2)
    assert len(town.server.evicted) == 1


async def test_plan_of_a_session_that_began_before_the_last_plan_ended_is_dropped():
    town = crowded(profile())
    town.make([pod("high", priority=10, gpu=1)])
    await town.turn()
    (evicted,) = town.server.evicted
    decision = town.decisions[-1]
    other = next(name for name in ("low-0", "low-1") if evicted != f"team/{name}")
    second = msgspec.structs.replace(
        decision, evictions=(msgspec.structs.replace(decision.evictions[0], pod=other),)
    )
    town.clock.turn(1.0)
    town.disruptions.start_nominations_and_evictions(town.profile_scheduler, second, took=2.0)
    await town.turn()
    assert town.server.evicted == [evicted]
    town.disruptions.start_nominations_and_evictions(town.profile_scheduler, second, took=0.5)
    await town.turn()
    assert town.server.evicted == [evicted, f"team/{other}"]


async def test_pod_that_an_evicted_one_became_after_a_restore_of_the_api_server_is_evicted_again():
    town = contended()
    before = town.server.pods["team/low"]
    town.make([pod("high", priority=10, gpu=1)])
    await town.turns(3)
    town.server.pods["team/low"] = before
    town.cache.replace(Pod, list(town.server.pods.values()))
    await town.turns(120, 3.0)  # a refused pod is tried again after five minutes
    assert town.server.evicted == ["team/low", "team/low"]

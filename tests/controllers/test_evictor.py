"""Preemption, carried out: nominations are written first, then victims are evicted, and the preemptor is bound."""

from dataclasses import replace

import msgspec
import pytest

from batchsched.config.schema import Profile
from tests.service.town import Town
from tests.session.clusters import on
from tests.session.scenario import alone, cluster, nodes, pod, profile

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

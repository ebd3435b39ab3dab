"""Backoffs and timeouts end on time when the clock of the machine is set."""

import pytest

from batchsched.errors import BindFailed
from tests.controllers.test_evictor import contended
from tests.controllers.test_recovery import partially_bound, unconfirmed
from tests.service.town import TTL, Town
from tests.session.scenario import alone, cluster, gang, node, nodes, pod

HOUR = 3600.0
jumps = pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["back", "forward"])


@jumps
async def test_pod_with_a_failed_binding_is_bound_after_its_backoff(jump):
    town = Town(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    town.fail("solo-0", BindFailed("no"))
    await town.turn()
    town.mend()
    await town.turn(0.1)
    town.clock.set_by = jump
    await town.turns(3)
    assert set(town.bound) == {"solo-0"}


@jumps
async def test_refused_gang_that_fits_is_bound_while_other_pods_arrive(jump):
    town = Town(cluster(nodes(1, gpu=1), gang("bert", 2)))
    await town.turns(2)
    town.clock.set_by = jump
    town.cache.put(node("more", gpu=1))
    for at in range(3):
        town.make([pod(f"other-{at}", cpu=1)])
        await town.turn(1.0)
    assert {"bert-0", "bert-1"} <= set(town.bound)


async def test_refused_gang_is_tried_again_after_five_minutes_without_an_event():
    town = Town(cluster(nodes(1, gpu=1), gang("bert", 2)))
    await town.turns(2)
    town.clock.set_by = -HOUR
    await town.turns(40, 10)
    assert len(town.decisions) == 2


async def test_session_decides_with_the_time_of_the_clock():
    town = Town(cluster(nodes(1, gpu=1), gang("bert", 2)))
    town.profile_scheduler.recording = True
    town.clock.set_by = -HOUR
    await town.turn()
    asked = town.profile_scheduler.session_input
    assert asked is not None
    assert asked.now == town.clock.now()


async def test_victim_with_a_refused_eviction_is_evicted_after_some_minutes():
    town = contended()
    town.server.denied.add("team/low")
    town.make([pod("high", priority=10, gpu=1)])
    await town.turns(5)
    town.server.denied.clear()
    town.clock.set_by = -HOUR
    await town.turns(60, seconds=10.0)
    assert town.server.evicted == ["team/low"]


@jumps
async def test_partially_bound_gang_is_rolled_back_after_its_timeout_and_not_before(jump):
    town = Town(cluster(nodes(2, gpu=1), partially_bound(3, scheduleTimeoutSeconds=30)))
    await town.turns(10)
    town.clock.set_by = jump
    town.make([pod("bert-3", group="bert", gpu=9)])
    await town.turns(19)
    assert town.server.evicted == []
    await town.turns(3)
    assert town.server.evicted == ["team/bert-0"]


async def test_rollback_refused_by_a_budget_is_tried_again():
    town = Town(cluster(nodes(2, gpu=1), partially_bound(3, scheduleTimeoutSeconds=5)))
    town.server.budgets.add("team/bert-0")
    await town.turns(8)
    town.server.budgets.clear()
    town.clock.set_by = -HOUR
    await town.turns(12)
    assert town.server.evicted == ["team/bert-0"]


async def test_binding_without_an_event_is_confirmed_by_a_read():
    town = await unconfirmed()
    town.clock.set_by = -HOUR
    await town.turn(TTL, watch=False)
    assert town.assumed == set()

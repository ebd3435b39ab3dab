"""Pods that were bound, and that no watch confirms, are read before they are doubted."""

from tests.service.town import TTL, Town
from tests.session.scenario import alone, cluster, nodes


async def unconfirmed() -> Town:
    """A town in which a pod was bound, and the watch says nothing."""
    town = Town(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    await town.turn(watch=False)
    assert town.assumed == {"solo-0"}
    return town


async def test_pod_that_is_found_where_it_should_be_is_confirmed():
    town = await unconfirmed()
    await town.turn(TTL, watch=False)
    assert town.assumed == set()
    assert town.cache.get("pods", "team/solo-0").node == "n0"
    assert len(town.told) == 1


async def test_pod_that_is_found_waiting_is_placed_again():
    town = await unconfirmed()
    town.server.pods["team/solo-0"] = town.server.keep(alone(1, gpu=1).pods[0])
    town.cache.put(town.server.pods["team/solo-0"])
    await town.turn(TTL, watch=False)
    await town.turn(TTL, watch=False)
    assert len(town.told) == 2


async def test_pod_that_is_gone_is_forgotten():
    town = await unconfirmed()
    town.server.pods.clear()
    await town.turn(TTL, watch=False)
    assert town.cache.get("pods", "team/solo-0") is None


async def test_nobody_is_doubted_before_its_time():
    town = await unconfirmed()
    town.server.pods.clear()
    await town.turn(TTL - 1, watch=False)
    assert town.assumed == {"solo-0"}

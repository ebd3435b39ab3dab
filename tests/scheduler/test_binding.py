"""Binding cycles run concurrently in the background; failed placements return between two sessions."""

import asyncio

import pytest

from batchsched.api.core.cluster_objects import PriorityClass
from batchsched.api.core.metadata import ObjectMeta
from batchsched.framework.status import SUCCESS, PermitAnswer
from batchsched.scheduler.binding import BINDINGS_PER_YIELD
from tests.runner.test_profile_scheduler import FAULT, Licence
from tests.service.town import Town, with_plugin
from tests.session.scenario import alone, cluster, gang, nodes


async def test_callback_receives_the_result_of_each_binding():
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    town.fail("bert-1", FAULT)
    await town.turn()
    assert sorted(town.told) == [
        ("bert-0", "n0", ""),
        ("bert-1", "n0", "plugin DefaultBinder failed in Bind: BindFailed: no"),
    ]


async def test_pods_that_are_bound_stay_assumed_until_the_watch_shows_them():
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    await town.turn(watch=False)
    assert town.assumed == {"bert-0", "bert-1"}
    town.watch()
    assert town.assumed == set()


async def test_slow_pod_delays_no_other_pod():
    town = Town(cluster(nodes(1, gpu=4), gang("bert", 2)))
    town.fail("bert-0", None)
    await town.turn()
    town.make(gang("gpt", 2).pods)
    for group in gang("gpt", 2).pod_groups:
        town.cache.put(group)
    await town.turn(1)
    assert set(town.bound) == {"bert-1", "gpt-0", "gpt-1"}
    assert town.cycles.has_unfinished_bindings("team/bert")
    town.mend()
    await town.turn(1)
    assert not town.cycles.has_unfinished_bindings("team/bert")


async def test_failed_pod_is_unreserved_in_the_next_turn_and_not_before(monkeypatch):
    licence = Licence()
    licence.answer = PermitAnswer()
    with_plugin(monkeypatch, licence)
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    town.fail("bert-1", FAULT)
    await town.turn()
    assert licence.reserved == {"bert-0", "bert-1"}
    assert town.assumed == {"bert-1"}
    await town.turn()
    assert licence.reserved == {"bert-0"}
    assert town.assumed == set()


async def test_draining_waits_for_bindings_in_flight():
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    town.fail("bert-1", None)
    await town.turn()
    drained = asyncio.create_task(town.cycles.wait_until_idle())
    await asyncio.sleep(0)
    assert not drained.done()
    town.mend()
    await drained
    town.watch()
    assert set(town.bound) == {"bert-0", "bert-1"}


async def test_pod_deleted_during_its_binding_frees_its_node():
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    town.fail("bert-1", None)
    await town.turn()
    town.server.pods.pop("team/bert-1")
    town.mend()
    await town.turn(1, watch=False)
    town.delete_seen("bert-1")
    town.make(gang("bert", 2).pods[1:])
    await town.turns(4)
    assert set(town.bound) == {"bert-0", "bert-1"}


@pytest.mark.parametrize(
    "waiting", [gang("bert", 3 * BINDINGS_PER_YIELD), alone(3 * BINDINGS_PER_YIELD)], ids=["gang", "alone"]
)
async def test_others_have_their_turn_while_many_begin_to_be_bound(waiting):
    town = Town(cluster(nodes(3 * BINDINGS_PER_YIELD, gpu=1), waiting))
    profile_scheduler, now = town.profile_scheduler, town.clock.now()
    profile_scheduler.sync_queue(now)
    work = profile_scheduler.begin_session(now)
    assert work is not None
    seen = set()

    async def look() -> None:
        while not town.cycles.is_idle:
            seen.add(len(town.told))
            await asyncio.sleep(0)

    placements = profile_scheduler.apply_decision(work(), now)
    start = asyncio.create_task(town.cycles.start_cycles(profile_scheduler, placements))
    await asyncio.sleep(0)
    await look()
    await start
    assert len(town.told) == 3 * BINDINGS_PER_YIELD
    assert len(seen) > 2


class Ledger:
    """Notes over which table a pod was reserved, and over which it is bound."""

    name = "Ledger"

    def __init__(self) -> None:
        self.reserved: dict[str, object] = {}
        self.bound: dict[str, object] = {}

    def reserve(self, pod, node, nodes, state):
        self.reserved[pod.name] = nodes
        return SUCCESS

    def unreserve(self, pod, node, nodes, state):
        del self.reserved[pod.name]

    async def prebind(self, pod, node, cycle):
        self.bound[pod.name] = cycle.node_table
        return SUCCESS


async def test_pods_are_bound_over_the_table_that_knows_of_their_reservation(monkeypatch):
    ledger = Ledger()
    with_plugin(monkeypatch, ledger)
    town = Town(cluster(nodes(1, gpu=4), gang("bert", 2)))
    profile_scheduler, now = town.profile_scheduler, town.clock.now()
    profile_scheduler.sync_queue(now)
    work = profile_scheduler.begin_session(now)
    assert work is not None
    await town.cycles.start_cycles(profile_scheduler, profile_scheduler.apply_decision(work(), now))
    before = profile_scheduler.node_table
    town.make(alone(1).pods)
    town.cache.put(PriorityClass(metadata=ObjectMeta(name="high"), value=1))
    profile_scheduler.sync_queue(now)
    profile_scheduler.begin_session(now)  # over rebuilt tables, before any task has run
    assert profile_scheduler.node_table is not before
    await town.cycles.wait_until_idle()
    assert ledger.bound == ledger.reserved

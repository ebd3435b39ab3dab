"""The claims of a gang are reserved before its first pod is bound, and given back if one of them cannot be reserved."""

import asyncio
from dataclasses import replace

import msgspec

from batchsched.api.core.pod import SCHEDULER_NAME
from batchsched.api.decision import without_measured_durations
from batchsched.api.snapshot import Snapshot
from batchsched.framework.status import PermitAnswer
from batchsched.ports.claims import ResourceClaimRelease
from batchsched.ports.external import ExceededDeadline
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.runner.session_runner import SessionRunner
from batchsched.session.session import decide
from tests.devices.objects import allocated, device_class
from tests.runner.test_profile_scheduler import FAULT, Licence
from tests.scheduler.test_claim_properties import sharing_gang
from tests.service.town import Town, with_plugin
from tests.session.scenario import node, nodes, pod, priority_class, profile
from tests.session.test_claims import cluster, gang_with_claims, offered, sharing


def town_with(nodes_count: int = 2, devices: int = 2, *parts, **room) -> Town:
    return Town(
        cluster(
            nodes(nodes_count, **room),
            *(parts or (gang_with_claims("bert", 4),)),
            resource_slices=offered(nodes_count, devices),
            device_classes=(device_class(),),
        )
    )


def under(scheduler_name: str, part: Snapshot) -> Snapshot:
    """The same pods under another profile."""
    return replace(
        part,
        pods=tuple(
            msgspec.structs.replace(
                one, spec=msgspec.structs.replace(one.spec, scheduler_name=scheduler_name)
            )
            for one in part.pods
        ),
    )


def used(town: Town) -> list[tuple[str, str]]:
    return [
        (one.pool, one.device)
        for claim in town.server.claims.values()
        if claim.status.allocation is not None
        for one in claim.status.allocation.devices.results
    ]


def reserved(town: Town) -> set[str]:
    return {
        consumer.name for claim in town.server.claims.values() for consumer in claim.status.reserved_for or ()
    }


async def test_every_pod_of_a_gang_is_bound_with_its_device():
    town = town_with()
    await town.turn()
    assert set(town.bound) == reserved(town) == {"bert-0", "bert-1", "bert-2", "bert-3"}
    assert len(set(used(town))) == len(used(town)) == 4


async def test_no_pod_of_a_gang_is_bound_if_one_claim_cannot_be_reserved():
    town = town_with()
    town.fail("bert-2-gpu", FAULT)
    await town.turn()
    assert town.bound == {}
    assert used(town) == []
    assert reserved(town) == set()
    problems = {pod: problem for pod, _, problem in town.told}
    assert problems.keys() == {"bert-0", "bert-1", "bert-2", "bert-3"}
    assert problems["bert-0"].startswith("PreBind of pod team/bert-2 of the gang failed: ")
    town.mend()
    await town.turns(4)
    assert len(town.bound) == len(set(used(town))) == 4


async def test_the_claim_of_a_pod_that_cannot_be_bound_is_released_and_those_of_the_others_are_not():
    town = town_with()
    town.fail("bert-2", FAULT)
    await town.turn()
    assert set(town.bound) == reserved(town) == {"bert-0", "bert-1", "bert-3"}
    assert len(used(town)) == 3
    town.mend()
    await town.turns(4)
    assert len(town.bound) == len(set(used(town))) == 4


async def test_bindings_of_bound_pods_end_before_the_claims_of_other_pods_are_released(monkeypatch):
    town = town_with()
    town.fail("bert-2", FAULT)
    is_released, release_resource_claim = asyncio.Event(), town.server.release_resource_claim

    async def release_late(release: ResourceClaimRelease) -> None:
        await is_released.wait()
        await release_resource_claim(release)

    monkeypatch.setattr(town.server, "release_resource_claim", release_late)
    await town.turn()
    assert {pod for pod, _, _ in town.told} == {"bert-0", "bert-1", "bert-3"}
    is_released.set()
    await town.cycles.wait_until_idle()
    assert [pod for pod, _, problem in town.told if problem] == ["bert-2"]


async def test_devices_that_are_being_allocated_are_not_given_to_others_meanwhile():
    town = town_with(1, 1, gang_with_claims("bert", 1), gang_with_claims("gpt", 1))
    claims = tuple(town.server.claims.values())
    town.fail("bert-0", None)
    town.fail("gpt-0", None)
    await town.turn()
    assert len(town.assumed) == 1
    town.cache.put(priority_class("other", 1))  # the scheduler starts from a new Snapshot
    await town.turns(2)
    assert len(town.assumed) == 1
    town.mend()
    await town.turns(3)
    assert len(town.bound) == len(used(town)) == 1
    assert len(claims) == 2


async def test_a_device_that_one_profile_is_allocating_is_not_given_to_a_pod_of_another():
    town = Town(
        cluster(
            nodes(1),
            gang_with_claims("bert", 1),
            under("other", gang_with_claims("gpt", 1)),
            resource_slices=offered(1, 1),
            device_classes=(device_class(),),
        ),
        scheduler_names=(SCHEDULER_NAME, "other"),
    )
    other = ProfileScheduler(profile(schedulerName="other"), town.cache)
    town.loop.profile_schedulers = (town.profile_scheduler, other)
    town.fail("bert-0", FAULT)
    town.clock.turn(1)
    await town.loop.run_once()
    assert town.assumed == {"bert-0"}
    town.mend()
    await town.turns(3)
    assert used(town) == [("n0", "gpu-0")]


async def test_a_pod_without_devices_is_tried_again_if_the_pod_that_reserved_them_cannot_be_bound():
    town = town_with(1, 1, gang_with_claims("bert", 1), gang_with_claims("gpt", 1))
    town.fail("bert-0-gpu", FAULT)
    await town.turns(6)
    assert town.bound.keys() == reserved(town) == {"gpt-0"}


async def test_pods_of_a_decision_that_another_table_reserved_are_bound_with_their_devices_later(monkeypatch):
    town = town_with()
    runner = SessionRunner(profile(), (ExceededDeadline("Slow", "Filter", 0, 1.0),))

    def run_with_hung_plugin(_follow, _session_input):
        runner.hung = True
        return runner.decide_from_snapshot(town.cache.snapshot(), town.clock.now(), 0)

    monkeypatch.setattr(runner, "run_within_plugin_deadline", run_with_hung_plugin)
    town.loop.profile_schedulers = (ProfileScheduler(profile(), town.cache, runner=runner),)
    await town.turn()
    assert set(town.bound) == reserved(town) == set()
    await town.turns(2)
    assert set(town.bound) == reserved(town) == {"bert-0", "bert-1", "bert-2", "bert-3"}


async def test_a_pod_that_lost_its_reservation_is_not_bound(monkeypatch):
    town = town_with()
    apply_decision = town.profile_scheduler.apply_decision

    def lose_reservations(*arguments):
        placements = apply_decision(*arguments)
        for name in town.assumed:
            town.profile_scheduler.node_table.device_ledger.release_reserved_devices(f"team/{name}")
        return placements

    monkeypatch.setattr(town.profile_scheduler, "apply_decision", lose_reservations)
    await town.loop.run_once()
    monkeypatch.undo()
    assert len(town.assumed) == 4
    for _ in range(20):
        await asyncio.sleep(0)
    assert town.bound == {}
    assert "no longer reserved" in town.told[0][2]
    await town.turns(4)
    assert set(town.bound) == reserved(town) == {"bert-0", "bert-1", "bert-2", "bert-3"}


async def test_a_gang_that_waits_at_permit_keeps_its_devices_and_no_more(monkeypatch):
    licence = Licence()
    with_plugin(monkeypatch, licence)
    town = town_with()
    await town.turns(3)
    assert [one.pod_group for one in town.profile_scheduler.held] == ["team/bert"]
    licence.answer = PermitAnswer()
    await town.turn(1)
    assert set(town.bound) == reserved(town) == {"bert-0", "bert-1", "bert-2", "bert-3"}


async def test_pods_with_claims_are_refused_while_the_claims_of_the_cluster_are_unknown():
    town = town_with()
    known = False
    town.profile_scheduler.can_allocate_devices = lambda: known
    await town.turn()
    (refusal,) = town.decisions[-1].refusals
    assert refusal.reason == "UnsupportedField"
    assert "the ResourceClaims of the cluster are unknown" in refusal.message
    known = True
    town.cache.put(device_class("other"))
    await town.turns(3)
    assert len(town.bound) == 4


async def test_devices_that_somebody_else_allocated_stay_with_a_claim_whose_pod_is_refused():
    given = allocated("x", "gpu-0", pool="n0")
    given = msgspec.structs.replace(given, metadata=msgspec.structs.replace(given.metadata, namespace="team"))
    waiting = Snapshot(pods=(sharing(pod("big", cpu=1000), "x"),), resource_claims=(given,))
    town = town_with(1, 1, waiting)
    await town.turns(2)
    assert used(town) == [("n0", "gpu-0")]


def consumers_of(town: Town, claim: str) -> list[tuple[str, str]]:
    return [
        (consumer.resource, consumer.name)
        for consumer in town.server.claims[f"team/{claim}"].status.reserved_for or ()
    ]


async def test_a_claim_of_a_pod_group_is_reserved_once_for_the_group():
    """More pods than a claim may have consumers, all with the claim that was created for their PodGroup."""
    town = town_with(1, 1, sharing_gang("bert", 300, owner=True), cpu=999, pods=999)
    await town.turn()
    assert len(town.bound) == 300
    assert consumers_of(town, "bert-gpu") == [("podgroups", "bert")]


async def test_the_claim_of_a_pod_group_stays_allocated_while_a_pod_of_the_group_is_bound():
    town = town_with(1, 1, sharing_gang("bert", 3, owner=True))
    town.fail("bert-2", FAULT)
    await town.turns(6)
    assert town.bound.keys() == {"bert-0", "bert-1"}
    assert used(town) == [("n0", "gpu-0")]
    town.mend()
    await town.turns(4, 20.0)
    assert town.bound.keys() == {"bert-0", "bert-1", "bert-2"}
    assert consumers_of(town, "bert-gpu") == [("podgroups", "bert")]


async def test_the_claim_of_a_pod_group_is_freed_if_its_gang_cannot_start():
    town = town_with(2, 1, sharing_gang("bert", 3, owner=True))
    for name in ("bert-0", "bert-1", "bert-2"):
        town.fail(name, FAULT)
    await town.turn()
    ((pool, _),) = used(town)
    assert town.bound == {}
    assert consumers_of(town, "bert-gpu") == [("podgroups", "bert")]
    town.mend()
    town.cache.remove(next(one for one in town.cache.list_objects("nodes") if one.name == pool))
    await town.turns(6, 20.0)
    assert town.bound.keys() == {"bert-0", "bert-1", "bert-2"}
    assert used(town) != [(pool, "gpu-0")]


async def test_pods_that_are_being_bound_count_once_as_consumers_of_a_claim():
    """More than 128 pods of one gang are being bound, and their reservations are in the status already."""
    town = town_with(1, 1, sharing_gang("bert", 140, owner=False), cpu=999, pods=999)
    for number in range(140):
        town.fail(f"bert-{number}", None)
    await town.turn()
    assert len(consumers_of(town, "bert-gpu")) == 140
    town.make([sharing(pod("late"), "bert-gpu")])
    await town.turn(1.0)
    assert "late" in town.assumed | town.bound.keys()


async def start_one_of_two() -> Town:
    """Two pods for one device: the claim of the first one is being written."""
    town = town_with(1, 1, gang_with_claims("bert", 1), gang_with_claims("gpt", 1))
    town.fail("bert-0-gpu", None)
    town.profile_scheduler.recording = True
    await town.turn()
    assert town.assumed == {"bert-0"}
    return town


async def test_devices_of_a_binding_that_fails_after_a_reload_of_the_configuration_are_free_again():
    town = await start_one_of_two()
    successor = ProfileScheduler(profile(), town.cache)
    town.loop.replace_schedulers([successor])
    await town.turns(2)
    assert len(successor.node_table.device_ledger.uses) == 1
    town.fail("bert-0-gpu", FAULT)
    town.server.go.set()
    await town.turn()
    town.delete("bert-0")
    await town.turn(0.0)
    assert not successor.node_table.device_ledger.uses or reserved(town) == {"gpt-0"}
    await town.turns(8)
    assert town.bound.keys() == reserved(town) == {"gpt-0"}


async def test_devices_of_a_pod_deleted_during_its_binding_are_not_given_to_others_before_its_binding_ends():
    town = await start_one_of_two()
    town.delete("bert-0")
    town.cache.put(priority_class("other", 1))  # the scheduler starts from a new Snapshot
    await town.turns(2)
    assert (town.assumed, town.bound) == (set(), {})
    assert len(town.profile_scheduler.node_table.device_ledger.uses) == 1
    town.fail("bert-0-gpu", FAULT)
    town.server.go.set()
    await town.turns(8)
    assert town.bound.keys() == reserved(town) == {"gpt-0"}


async def test_a_recorded_session_repeats_while_devices_are_being_allocated():
    town = await start_one_of_two()
    town.cache.put(node("n9"))  # the refused gang is tried again
    await town.turn()
    recorded = town.profile_scheduler.session_input
    assert recorded is not None
    assert [reservation.pod for reservation in recorded.snapshot.pod_devices] == ["team/bert-0"]
    assert town.decisions[-1].refusals
    repeated = decide(recorded.snapshot, profile(), recorded.now, recorded.seed)
    assert without_measured_durations(repeated) == without_measured_durations(town.decisions[-1])


async def test_tables_are_not_rebuilt_for_claims_that_the_scheduler_writes_and_others_release():
    town = town_with(1, 2, gang_with_claims("bert", 2), gang_with_claims("gpt", 2))
    await town.turns(2)
    table = town.profile_scheduler.node_table
    first = set(town.bound)
    assert len(first) == 2
    for name in first:
        town.delete(name)
    for claim in [claim for claim in town.server.claims.values() if claim.status.allocation is not None]:
        town.server.keep_claim(claim)
    await town.turns(6)
    assert len(town.bound) == 2
    assert first.isdisjoint(town.bound)
    assert town.profile_scheduler.node_table is table


async def test_a_device_is_not_given_away_between_the_events_of_its_bound_pod_and_of_its_claim():
    town = town_with(1, 1, gang_with_claims("bert", 1), gang_with_claims("gpt", 1))
    claims = dict(town.server.claims)
    await town.turn()
    ledger = town.profile_scheduler.node_table.device_ledger
    for claim in claims.values():  # as long as the watch of the claims is late
        town.cache.put(claim)
    town.cache.put(node("n9"))
    await town.turns(2)
    assert len(town.bound) == 1
    assert [use.exclusive for use in ledger.uses.values()] == [1]

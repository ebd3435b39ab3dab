"""Which gangs take part, which pods are assumed, and how gangs return that were overtaken, held or placed in part."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from batchsched.api.core.pod import POD_GROUP_LABEL, Pod, PodStatus
from batchsched.api.core.volume import PersistentVolumeClaimVolumeSource, Volume
from batchsched.api.decision import to_json, without_measured_durations
from batchsched.api.snapshot import Snapshot
from batchsched.errors import BindFailed
from batchsched.framework.status import SUCCESS, Code, PermitAnswer, Status
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.session.session import decide
from tests.plugins.node_resource_topology.topologies import topology
from tests.plugins.storage import claim, storage_class, volume
from tests.service.town import Town, fail_sessions_with, with_plugin
from tests.session.scenario import alone, cluster, gang, group, node, nodes, pod, profile
from tests.session.test_numa_zones import cluster as numa_cluster
from tests.session.test_numa_zones import guaranteed_gang
from tests.session.test_reservations import running
from tests.state.objects import leaving

FAULT = BindFailed("no")


async def test_gang_is_bound_completely_or_not_at_all():
    town = Town(cluster(nodes(3, gpu=1), gang("bert", 2), gang("gpt", 4)))
    await town.turn()
    assert set(town.bound) == {"bert-0", "bert-1"}
    assert [one.pod_group for one in town.decisions[-1].refusals] == ["team/gpt"]


async def test_running_scheduler_logs_once_that_sessions_do_not_read_the_policy(caplog):
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)), profile(policy={"name": "sjf"}))
    await town.turn()
    town.cache.put(node("more", gpu=1))
    await town.turns(2)
    assert caplog.text.count("the sessions of this cluster do not read policy (sjf)") == 1


async def test_gang_rests_if_no_event_can_have_helped_it():
    town = Town(cluster(nodes(1, gpu=1), gang("gpt", 2)))
    await town.turns(5)
    assert len(town.decisions) == 1
    town.cache.put(node("more", gpu=1))
    await town.turns(2)
    assert set(town.bound) == {"gpt-0", "gpt-1"}


async def test_surplus_pods_are_bound_when_capacity_is_free():
    town = Town(cluster(nodes(1, gpu=3), gang("bert", 5, 2)))
    await town.turns(20)
    assert len(town.bound) == 3
    assert len(town.decisions) <= 2
    town.cache.put(node("more", gpu=2))
    await town.turns(3)
    assert len(town.bound) == 5


async def test_gang_is_bound_with_another_pod_if_one_is_deleted_during_the_session():
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    profile_scheduler = town.profile_scheduler
    profile_scheduler.sync_queue(town.clock.now())
    work = profile_scheduler.begin_session(town.clock.now())
    assert work is not None
    decision = work()
    town.delete("bert-0")
    assert profile_scheduler.apply_decision(decision, town.clock.now()) == []
    assert town.assumed == set()
    town.make([pod("bert-2", group="bert", gpu=1)])
    await town.turns(3)
    assert set(town.bound) == {"bert-1", "bert-2"}


async def test_gang_is_bound_elsewhere_if_its_node_is_deleted_during_the_session():
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    profile_scheduler = town.profile_scheduler
    profile_scheduler.sync_queue(town.clock.now())
    work = profile_scheduler.begin_session(town.clock.now())
    assert work is not None
    decision = work()
    town.cache.remove(node("n0", gpu=2))
    town.cache.put(node("n1", gpu=2))
    assert profile_scheduler.apply_decision(decision, town.clock.now()) == []
    await town.turns(3)
    assert set(town.bound.values()) == {"n1"}


async def test_first_outdated_decision_of_a_gang_costs_it_no_backoff():
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    profile_scheduler = town.profile_scheduler
    for present, later, state in (("n0", "n1", "active"), ("n1", "n2", "backoff")):
        profile_scheduler.sync_queue(town.clock.now())
        work = profile_scheduler.begin_session(town.clock.now())
        assert work is not None
        decision = work()
        town.cache.remove(node(present, gpu=2))
        town.cache.put(node(later, gpu=2))
        assert profile_scheduler.apply_decision(decision, town.clock.now()) == []
        assert profile_scheduler.queue.pending_pod_counts()[state] == 2


def foreign(name: str, node_name: str, **requests: Any) -> Pod:
    """A pod that another scheduler bound."""
    made = pod(name, **requests)
    return msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, scheduler_name="other", node_name=node_name)
    )


def decide_while(town: Town, *bound_meanwhile: Pod) -> list[str]:
    """Decide a session during which other schedulers bind pods; return the gangs that are to be bound."""
    profile_scheduler, now = town.profile_scheduler, town.clock.now()
    profile_scheduler.sync_queue(now)
    work = profile_scheduler.begin_session(now)
    assert work is not None
    decision = work()
    town.make(bound_meanwhile)
    return [placed.entity.identity for placed in profile_scheduler.apply_decision(decision, now)]


async def test_gang_is_not_bound_to_a_node_that_another_scheduler_filled_during_the_session():
    town = Town(cluster(nodes(2, gpu=2), gang("bert", 4)))
    assert decide_while(town, foreign("theirs", "n0", gpu=1)) == []
    assert town.assumed == set()
    assert town.profile_scheduler.dropped_placements == 1
    town.cache.put(node("n2", gpu=1))
    await town.turns(5)
    assert sorted(town.bound[f"bert-{at}"] for at in range(4)) == ["n0", "n1", "n1", "n2"]


async def test_gang_is_bound_if_the_pods_of_another_scheduler_leave_room():
    town = Town(cluster(nodes(2, gpu=2), gang("bert", 2)))
    assert decide_while(town, foreign("theirs", "n0", cpu=1), foreign("more", "n1", cpu=1)) == ["team/bert"]


async def test_only_as_many_gangs_are_dropped_as_the_filled_node_has_no_room_for():
    town = Town(cluster(nodes(1, gpu=4), gang("a", 1), gang("b", 1), gang("c", 1), gang("d", 1)))
    assert len(decide_while(town, foreign("theirs", "n0", gpu=2))) == 2
    assert town.profile_scheduler.dropped_placements == 2


async def test_gang_is_not_bound_to_a_node_that_shrank_during_the_session():
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    profile_scheduler, now = town.profile_scheduler, town.clock.now()
    profile_scheduler.sync_queue(now)
    work = profile_scheduler.begin_session(now)
    assert work is not None
    decision = work()
    town.cache.put(node("n0", gpu=1))
    assert profile_scheduler.apply_decision(decision, now) == []


async def test_confirmed_bindings_of_the_same_scheduler_drop_no_placement():
    town = Town(cluster(nodes(1, gpu=4), gang("bert", 2)))
    await town.turn(watch=False)
    town.make(gang("gpt", 2).pods)
    town.cache.put(group("gpt", 2))
    profile_scheduler, now = town.profile_scheduler, town.clock.now()
    profile_scheduler.sync_queue(now)
    work = profile_scheduler.begin_session(now)
    assert work is not None
    decision = work()
    town.watch()
    assert [placed.entity.identity for placed in profile_scheduler.apply_decision(decision, now)] == [
        "team/gpt"
    ]
    assert profile_scheduler.dropped_placements == 0


async def test_gang_without_room_is_tried_again_if_the_placement_that_took_it_is_dropped():
    town = Town(cluster(nodes(1, gpu=1), gang("a", 1), gang("b", 1)))
    profile_scheduler = town.profile_scheduler
    profile_scheduler.sync_queue(town.clock.now())
    work = profile_scheduler.begin_session(town.clock.now())
    assert work is not None
    decision = work()
    assert [one.pod for one in decision.assignments] == ["a-0"]
    town.delete("a-0")
    assert profile_scheduler.apply_decision(decision, town.clock.now()) == []
    await town.turns(2)
    assert set(town.bound) == {"b-0"}


def with_second_profile(town: Town) -> Town:
    """Let a second profile, of the scheduler `second`, have its sessions after those of the first one."""
    town.cache.scheduler_names |= {"second"}
    second = ProfileScheduler(profile(schedulerName="second"), town.cache)
    town.loop.profile_schedulers = (*town.loop.profile_schedulers, second)
    return town


def of_second_profile(one: Pod) -> Pod:
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, scheduler_name="second"))


async def test_gang_is_tried_again_if_another_profile_could_not_bind_the_pod_that_took_its_room():
    town = with_second_profile(Town(cluster(nodes(1, gpu=1), alone(1, gpu=1))))
    town.fail("solo-0", None)
    await town.turn(watch=False)
    town.make([of_second_profile(pod("other", gpu=1))])
    await town.turn(1, watch=False)
    assert town.decisions[-1].refusals[0].pod_group == "team/other"
    town.server.pods.pop("team/solo-0")
    town.mend()
    await town.turns(2)
    assert set(town.bound) == {"other"}


def begin_to_terminate(town: Town, name: str) -> None:
    town.cache.put(town.server.keep(leaving(town.server.pods[f"team/{name}"])))


@pytest.mark.parametrize("end", [Town.delete, begin_to_terminate])
async def test_gang_is_tried_again_if_the_nominated_pod_of_another_profile_that_kept_its_room_ends(end):
    nominated = pod("nominated", gpu=2)
    nominated = msgspec.structs.replace(nominated, status=PodStatus(nominated_node_name="n0"))
    victim = leaving(pod("victim", on="n0", gpu=1))
    town = with_second_profile(Town(cluster(nodes(1, gpu=2), Snapshot(pods=(victim, nominated)))))
    town.make([of_second_profile(pod("other", gpu=1))])
    await town.turns(2)
    assert town.bound == {}
    end(town, "nominated")
    await town.turns(2)
    assert set(town.bound) == {"other"}


def nominated_for(town: Town, name: str, node: str) -> None:
    found = town.server.pods[f"team/{name}"]
    town.cache.put(
        town.server.keep(msgspec.structs.replace(found, status=PodStatus(nominated_node_name=node)))
    )


@pytest.mark.parametrize("second", [False, True], ids=["one profile", "two profiles"])
@pytest.mark.parametrize("node", ["", "n1"])
async def test_refused_gang_is_tried_again_if_the_nomination_that_kept_it_out_ends_or_moves(node, second):
    nominee = pod("nominated", gpu=2)
    nominee = msgspec.structs.replace(nominee, status=PodStatus(nominated_node_name="n0"))
    filler = pod("filler", on="n1", gpu=2)
    snapshot = cluster(
        nodes(2, gpu=2), Snapshot(pods=(leaving(pod("victim", on="n0", gpu=1)), filler, nominee))
    )
    town = with_second_profile(Town(snapshot))
    other = pod("other", gpu=1)
    town.make([of_second_profile(other) if second else other])
    await town.turns(2)
    assert town.bound == {"filler": "n1"}
    await town.turns(20)
    assert town.bound == {"filler": "n1"}
    nominated_for(town, "nominated", node)
    await town.turns(2)
    assert town.bound == {"filler": "n1", "other": "n0"}


class Licence:
    """A Permit that makes gangs wait, and keeps count of what is reserved."""

    name = "Licence"

    def __init__(self) -> None:
        self.answer = PermitAnswer(Status(Code.WAIT), 5.0)
        self.reserved: set[str] = set()

    def reserve(self, pod, node, nodes, state):
        self.reserved.add(pod.name)
        return SUCCESS

    def unreserve(self, pod, node, nodes, state):
        self.reserved.discard(pod.name)

    def permit(self, pod, node, nodes, state):
        return self.answer if POD_GROUP_LABEL in pod.labels else PermitAnswer()


async def test_held_gang_is_bound_after_permit(monkeypatch):
    licence = Licence()
    with_plugin(monkeypatch, licence)
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    await town.turns(3)
    assert (town.bound, town.assumed) == ({}, set())
    assert [one.pod_group for one in town.profile_scheduler.held] == ["team/bert"]
    licence.answer = PermitAnswer()
    await town.turn(1)
    assert set(town.bound) == {"bert-0", "bert-1"}
    assert town.profile_scheduler.held == ()


async def test_held_gang_keeps_its_nodes_until_the_permit_timeout(monkeypatch):
    licence = Licence()
    with_plugin(monkeypatch, licence)
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    await town.turn()
    licence.answer = PermitAnswer()
    town.make(alone(1, gpu=1).pods)
    licence.answer = PermitAnswer(Status(Code.WAIT), 5.0)
    await town.turn(1)
    assert "solo-0" not in town.bound
    await town.turns(6)
    reasons = {refusal.reason for one in town.decisions for refusal in one.refusals}
    assert "PermitTimeout" in reasons


async def test_held_gang_with_a_deleted_pod_is_released(monkeypatch):
    licence = Licence()
    with_plugin(monkeypatch, licence)
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    await town.turn()
    town.delete("bert-0")
    licence.answer = PermitAnswer()
    await town.turns(3)
    assert town.bound == {}
    assert town.profile_scheduler.held == ()
    town.make([pod("bert-0", group="bert", gpu=1)])
    await town.turns(3)
    assert set(town.bound) == {"bert-0", "bert-1"}


async def reject(town: Town, licence: Licence) -> None:
    licence.answer = PermitAnswer(Status(Code.UNSCHEDULABLE, ("no licence is free",)))
    await town.turns(3)


async def wait_until_the_permit_times_out(town: Town, licence: Licence) -> None:
    await town.turns(10)


async def delete_some(town: Town, licence: Licence) -> None:
    town.delete("bert-0")
    await town.turns(3)


async def delete_all(town: Town, licence: Licence) -> None:
    town.delete("bert-0")
    town.delete("bert-1")
    await town.turns(3)


@pytest.mark.parametrize("release", [wait_until_the_permit_times_out, reject, delete_some, delete_all])
async def test_gang_without_room_is_tried_again_if_the_gang_that_held_it_is_released(monkeypatch, release):
    licence = Licence()
    with_plugin(monkeypatch, licence)
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    await town.turn()
    town.make(alone(1, gpu=1).pods)
    await town.turn(1)
    assert (town.bound, len(town.profile_scheduler.held)) == ({}, 1)
    await release(town, licence)
    assert set(town.bound) == {"solo-0"}


async def test_gang_that_lost_its_nodes_at_permit_is_not_tried_again_because_they_are_free(monkeypatch):
    with_plugin(monkeypatch, Licence())
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    await town.turns(60)
    reasons = [refusal.reason for decision in town.decisions for refusal in decision.refusals]
    assert reasons == ["PermitTimeout"]


async def test_surplus_of_a_held_gang_is_not_forgotten_when_the_gang_is_allowed(monkeypatch):
    licence = Licence()
    with_plugin(monkeypatch, licence)
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 3, 2)))
    await town.turn()
    licence.answer = PermitAnswer()
    await town.turn(1)
    assert len(town.bound) == 2
    town.cache.put(node("more", gpu=1))
    await town.turns(3)
    assert len(town.bound) == 3


async def test_terminating_pod_is_not_queued():
    town = Town(cluster(nodes(1, gpu=1)))
    one = pod("solo", gpu=9)
    town.make([one])
    await town.turn()
    town.cache.put(town.server.keep(leaving(town.server.pods["team/solo"])))
    await town.turn(1)
    assert town.profile_scheduler.queue.pending_pod_counts() == {
        "active": 0,
        "backoff": 0,
        "unschedulable": 0,
        "gated": 0,
    }


async def test_gang_without_its_pod_group_waits_for_another():
    town = Town(cluster(nodes(1, gpu=1), gang("bert", 2)))
    await town.turn()
    town.cache.remove(group("bert", 2))
    town.cache.put(node("more", gpu=1))
    await town.turns(3)
    assert town.bound == {}
    assert {one.reason for one in town.decisions[-1].refusals} == {"PodGroupNotFound"}
    town.cache.put(group("bert", 2))
    await town.turns(3)
    assert set(town.bound) == {"bert-0", "bert-1"}


async def test_scheduler_behind_the_change_log_lists_pending_pods_again():
    town = Town(cluster(nodes(1, gpu=1), gang("gpt", 2)), journal=3)
    await town.turn()
    assert town.decisions[-1].refusals[0].pod_group == "team/gpt"
    town.make(alone(5, cpu=1).pods)
    town.delete("gpt-0")
    town.delete("gpt-1")
    await town.turns(2)
    assert set(town.bound) == {f"solo-{at}" for at in range(5)}
    assert town.profile_scheduler.queue.find_entity("team/gpt") is None


async def test_session_input_repeats_the_decision():
    town = Town(cluster(nodes(2, gpu=1), gang("gpt", 4), gang("bert", 2)))
    town.profile_scheduler.recording = True
    await town.turn()
    town.make(alone(1, cpu=1).pods)
    await town.turn(1)
    asked = town.profile_scheduler.session_input
    assert asked is not None
    assert asked.snapshot.resting == ("team/gpt",)
    again = decide(asked.snapshot, town.profile_scheduler.profile, asked.now, asked.seed)
    assert to_json(without_measured_durations(again)) == to_json(
        without_measured_durations(town.decisions[-1])
    )


async def test_gang_that_fails_sessions_is_isolated(monkeypatch):
    fail_sessions_with(monkeypatch, "team/bad")
    some = [gang(f"good-{at}", 1) for at in range(5)]
    town = Town(cluster(nodes(8, gpu=1), gang("bad", 1), *some))
    for _ in range(30):
        try:
            await town.turn(1)
        except ExceptionGroup:
            continue
    assert set(town.bound) == {f"good-{at}-0" for at in range(5)}


async def test_profiles_leave_each_others_pods_alone():
    other = pod("theirs", gpu=1)
    other = msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, scheduler_name="other"))
    town = Town(cluster(nodes(1, gpu=2), alone(1, gpu=1)))
    town.cache.scheduler_names = frozenset({"batchsched", "other"})
    town.make([other])
    await town.turns(2)
    assert set(town.bound) == {"solo-0"}


@pytest.mark.parametrize("failures", [1, 3])
async def test_member_that_fails_to_bind_is_repaired_and_tried_less_and_less_often(failures):
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2)))
    town.fail("bert-1", FAULT)
    tries = 0
    while tries < failures:
        await town.turn(0.5)
        tries = len([one for one in town.told if one[2]])
    took = town.clock.now()
    town.mend()
    while "bert-1" not in town.bound:
        await town.turn(0.5)
    assert town.clock.now() - took >= 2 ** (failures - 1) - 1
    assert set(town.bound) == {"bert-0", "bert-1"}


async def test_bindings_that_fail_make_no_hot_loop():
    town = Town(cluster(nodes(1, gpu=2), gang("bert", 2), alone(1, cpu=1)))
    for name in ("bert-0", "bert-1", "solo-0"):
        town.fail(name, FAULT)
    for _ in range(100):
        await town.turn(0.1)
    assert len(town.decisions) < 15


async def test_surplus_pods_with_failed_bindings_return_to_the_queue():
    town = Town(cluster(nodes(1, gpu=3), gang("bert", 4, 2)))
    town.fail("bert-2", FAULT)
    await town.turn()
    town.mend()
    await town.turns(5)
    assert len(town.bound) == 3
    assert town.profile_scheduler.queue.pending_pod_counts() == {
        "active": 0,
        "backoff": 0,
        "unschedulable": 1,
        "gated": 0,
    }


async def test_new_leader_completes_a_partly_bound_gang_without_repeated_bindings():
    town = Town(cluster(nodes(1, gpu=4), gang("bert", 4)))
    town.fail("bert-2", None)
    town.fail("bert-3", None)
    await town.turn()
    assert set(town.bound) == {"bert-0", "bert-1"}
    fresh = Town(replace(town.cache.snapshot_without_assumptions(), pods=tuple(town.server.pods.values())))
    await fresh.turn()
    assert len(fresh.bound) == 4
    assert {name for name, _, _ in fresh.told} == {"bert-2", "bert-3"}
    assert [one.pod for one in fresh.decisions[0].assignments] == ["bert-2", "bert-3"]


async def test_nothing_is_decided_on_an_empty_cluster():
    town = Town(Snapshot(), profile())
    await town.turns(3)
    assert town.decisions == []


@pytest.mark.parametrize("selection", ["ordered", "weight"])
async def test_head_that_rests_keeps_its_start_from_gangs_that_come_later(selection):
    snapshot = cluster(nodes(2, gpu=1), running("a", 10_000, "n0"), gang("head", 2, age=50))
    town = Town(snapshot, profile(selection=selection, backfill="easy"))
    await town.turns(2)
    assert [one.pod_group for one in town.profile_scheduler.reservations] == ["team/head"]
    town.make(alone(1, gpu=1).pods)
    await town.turns(2)
    assert "solo-0" not in town.bound
    assert [one.pod_group for one in town.profile_scheduler.reservations] == ["team/head"]


@pytest.mark.parametrize("backfill", ["easy", "kept"])
async def test_head_keeps_its_start_behind_a_gang_that_was_just_bound(backfill):
    snapshot = cluster(
        nodes(2, gpu=1),
        gang("first", 1, age=90, expectedRuntimeSeconds=600),
        gang("head", 2, age=50, expectedRuntimeSeconds=600),
    )
    settings = profile(selection="ordered", policy={"name": "fcfs"}, backfill=backfill, promiseSlowdown=1)
    town = Town(snapshot, settings)
    await town.turns(2)
    town.add(gang("long", 1, expectedRuntimeSeconds=36_000))
    await town.turns(3)
    assert set(town.bound) == {"first-0"}
    assert [one.pod_group for one in town.profile_scheduler.reservations] == ["team/head"]


def claiming(name: str, claim: str) -> Pod:
    source = PersistentVolumeClaimVolumeSource(claim_name=claim)
    return pod(name, spec={"volumes": (Volume(name="data", persistent_volume_claim=source),)})


async def test_assumed_volume_stays_reserved_after_the_tables_are_rebuilt():
    town = Town(cluster(nodes(1)))
    stored = [storage_class(provisioner="kubernetes.io/no-provisioner"), volume("disk")]
    stored += [claim(name, metadata={"namespace": "team"}) for name in ("data", "more")]
    for one in stored:
        town.cache.put(one)
    town.make([claiming("first", "data")])
    profile_scheduler, now = town.profile_scheduler, town.clock.now()
    profile_scheduler.sync_queue(now)
    work = profile_scheduler.begin_session(now)
    assert work is not None
    assert [one.places[0][0].name for one in profile_scheduler.apply_decision(work(), now)] == ["first"]
    before = profile_scheduler.node_table
    town.cache.put(volume("broken", phase="Failed"))
    town.make([claiming("second", "more")])
    profile_scheduler.sync_queue(now)
    work = profile_scheduler.begin_session(now)
    assert work is not None
    (refusal,) = work().refusals
    assert profile_scheduler.node_table is not before
    assert refusal.pod_group == "team/second"
    assert "persistent volumes to bind" in refusal.message


@pytest.mark.parametrize("reads", [True, False])
async def test_changed_numa_zones_rebuild_no_tables_and_count_at_once(reads):
    disabled = [] if reads else [{"name": "NodeResourceTopologyMatch"}]
    amounts = [{"cpu": "1", "memory": "1Gi"}, {"cpu": "8", "memory": "64Gi"}]
    town = Town(
        replace(
            numa_cluster({"n0": [8]}, guaranteed_gang("bert", 1, cpu=4)),
            node_resource_topologies=(topology("n0", amounts[0]),),
        ),
        profile(plugins={"multiPoint": {"disabled": disabled}}),
    )
    await town.turns(2)
    assert set(town.bound) == (set() if reads else {"bert-0"})
    before = town.profile_scheduler.node_table
    town.cache.put(topology("n0", amounts[1]))
    await town.turns(2)
    assert set(town.bound) == {"bert-0"}
    assert town.profile_scheduler.node_table is before


async def test_pod_that_was_created_again_for_another_profile_leaves_the_queue():
    town = with_second_profile(Town(cluster(nodes(1, gpu=1), alone(1, gpu=2))))
    await town.turns(2)
    old = town.server.pods.pop("team/solo-0")
    new = of_second_profile(pod("solo-0", gpu=2))
    town.cache.remove(old)
    town.cache.put(msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, uid="new")))
    await town.turns(2, 400.0)
    assert not town.profile_scheduler.queue.entities()

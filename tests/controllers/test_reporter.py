"""The reporter over a loop that decides: Events of bindings, refusals and evictions."""

import asyncio
from typing import Any

import msgspec
from typing_extensions import override

from batchsched.api.core.pod import PodSchedulingGate
from batchsched.api.snapshot import Snapshot
from batchsched.controllers.policy_worker import ForecastOutcome, policy_choice_event
from batchsched.controllers.refusal_history import ARRIVING_SECONDS
from batchsched.controllers.reporter import RESTART_SECONDS, Reporter
from batchsched.errors import BindFailed
from batchsched.runner.policy_chooser import CandidateChoice
from batchsched.runner.refusal_explanations import ExplanationOutcome, ExplanationResultCode
from docs.generate.events import EVENTS
from tests.controllers.office import Desk, known
from tests.service.town import Town
from tests.session.scenario import GPU, alone, cluster, gang, group, node, nodes, pod, queue


class Reported(Town):
    """A town with a reporter; no event is written before the turn ends."""

    desk: Desk

    @override
    def lead(self, settings: Any) -> None:
        self.desk = Desk()
        server: Any = self.desk
        cache: Any = self.cache
        self.teller = Reporter(cache, (server, server), self.clock, settings, lambda: False)
        super().lead(settings)
        heard = self.loop._callbacks
        self.loop._callbacks = (*heard, self.teller.record_decision)

    @override
    def _hear(self, one: Any, there: str, problem: str, seconds: float) -> None:
        super()._hear(one, there, problem, seconds)
        self.teller.record_binding(one, there, problem, seconds)

    async def events(self) -> list[Any]:
        """End, and return the Events that were written."""
        self.teller.start()
        await asyncio.sleep(0)
        await self.teller.write_queued_status()
        ending = asyncio.create_task(self.teller.stop())
        for _ in range(200):
            await asyncio.sleep(0)
            self.clock.turn(0.02)
        await ending
        found = self.desk.of("/events")
        for one in found:
            known = EVENTS[one["reason"]]
            assert (one["regarding"]["kind"], one["type"], one["action"]) == (
                known.about.partition(" in ")[0],
                known.type,
                known.action,
            )
        return found


def told(events: list[Any], about: str) -> dict[str, str]:
    """The notes on an object by reason."""
    return {one["reason"]: one["note"] for one in events if one["regarding"]["name"] == about}


async def test_every_bind_has_its_event():
    town = Reported(cluster(nodes(1, gpu=2), gang("bert", 2)))
    await town.turn()
    found = await town.events()
    for name in ("bert-0", "bert-1"):
        assert told(found, name) == {"Scheduled": f"Successfully assigned team/{name} to n0"}
    assert "GangScheduled" not in told(found, "bert")  # it has no uid: it is not in the API


async def test_refusal_has_events_of_the_pods_and_of_their_pod_group():
    town = Reported(cluster(nodes(1, gpu=1), gang("bert", 2)))
    await town.turn()
    await town.turn(1)
    found = await town.events()
    for name in ("bert-0", "bert-1"):
        assert told(found, name)["FailedScheduling"].startswith(
            "0/1 nodes are available: PodGroup team/bert: "
        )
    assert told(found, "bert")["GangRefused"].startswith("InsufficientResources: ")


async def test_verified_text_has_events_and_the_conditions_of_pod_group_and_pods():
    town = Reported(cluster(nodes(1, gpu=1), gang("bert", 2)))
    town.cache.put(known(town.cache.get("pod_groups", "team/bert")))
    await town.turn()
    (refusal,) = town.decisions[-1].refusals
    verified = msgspec.structs.replace(refusal, relaxation="1 more node like n0", verified=True)
    town.clock.turn(2)
    outcome = ExplanationOutcome("batchsched", refusal, verified, ExplanationResultCode.VERIFIED, 0.1)
    town.teller.record_explanation(outcome)
    await town.teller.status.run_once()
    text = f"{refusal.message}; would help: 1 more node like n0"
    written = {where: body["status"]["conditions"][-1]["message"] for _, where, body in town.desk.sent}
    assert {message for where, message in written.items() if "/podgroups/" in where} == {text}
    pod_message = f"0/1 nodes are available: PodGroup team/bert: {text}."
    assert {message for where, message in written.items() if "/pods/" in where} == {pod_message}
    found = await town.events()
    notes = {(body["regarding"]["name"], body["note"]) for body in found}
    assert {("bert", f"InsufficientResources: {text}"), ("bert-0", pod_message)} <= notes


async def test_queue_that_a_gang_keeps_has_an_event_with_both_queues():
    town = Reported(cluster(nodes(1, gpu=2)))
    town.cache.put(known(group("bert", 2, queue="research")))
    town.teller.record_kept_queue("team/bert", "product")
    assert told(await town.events(), "bert") == {
        "QueueKept": "its owner names the queue product; the gang keeps the queue research as long as one of its pods "
        "has a node"
    }


async def test_message_that_was_held_back_is_published_later_without_a_session():
    town = Reported(cluster(nodes(1, gpu=1), gang("bert", 1, 2)))
    await town.turn()
    await town.teller.status.run_once()
    town.teller.publish_due_messages()
    assert not town.teller.recorder.queued_count
    town.clock.turn(ARRIVING_SECONDS)
    town.teller.publish_due_messages()
    found = await town.events()
    assert told(found, "bert")["GangRefused"].startswith("NotEnoughPods: 1 of the 2 pods")
    assert "NotEnoughPods" not in told(found, "bert-0")["FailedScheduling"]


async def test_surplus_pods_have_an_event_without_room():
    town = Reported(cluster(nodes(1, gpu=2), gang("bert", 3, 2)))
    await town.turn()
    found = await town.events()
    assert sorted(one["reason"] for one in found) == ["FailedScheduling", "Scheduled", "Scheduled"]
    (waits,) = (one for one in found if one["reason"] == "FailedScheduling")
    assert "no room for more" in waits["note"]


async def conditions(town: Reported) -> dict[str, str]:
    """The reason of the last written condition of each pod."""
    await town.teller.status.run_once()
    return {
        where.split("/")[-2]: body["status"]["conditions"][0]["reason"]
        for _, where, body in town.desk.sent
        if "/pods/" in where
    }


async def test_surplus_pods_are_unschedulable_only_if_the_limit_of_their_queue_has_room():
    def waiting_pods(limit: int) -> Reported:
        research = (queue("research", limit={GPU: str(limit)}), queue("nlp", parent="research"))
        return Reported(cluster(nodes(1, gpu=3), gang("bert", 4, 2, queue="nlp"), queues=research))

    for limit, reason in ((3, "SurplusOverLimit"), (4, "Unschedulable")):
        town = waiting_pods(limit)
        await town.turn()
        assert await conditions(town) == {"bert-3": reason}
    limited = waiting_pods(3)
    await limited.turn()
    (note,) = {body["note"] for body in await limited.events() if body["reason"] == "FailedScheduling"}
    assert "the limit of queue research allows no more" in note


async def test_pods_that_wait_for_a_queue_limit_are_not_unschedulable():
    limited = cluster(
        nodes(1, gpu=2), gang("bert", 2, queue="research"), queues=(queue("research", limit={GPU: "1"}),)
    )
    town = Reported(limited)
    await town.turn()
    assert await conditions(town) == {"bert-0": "QueueLimit", "bert-1": "QueueLimit"}


async def test_pods_that_lack_both_room_and_a_queue_limit_are_not_unschedulable():
    limited = cluster(
        nodes(1, gpu=1), gang("bert", 2, queue="research"), queues=(queue("research", limit={GPU: "1"}),)
    )
    town = Reported(limited)
    await town.turn()
    assert await conditions(town) == {"bert-0": "QueueLimit", "bert-1": "QueueLimit"}


async def test_failed_binding_has_an_event_with_the_message_of_kube_scheduler():
    town = Reported(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    town.fail("solo-0", BindFailed("the server says no"))
    await town.turn()
    note = told(await town.events(), "solo-0")["FailedScheduling"]
    assert note.startswith("binding rejected: ")
    assert "the server says no" in note


async def test_pod_with_gates_has_no_event_of_a_failure():
    gated = pod("bert-1", group="bert", gpu=1, spec={"scheduling_gates": (PodSchedulingGate(name="quota"),)})
    waits = pod("bert-0", group="bert", gpu=1)
    town = Reported(cluster(nodes(1, gpu=2), Snapshot(pods=(waits, gated), pod_groups=(group("bert", 2),))))
    await town.turn()
    assert {one["regarding"]["name"] for one in await town.events()} <= {"bert-0", "bert"}


async def test_eviction_has_an_event_of_the_victim():
    town = Reported(cluster((node("n0"),), pods=(known(pod("old", on="n0")),)))
    town.teller.record_eviction(
        town.cache.get("pods", "team/old"), "Preempted", "Preempted by team/new on node n0"
    )
    assert told(await town.events(), "old") == {"Preempted": "Preempted by team/new on node n0"}


async def test_reporter_restarts_after_an_error(caplog, monkeypatch):
    town = Reported(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    turns: list[int] = []

    async def breaks_once() -> None:
        turns.append(1)
        if len(turns) == 1:
            raise ValueError("a defect")

    monkeypatch.setattr(town.teller.status, "run_once", breaks_once)
    town.teller.start()
    for _ in range(int(3 * RESTART_SECONDS)):
        for _ in range(5):
            await asyncio.sleep(0)
        town.clock.turn(0.5)
    assert len(turns) > 1
    assert caplog.text.count("status and Events are not written for") == 1
    ending = asyncio.create_task(town.teller.stop())
    for _ in range(20):
        await asyncio.sleep(0)
        town.clock.turn(0.02)
    await ending


async def test_change_of_the_candidate_of_auto_has_an_event_on_the_lease_of_the_scheduler_name():
    town = Reported(cluster(nodes(1, gpu=1)))
    choice = CandidateChoice(0.0, "sjf", "fcfs", "sjf replaces fcfs: why", {})
    town.teller.recorder.record_without_series(
        policy_choice_event(ForecastOutcome("batchsched", choice, 1.0))
    )
    events = [event for event in await town.events() if event["reason"] == "PolicyChosen"]
    assert [event["note"] for event in events] == ["sjf replaces fcfs: why"]
    assert events[0]["regarding"]["name"] == "scheduler-name-batchsched"
    assert events[0]["regarding"]["namespace"] == "kube-public"

"""Between sessions, the refusals of the running scheduler are explained by deciding again, within a budget."""

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Refusal
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import ExplanationSettings, Profile
from batchsched.observability.activity_recorder import ActivityRecorder
from batchsched.record.file import SessionRecord, compare_decisions, read_session_file
from batchsched.runner.refusal_explanations import ExplanationOutcome, ExplanationResultCode
from batchsched.scheduler.explanation_worker import (
    MINUTE,
    QUIET_SECONDS,
    ExplanationGate,
    ExplanationWorker,
    OutdatedExplanationError,
)
from batchsched.session.explanation.explain import RefusalVerifier, explain_refusals
from batchsched.session.explanation.verification import DecidedInput, decide_assignments
from batchsched.session.session import decide
from batchsched.session.tables.gang import GangState
from batchsched.session.tables.session_tables import PODS_BETWEEN_PAUSES, SessionTables
from batchsched.solver.relaxation.budget import ExplanationBudget
from tests.service.town import Town
from tests.session.scenario import NOW, alone, cluster, gang, nodes, pod, profile

EIGHT = {"gpu": 8}
WORKER = "batchsched.scheduler.explanation_worker"


class Explaining(Town):
    """A town with an explanation worker; the worker runs only when a test calls `explain`."""

    worker: ExplanationWorker
    outcomes: list[ExplanationOutcome]
    reported: list[dict[str, Refusal]]
    observer: ActivityRecorder

    def __init__(self, snapshot: Snapshot, budget: ExplanationSettings | None = None) -> None:
        self.budget = budget or ExplanationSettings(cpu_share=1)
        super().__init__(snapshot)

    @override
    def lead(self, settings: Profile) -> None:
        self.outcomes, self.reported = [], []
        self.worker = ExplanationWorker(
            self.budget,
            self.clock,
            lambda: self.loop.is_deciding,
            lambda key: any(pod.key.startswith(key) for pod in self.cache.snapshot().pods),
            (self.outcomes.append,),
        )
        self.observer = ActivityRecorder(self.clock, 10)
        super().lead(settings)
        self.profile_scheduler.recording = True

        def report(_: object, decision: Any, __: float) -> None:
            self.reported.append({refusal.pod_group: refusal for refusal in decision.refusals})

        self.loop._callbacks = (
            *self.loop._callbacks,
            self.worker.wrap_callback_with_known_explanations(report),
            self.observer.record_decision,
        )

    async def explain(self, times: int = 1, after: float = 1.0) -> None:
        for _ in range(times):
            self.clock.turn(after)
            await self.worker.run_once()

    def recorded_session(self, folder: Path) -> SessionRecord:
        recorded = self.observer.sessions.get_session(1)
        assert recorded is not None
        file = folder / "session.json.gz"
        file.write_bytes(recorded.encode_as_session_file())
        return read_session_file(file)

    def explained(self) -> dict[str, Refusal]:
        return {
            outcome.refusal.pod_group: outcome.explained for outcome in self.outcomes if outcome.explained
        }


def one_node_short() -> Snapshot:
    return cluster(nodes(1, gpu=8), gang("bert", 2, requests=EIGHT))


async def test_refused_gang_gets_the_text_that_commands_print_for_the_same_input(tmp_path):
    town = Explaining(one_node_short())
    await town.turn()
    await town.explain()
    session = town.recorded_session(tmp_path)
    decided = DecidedInput(session.snapshot, session.profile, session.now, session.seed, session.decision)
    (by_command,) = explain_refusals(decided).refusals
    assert town.explained() == {"team/bert": by_command}
    assert by_command.verified
    assert by_command.relaxation == "1 more node like n0"


async def test_explanations_change_neither_the_decision_nor_its_record(tmp_path):
    town = Explaining(one_node_short())
    await town.turn()
    await town.explain()
    session = town.recorded_session(tmp_path)
    (refusal,) = session.decision.refusals
    assert not refusal.verified
    again = decide(session.snapshot, session.profile, session.now, session.seed)
    assert compare_decisions(session.decision, again) == ()


async def test_nothing_is_explained_just_after_a_session_or_a_binding():
    town = Explaining(one_node_short())
    await town.turn()
    await town.explain(after=QUIET_SECONDS / 2)
    assert town.outcomes == []
    await town.explain(after=QUIET_SECONDS)
    town.worker.pause_after_binding(pod("any"), "n0", "", 0.0)
    assert len(town.outcomes) == 1


async def test_explanation_that_still_holds_is_reported_at_once():
    town = Explaining(one_node_short())
    await town.turn()
    await town.explain()
    town.profile_scheduler.queue.activate(("team/bert-0", "team/bert-1"), town.clock.now())
    await town.turn(1)
    assert [session["team/bert"].verified for session in town.reported] == [False, True]
    await town.explain()
    assert len(town.outcomes) == 1


async def test_changed_cluster_makes_an_explanation_outdated():
    town = Explaining(one_node_short())
    await town.turn()
    await town.explain()
    town.cache.put(nodes(3, gpu=4)[2])
    await town.turn(30)
    assert not town.reported[-1]["team/bert"].verified
    await town.explain()
    assert [outcome.result for outcome in town.outcomes] == [ExplanationResultCode.VERIFIED] * 2


async def test_newer_session_of_the_gang_ends_its_explanation(monkeypatch):
    town = Explaining(one_node_short())
    await town.turn()
    began, do_not_pause = threading.Event(), threading.Event()

    def slowly(*args: Any) -> Any:
        began.set()
        do_not_pause.wait(10)
        return decide_assignments(*args)

    monkeypatch.setattr(f"{WORKER}.decide_assignments", slowly)
    town.clock.turn(1)
    explaining = asyncio.create_task(town.worker.run_once())
    while not began.is_set():
        await asyncio.sleep(0.01)
    town.cache.put(nodes(2, gpu=8)[1])
    await town.turn(30)
    do_not_pause.set()
    town.clock.turn(1)
    await explaining
    (outcome,) = town.outcomes
    assert (outcome.result, outcome.explained) == (ExplanationResultCode.OUTDATED, None)
    assert set(town.bound) == {"bert-0", "bert-1"}


async def test_gang_that_is_deleted_is_not_explained():
    town = Explaining(one_node_short())
    await town.turn()
    for name in ("bert-0", "bert-1"):
        town.delete(name)
    await town.explain(3)
    assert town.outcomes == []


async def test_defect_in_an_explanation_is_logged_and_the_next_gang_is_explained(monkeypatch, caplog):
    town = Explaining(
        cluster(nodes(1, gpu=8), gang("bad", 2, requests=EIGHT), gang("good", 2, requests=EIGHT))
    )
    await town.turn()
    explain = RefusalVerifier.explain_refusal

    def explain_refusal(self: Any, refusal: Refusal, budget: ExplanationBudget) -> Refusal:
        if refusal.pod_group == "team/bad":
            raise RuntimeError("a defect")
        return explain(self, refusal, budget)

    monkeypatch.setattr(RefusalVerifier, "explain_refusal", explain_refusal)
    with caplog.at_level(logging.ERROR):
        await town.explain(2)
    assert {outcome.refusal.pod_group: outcome.result for outcome in town.outcomes} == {
        "team/bad": ExplanationResultCode.FAILED,
        "team/good": ExplanationResultCode.VERIFIED,
    }
    assert "the refusal of team/bad is not explained: a defect: a defect" in caplog.text


async def test_explanations_rest_until_they_keep_to_their_share_of_the_cpu(monkeypatch):
    town = Explaining(
        cluster(nodes(1, gpu=8), gang("a", 2, requests=EIGHT), gang("b", 2, requests=EIGHT)),
        ExplanationSettings(cpu_share=0.1),
    )
    times = iter([0.0, 2.0, 2.0, 4.0])
    monkeypatch.setattr("time.thread_time", lambda: next(times))
    await town.turn()
    await town.explain()
    await town.explain(after=17)
    assert len(town.outcomes) == 1
    await town.explain(after=2)
    assert len(town.outcomes) == 2


async def test_number_of_explanations_in_a_minute_is_limited():
    town = Explaining(
        cluster(nodes(1, gpu=1), alone(5, gpu=8)), ExplanationSettings(cpu_share=1, gangs_per_minute=2)
    )
    await town.turn()
    await town.explain(5)
    assert len(town.outcomes) == 2
    await town.explain(1, after=MINUTE)
    assert len(town.outcomes) == 3


async def test_share_of_zero_explains_nothing():
    town = Explaining(one_node_short(), ExplanationSettings(cpu_share=0))
    await town.turn()
    await town.explain(3)
    assert town.outcomes == []


async def test_gang_without_an_explanation_comes_first_and_namespaces_take_turns():
    pods = [
        msgspec.structs.replace(
            made, metadata=msgspec.structs.replace(made.metadata, namespace=made.name.partition("-")[0])
        )
        for made in (pod(name, gpu=8) for name in ("many-0", "many-1", "many-2", "few-0"))
    ]
    town = Explaining(cluster(nodes(1, gpu=1), Snapshot(pods=tuple(pods))))
    await town.turn()
    await town.explain(4)
    assert [outcome.refusal.pod_group for outcome in town.outcomes] == [
        "few/few-0",
        "many/many-0",
        "many/many-1",
        "many/many-2",
    ]


async def test_session_of_extenders_is_not_decided_again():
    town = Explaining(one_node_short())
    extender = {"urlPrefix": "http://localhost:1", "filterVerb": "filter", "ignorable": True}
    town.profile_scheduler.profile = profile(extenders=[extender])
    await town.turn()
    await town.explain(3)
    assert town.outcomes == []


def test_decision_of_an_explanation_stops_when_a_session_begins_and_is_repeated():
    """The session begins in the third stage of the first attempt, and ends while the explanation waits."""
    checks = iter([False, False, False, True, True, True])
    gate = ExplanationGate(lambda: next(checks, False), lambda: True)
    snapshot = one_node_short()
    assert gate.decide_again(snapshot, profile(), NOW, 0).assignments == ()
    assert next(checks, None) is None


def test_decision_of_an_explanation_stops_after_a_bounded_number_of_pods(monkeypatch):
    added: list[str] = []
    add_pod_to_gang = SessionTables._add_pod_to_gang

    def count(tables: SessionTables, added_pod: Pod) -> GangState:
        added.append(added_pod.key)
        return add_pod_to_gang(tables, added_pod)

    monkeypatch.setattr(SessionTables, "_add_pod_to_gang", count)
    gate = ExplanationGate(lambda: False, lambda: len(added) < 1.5 * PODS_BETWEEN_PAUSES)
    with pytest.raises(OutdatedExplanationError):
        gate.decide_again(cluster(nodes(1), alone(5 * PODS_BETWEEN_PAUSES)), profile(), NOW, 0)
    assert len(added) == 2 * PODS_BETWEEN_PAUSES


def test_explanation_that_sessions_always_interrupt_is_given_up(monkeypatch):
    monkeypatch.setattr(f"{WORKER}.MAX_INTERRUPTIONS", 3)
    answers = [False, True] * 3
    gate = ExplanationGate(lambda: answers.pop(0), lambda: True)
    with pytest.raises(OutdatedExplanationError):
        gate.decide_again(one_node_short(), profile(), NOW, 0)
    assert answers == []


async def test_worker_that_stops_ends_its_thread():
    town = Explaining(one_node_short())
    await town.turn()
    town.clock.turn(1)
    town.loop.is_deciding = False
    town.worker.is_deciding = lambda: False
    town.worker.start()
    await asyncio.sleep(0)
    town.worker.stop()
    for _ in range(100):
        await asyncio.sleep(0.01)
        if not any(thread.name == "explanation" for thread in threading.enumerate()):
            break
    assert not any(thread.name == "explanation" for thread in threading.enumerate())

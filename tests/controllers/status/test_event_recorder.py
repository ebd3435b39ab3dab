"""Events: in kube-scheduler's form, repeats as one series, none lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from batchsched.controllers import event_recorder as recording
from batchsched.controllers.event_recorder import (
    MAX_CONCURRENT_EVENTS,
    MAX_DELAY_SECONDS,
    REFRESH_SECONDS,
    SERIES_END_SECONDS,
    EventRecorder,
    PendingEvent,
    Reference,
    WriteThrottle,
    object_reference,
)
from batchsched.controllers.status_controller import OUR_QUEUES
from batchsched.errors import ApiError, Unreachable
from batchsched.kube.connection import POD_RESOURCE
from tests.controllers.status.office import Desk
from tests.kube.virtual import Skewed, run

BERT = object_reference(POD_RESOURCE, "team", "bert-0", "u0")


def fact(note: str = "0/1 nodes are available: no room.", about: Reference = BERT) -> PendingEvent:
    return PendingEvent(about, "FailedScheduling", "Scheduling", note, warning=True)


def played(
    story: Callable[[EventRecorder, Desk], Awaitable[None]], desk: Desk | None = None, busy: bool = False
) -> Desk:
    """Run a story while a recorder writes."""
    desk = desk or Desk()

    async def play() -> None:
        clock = Skewed()
        server: Any = desk
        one = EventRecorder(
            server, clock, WriteThrottle(clock, lambda: busy), "batchsched", "batchsched-here"
        )
        running = asyncio.create_task(one.run())
        await story(one, desk)
        running.cancel()
        await asyncio.wait([running])

    run(play())
    return desk


def test_event_has_the_form_of_kube_schedulers():
    async def story(one: EventRecorder, _: Desk) -> None:
        one.record_once(PendingEvent(BERT, "Scheduled", "Binding", "Successfully assigned team/bert-0 to n0"))
        await one.drain()

    ((method, path, body),) = played(story).sent
    assert (method, path) == ("POST", "/apis/events.k8s.io/v1/namespaces/team/events")
    name = body["metadata"].pop("name")
    assert name.startswith("bert-0.")
    assert body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "team"},
        "eventTime": "2023-11-14T22:13:20.000000Z",
        "reportingController": "batchsched",
        "reportingInstance": "batchsched-here",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "bert-0", "uid": "u0", "namespace": "team"},
        "note": "Successfully assigned team/bert-0 to n0",
        "type": "Normal",
    }


def test_repeats_are_one_series_that_is_written_now_and_then():
    async def story(one: EventRecorder, desk: Desk) -> None:
        one.record_series(fact())
        await asyncio.sleep(1)
        for _ in range(500):
            one.record_series(fact())
        await asyncio.sleep(1)
        assert [method for method, _, _ in desk.sent] == ["POST"]
        await asyncio.sleep(2 * REFRESH_SECONDS)
        assert [method for method, _, _ in desk.sent] == ["POST", "PATCH"]
        one.record_series(fact())
        await one.drain()

    *_, before, last = played(story).sent
    assert before[2]["series"]["count"] == 501
    assert last[2]["series"]["count"] == 502


def test_another_sentence_is_another_event_and_a_series_ends():
    async def story(one: EventRecorder, _: Desk) -> None:
        one.record_series(fact())
        one.record_series(fact("0/1 nodes are available: other."))
        await asyncio.sleep(SERIES_END_SECONDS + REFRESH_SECONDS)
        one.record_series(fact())
        await one.drain()

    assert [method for method, _, _ in played(story).sent] == ["POST"] * 3


def test_events_wait_for_binds_but_not_for_ever_and_few_go_at_once():
    async def story(one: EventRecorder, desk: Desk) -> None:
        for at in range(40):
            one.record_once(fact(f"{at}"))
        await asyncio.sleep(0.5)
        assert not desk.sent
        await asyncio.sleep(20)
        assert len(desk.sent) == 40
        assert desk.most_at_once <= MAX_CONCURRENT_EVENTS

    played(story, Desk(slow=0.01), busy=True)


def test_none_is_lost_when_the_server_is_away_for_a_moment():
    async def story(one: EventRecorder, desk: Desk) -> None:
        desk.fail(Unreachable("no answer"), Unreachable("no answer"))
        one.record_once(fact())
        await one.drain()
        assert (one.written, one.dropped) == (1, 0)

    assert len(played(story).sent) == 1


def test_event_that_is_there_already_was_written_by_us():
    async def story(one: EventRecorder, desk: Desk) -> None:
        desk.fail(Unreachable("no answer"), ApiError(409, "AlreadyExists", "it is there"))
        one.record_once(fact())
        await one.drain()
        assert (one.written, one.dropped) == (1, 0)

    played(story)


def test_event_that_the_server_does_not_take_is_dropped_and_counted():
    async def story(one: EventRecorder, desk: Desk) -> None:
        desk.fail(ApiError(403, "Forbidden", "the namespace is being deleted"))
        one.record_once(fact())
        await one.drain()
        assert (one.written, one.dropped) == (0, 1)

    played(story)


def test_series_whose_event_is_gone_begins_anew():
    async def story(one: EventRecorder, desk: Desk) -> None:
        one.record_series(fact())
        await asyncio.sleep(1)
        one.record_series(fact())
        desk.fail(ApiError(404, "NotFound", "it was an hour old"))
        await one.drain()

    assert [method for method, _, _ in played(story).sent] == ["POST", "POST"]


def test_full_queue_drops_and_counts(monkeypatch):
    monkeypatch.setattr(recording, "MAX_QUEUED_EVENTS", 3)

    async def story(one: EventRecorder, _: Desk) -> None:
        for at in range(5):
            one.record_series(fact(f"{at}"))
        assert (one.queued_count, one.dropped) == (3, 2)
        await one.drain()

    assert len(played(story).sent) == 3


def test_long_notes_are_cut_and_what_has_no_namespace_is_told_in_default():
    async def story(one: EventRecorder, _: Desk) -> None:
        one.record_once(fact("ä" * 2000, about=object_reference(OUR_QUEUES, "", "ml", "u1")))
        await one.drain()

    ((_, path, body),) = played(story).sent
    assert path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert len(body["note"].encode()) <= 1024
    assert body["note"].endswith("…")


def test_turn_comes_when_nobody_is_bound_any_more():
    async def story() -> None:
        ends = asyncio.get_running_loop().time() + 0.5
        loop = asyncio.get_running_loop()
        await WriteThrottle(Skewed(), lambda: loop.time() < ends).wait()
        assert 0.5 <= loop.time() < 0.6

    run(story())


def test_turn_comes_in_any_case_and_at_once_in_a_hurry():
    async def story() -> None:
        loop = asyncio.get_running_loop()
        throttle = WriteThrottle(Skewed(), lambda: True)
        await throttle.wait()
        assert MAX_DELAY_SECONDS <= loop.time() < MAX_DELAY_SECONDS + 0.1
        throttle.hurry = True
        before = loop.time()
        await throttle.wait()
        assert loop.time() == before

    run(story())

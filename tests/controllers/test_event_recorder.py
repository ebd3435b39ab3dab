"""Events: in kube-scheduler's form, repeats as one series, none lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batchsched.controllers import event_recorder
from batchsched.controllers.event_recorder import (
    MAX_CONCURRENT_EVENTS,
    MAX_DELAY_SECONDS,
    REFRESH_SECONDS,
    SERIES_END_SECONDS,
    EventObjectReference,
    EventRecorder,
    PendingEvent,
    WriteDelay,
    object_reference,
)
from batchsched.controllers.status_controller import OUR_QUEUES
from batchsched.errors import ApiError, Unreachable
from batchsched.kube.connection import POD_RESOURCE
from tests.controllers.office import Desk
from tests.kube.virtual import Skewed

pytestmark = pytest.mark.virtual_time
BERT = object_reference(POD_RESOURCE, "team", "bert-0", "u0")


def fact(note: str = "0/1 nodes are available: no room.", about: EventObjectReference = BERT) -> PendingEvent:
    return PendingEvent(about, "FailedScheduling", "Scheduling", note, warning=True)


@asynccontextmanager
async def recording(
    desk: Desk | None = None, busy: bool = False
) -> AsyncIterator[tuple[EventRecorder, Desk]]:
    """Run a recorder that writes to a desk."""
    desk, clock = desk or Desk(), Skewed()
    server: Any = desk
    one = EventRecorder(server, clock, WriteDelay(clock, lambda: busy), "batchsched", "batchsched-here")
    running = asyncio.create_task(one.run())
    yield one, desk
    running.cancel()
    await asyncio.wait([running])


async def test_event_has_the_format_of_kube_scheduler():
    async with recording() as (one, desk):
        one.record_without_series(
            PendingEvent(BERT, "Scheduled", "Binding", "Successfully assigned team/bert-0 to n0")
        )
        await one.wait_until_all_written()
    ((method, path, body),) = desk.sent
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


async def test_repeated_events_are_one_series_that_is_written_periodically():
    async with recording() as (one, desk):
        one.record_series(fact())
        await asyncio.sleep(1)
        for _ in range(500):
            one.record_series(fact())
        await asyncio.sleep(1)
        assert [method for method, _, _ in desk.sent] == ["POST"]
        await asyncio.sleep(2 * REFRESH_SECONDS)
        assert [method for method, _, _ in desk.sent] == ["POST", "PATCH"]
        one.record_series(fact())
        await one.wait_until_all_written()
    *_, before, last = desk.sent
    assert before[2]["series"]["count"] == 501
    assert last[2]["series"]["count"] == 502


async def test_another_message_is_another_event_and_ends_the_series():
    async with recording() as (one, desk):
        one.record_series(fact())
        one.record_series(fact("0/1 nodes are available: other."))
        await asyncio.sleep(SERIES_END_SECONDS + REFRESH_SECONDS)
        one.record_series(fact())
        await one.wait_until_all_written()
    assert [method for method, _, _ in desk.sent] == ["POST"] * 3


async def test_events_are_delayed_during_binds_for_a_limited_time_and_sent_in_small_batches():
    async with recording(Desk(slow=0.01), busy=True) as (one, desk):
        for at in range(40):
            one.record_without_series(fact(f"{at}"))
        await asyncio.sleep(0.5)
        assert not desk.sent
        await asyncio.sleep(20)
        assert len(desk.sent) == 40
        assert desk.most_at_once <= MAX_CONCURRENT_EVENTS


NO_ANSWER = Unreachable("no answer")


@pytest.mark.parametrize(
    "faults, written",
    [
        pytest.param([NO_ANSWER, NO_ANSWER], 1, id="server away for a moment"),
        pytest.param(
            [NO_ANSWER, ApiError(409, "AlreadyExists", "it is there")], 1, id="written before the fault"
        ),
        pytest.param([ApiError(403, "Forbidden", "the namespace is being deleted")], 0, id="rejected"),
    ],
)
async def test_event_is_written_after_a_fault_unless_the_server_rejects_it(faults, written):
    async with recording() as (one, desk):
        desk.fail(*faults)
        one.record_without_series(fact())
        await one.wait_until_all_written()
        assert (one.written, one.dropped) == (written, 1 - written)
    if NO_ANSWER in faults[1:]:
        assert len(desk.sent) == 1


async def test_series_with_a_deleted_event_starts_again():
    async with recording() as (one, desk):
        one.record_series(fact())
        await asyncio.sleep(1)
        one.record_series(fact())
        desk.fail(ApiError(404, "NotFound", "it was an hour old"))
        await one.wait_until_all_written()
    assert [method for method, _, _ in desk.sent] == ["POST", "POST"]


async def test_full_queue_drops_and_counts(monkeypatch):
    monkeypatch.setattr(event_recorder, "MAX_QUEUED_EVENTS", 3)
    async with recording() as (one, desk):
        for at in range(5):
            one.record_series(fact(f"{at}"))
        assert (one.queued_count, one.dropped) == (3, 2)
        await one.wait_until_all_written()
    assert len(desk.sent) == 3


async def test_long_notes_are_cut_and_events_of_cluster_objects_are_in_default():
    async with recording() as (one, desk):
        one.record_without_series(fact("ä" * 2000, about=object_reference(OUR_QUEUES, "", "ml", "u1")))
        await one.wait_until_all_written()
    ((_, path, body),) = desk.sent
    assert path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert len(body["note"].encode()) <= 1024
    assert body["note"].endswith("…")


async def test_write_may_be_sent_when_no_pod_is_being_bound():
    ends = asyncio.get_running_loop().time() + 0.5
    loop = asyncio.get_running_loop()
    await WriteDelay(Skewed(), lambda: loop.time() < ends).wait_for_bindings()
    assert 0.5 <= loop.time() < 0.6


async def test_write_is_delayed_for_a_limited_time_and_not_at_shutdown():
    loop = asyncio.get_running_loop()
    write_delay = WriteDelay(Skewed(), lambda: True)
    await write_delay.wait_for_bindings()
    assert MAX_DELAY_SECONDS <= loop.time() < MAX_DELAY_SECONDS + 0.1
    write_delay.hurry = True
    before = loop.time()
    await write_delay.wait_for_bindings()
    assert loop.time() == before

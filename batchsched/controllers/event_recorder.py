"""The event recorder, which writes Events to the API server, and delays them while pods are being bound.

An Event costs the API server as much as a binding. So Events are queued while pods are being bound, and only a few
are written at once. Events that do not fit the queue are dropped and counted. A leader that ends in order writes all.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from batchsched.errors import ApiError, BatchschedError, Unreachable
from batchsched.kube.connection import EVENTS, ApiResource
from batchsched.kube.writer import Writer
from batchsched.ports.cluster import Clock

_LOG: Final = logging.getLogger(__name__)
MAX_QUEUED_EVENTS: Final = 50_000
"""Maximum number of queued Events."""
MAX_CONCURRENT_EVENTS: Final = 8
REFRESH_SECONDS: Final = 30.0
"""Seconds between two writes of one series."""
SERIES_END_SECONDS: Final = 360.0
"""Seconds without a repeat after which a series ends, as in kube-scheduler."""
CHECK_SECONDS: Final = 0.05
"""Seconds between two checks whether bindings are in flight."""
MAX_DELAY_SECONDS: Final = 1.0
"""Maximum delay of a write in seconds: under constant load, writes are late but do not stop."""
_TRIES: Final = 3
_LONGEST_NOTE: Final = 1024
_LONGEST_NAME: Final = 220
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404


class WriteDelay:
    """The component that delays status and Event writes by at most one second while pods are being bound.

    Args:
      clock: The clock.
      busy: Returns whether pods are being bound.
    """

    def __init__(self, clock: Clock, busy: Callable[[], bool]) -> None:
        self._clock = clock
        self._busy = busy
        self.hurry = False
        """Whether writes are no longer delayed, since this replica is about to stop."""

    async def wait_for_bindings(self) -> None:
        """Wait until no pods are being bound, but at most one second."""
        begun = self._clock.monotonic()
        while self._busy() and not self.hurry and self._clock.monotonic() - begun < MAX_DELAY_SECONDS:
            await self._clock.sleep(CHECK_SECONDS)


class EventObjectReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A reference to the object that a Kubernetes Event is about."""

    api_version: str
    kind: str
    name: str
    uid: str = ""
    namespace: str = ""


def object_reference(resource: ApiResource, namespace: str, name: str, uid: str) -> EventObjectReference:
    """Return the reference by which Events name the object that they are about."""
    return EventObjectReference(resource.api_version, resource.kind, name, uid, namespace)


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """A Kubernetes Event that is to be written.

    Args:
      target: The object.
      reason: The reason, one word.
      action: The action during which it happened.
      note: The message, a sentence.
      warning: Whether its type is Warning.
    """

    target: EventObjectReference
    reason: str
    action: str
    note: str
    warning: bool = False


@dataclass(slots=True)
class _Series:
    """An Event with its repeats; `written_count` is the number of occurrences that the API server has."""

    name: str
    namespace: str
    event: PendingEvent
    first: float
    last: float
    count: int = 1
    written_count: int = 0
    written: float = 0.0
    waits: bool = field(default=True)


class EventRecorder:
    """The component that queues Kubernetes Events and writes them to the API server.

    Args:
      writer: Sends requests to the API server.
      clock: The clock.
      write_delay: Delays writes while pods are being bound.
      controller: The name of the reporting controller.
      instance: The name of the reporting replica.
    """

    def __init__(
        self, writer: Writer, clock: Clock, write_delay: WriteDelay, controller: str, instance: str = ""
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._write_delay = write_delay
        self._source = {
            "reportingController": controller,
            "reportingInstance": (instance or controller)[:128],
        }
        self._queue: deque[_Series] = deque()
        self._series: dict[tuple[EventObjectReference, str, str], _Series] = {}
        self._wake = asyncio.Event()
        self._writing = 0
        self._number = 0
        self.written = 0
        """Number of Events that were written, repeats included."""
        self.dropped = 0
        """Number of Events that are lost: the queue was full, or the API server rejected them."""

    def record_without_series(self, event: PendingEvent) -> None:
        """Queue an Event that is written once, without a series of repeats."""
        self._put(self._new_series(event))

    def record_series(self, event: PendingEvent) -> None:
        """Queue an Event, or count a repeat if an equal Event was recorded before."""
        key = (event.target, event.reason, event.note)
        series = self._series.get(key)
        if series is None:
            series = self._new_series(event)
            if self._put(series):
                self._series[key] = series
            return
        series.count += 1
        series.last = self._clock.now()

    @property
    def queued_count(self) -> int:
        """The number of Events that are queued or being written."""
        return len(self._queue) + self._writing

    async def run(self) -> None:
        """Write the queued Events until the task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(MAX_CONCURRENT_EVENTS):
                tasks.create_task(self._write_all(), name=f"events-{number}")
            tasks.create_task(self._refresh(), name="events-series")

    async def wait_until_all_written(self) -> None:
        """Wait until all queued Events and all counted repeats are written. `run` must be running."""
        self._repeat(self._clock.now(), after=0.0)
        while self.queued_count:
            await self._clock.sleep(0.01)

    def _new_series(self, event: PendingEvent) -> _Series:
        now = self._clock.now()
        self._number += 1
        name = f"{event.target.name[:_LONGEST_NAME]}.{int(now * 1e6):x}{self._number & 0xFFFFF:05x}"
        # Events of cluster-scoped objects are created in the namespace `default`, as in all of Kubernetes.
        return _Series(name, event.target.namespace or "default", event, now, now)

    def _put(self, series: _Series) -> bool:
        if len(self._queue) >= MAX_QUEUED_EVENTS:
            self.dropped += 1
            return False
        series.waits = True
        self._queue.append(series)
        self._wake.set()
        return True

    async def _refresh(self) -> None:
        while True:
            await self._clock.sleep(REFRESH_SECONDS / 2)
            now = self._clock.now()
            self._repeat(now, after=REFRESH_SECONDS)
            for key in [
                key
                for key, series in self._series.items()
                if now - series.last > SERIES_END_SECONDS and not series.waits
            ]:
                del self._series[key]

    def _repeat(self, now: float, after: float) -> None:
        """Queue the series with repeats that are not written."""
        for series in self._series.values():
            if series.count > series.written_count and not series.waits and now - series.written >= after:
                self._put(series)

    async def _write_all(self) -> None:
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            self._writing += 1
            series = self._queue.popleft()
            try:
                await self._write_delay.wait_for_bindings()
                await self._write(series)
            finally:
                self._writing -= 1

    async def _write(self, series: _Series) -> None:
        for _ in range(_TRIES):
            count = series.count
            series.waits = False
            try:
                if series.written_count:
                    change = {"series": _repeats(series)}
                    await self._writer.patch(EVENTS, series.namespace, series.name, change)
                else:
                    await self._writer.create(EVENTS, series.namespace, self._body(series))
            except ApiError as error:
                if (
                    error.status == _NOT_FOUND and series.written_count
                ):  # the API server deletes Events after an hour
                    series.written_count = 0
                    continue
                if error.status != _CONFLICT:
                    return self._drop(series, error)
            except Unreachable:
                await self._clock.sleep(1.0)
                continue
            except BatchschedError as error:  # this replica does not lead any more
                return self._drop(series, error)
            series.written_count, series.written = count, self._clock.now()
            self.written += 1
            return None
        return self._drop(series, None)

    def _drop(self, series: _Series, error: BatchschedError | None) -> None:
        _LOG.debug("Event %s of %s is dropped: %s", series.event.reason, series.event.target.name, error)
        series.written_count = series.count  # its repeats neither
        self.dropped += 1

    def _body(self, series: _Series) -> dict[str, Any]:
        event = series.event
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": series.namespace},
            "eventTime": format_micro_time(series.first),
            **self._source,
            "action": event.action,
            "reason": event.reason,
            "regarding": event.target,
            "note": _cut(event.note),
            "type": "Warning" if event.warning else "Normal",
        }
        return body if series.count == 1 else {**body, "series": _repeats(series)}


def _repeats(series: _Series) -> dict[str, Any]:
    return {"count": max(2, series.count), "lastObservedTime": format_micro_time(series.last)}


def format_micro_time(moment: float) -> str:
    """Format seconds since 1970 as a Kubernetes MicroTime, in UTC with microseconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _cut(note: str) -> str:
    raw = note.encode()
    if len(raw) <= _LONGEST_NOTE:
        return note
    return raw[: _LONGEST_NOTE - 3].decode(errors="ignore") + "…"

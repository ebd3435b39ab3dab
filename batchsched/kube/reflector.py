"""Following one collection of the API: list it in pages, watch it from there, and list again when the thread is lost.

Owed by every reflector, and kept here: bookmarks, so that a quiet watch can be taken up again; a time limit on every
watch; backoff with jitter on failures, also on watches that end as soon as they began; a fresh list on 410 Gone only.
Source: the behaviour of client-go's Reflector.
"""

import asyncio
import logging
from typing import Final

import msgspec

from batchsched.errors import ApiError, Unreachable
from batchsched.kube.backoff import Backoff
from batchsched.kube.connection import Connection
from batchsched.kube.resources import Resource
from batchsched.ports.clock import Clock
from batchsched.ports.feed import Sink

_LOG: Final = logging.getLogger(__name__)
_WATCH_SECONDS: Final = 300
"""The shortest time that a watch is asked for; the longest is twice that, so that not all watches end together."""
_GRACE: Final = 15.0
"""Seconds that a server may be late in ending a watch before the connection counts as dead."""
_SHORT: Final = 1.0
"""A watch that ended within so many seconds without an event counts as a failure."""
_GONE: Final = 410


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class _Versioned(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Meta(msgspec.Struct, frozen=True):
    metadata: _Versioned = _Versioned()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Failure(msgspec.Struct, frozen=True):
    code: int = 500
    reason: str = ""
    message: str = ""


_LIST: Final = msgspec.json.Decoder(_List)
_EVENT: Final = msgspec.json.Decoder(_Event)
_META: Final = msgspec.json.Decoder(_Meta)
_FAILURE: Final = msgspec.json.Decoder(_Failure)


class Reflector:
    """Tells a sink of every object of a collection, for as long as it runs.

    Args:
      connection: to the API server.
      resource: the collection.
      sink: is told.
      clock: waits.
      selector: more of the query, such as a fieldSelector.
      page: objects of one page of a list.
    """

    def __init__(
        self,
        connection: Connection,
        resource: Resource,
        sink: Sink,
        clock: Clock,
        *,
        selector: dict[str, str] | None = None,
        page: int = 500,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        """Set once the first list was taken in."""
        self._connection = connection
        self._sink = sink
        self._clock = clock
        self._selector = dict(selector or {})
        self._page = page
        self._version = ""
        self._backoff = Backoff(clock)

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except (ApiError, Unreachable, msgspec.DecodeError) as error:
                await self._recover(error)

    async def _recover(self, error: Exception) -> None:
        status = error.status if isinstance(error, ApiError) else 0
        if status == _GONE:
            self._version = ""  # what we knew is too old to go on from
        elif status == 404:  # the kind is not installed, or no more: nobody is to wait for it
            self._version = ""
            self._sink.replaced(())
            self.synced.set()
        _LOG.warning("%s: %s; going on", self.resource.plural, error)
        await self._backoff.wait(error.retry_after if isinstance(error, ApiError) else 0.0)

    async def _list(self) -> None:
        """Take in everything there is, page by page."""
        found: list[bytes] = []
        query = {**self._selector, "limit": str(self._page)}
        while True:
            raw = await self._connection.request("GET", self.resource.path(), query=query, deadline=60.0)
            page = _LIST.decode(raw)
            found += [bytes(item) for item in page.items or ()]
            if not page.metadata.continue_:
                break
            query = {**query, "continue": page.metadata.continue_}
        self._sink.replaced(found)
        self._version = page.metadata.resource_version
        self._backoff.reset()
        self.synced.set()

    async def _watch(self) -> None:
        """Follow changes until the server ends the watch, as it does after a few minutes."""
        seconds = int(_WATCH_SECONDS * (1 + self._clock.jitter()))
        query = {
            **self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        begun, seen = self._clock.monotonic(), 0
        async for lines in self._connection.lines(self.resource.path(), query, seconds + _GRACE):
            for line in lines:
                if line:
                    self._take(_EVENT.decode(line))
                    seen += 1
            self._backoff.reset()
        if not seen and self._clock.monotonic() - begun < _SHORT:
            raise Unreachable("the watch ended as soon as it began")

    def _take(self, event: _Event) -> None:
        raw = bytes(event.object)
        match event.type:
            case "ADDED" | "MODIFIED":
                self._sink.changed(raw)
            case "DELETED":
                self._sink.gone(raw)
            case "BOOKMARK":
                pass
            case "ERROR":
                failure = _FAILURE.decode(raw)
                raise ApiError(failure.code, failure.reason, failure.message)
            case _:
                _LOG.warning(
                    "%s: an event of an unknown type %r is passed over", self.resource.plural, event.type
                )
                return
        self._version = _META.decode(raw).metadata.resource_version or self._version

"""Following one collection of the API: list it in pages, watch it from there, and list again when the thread is lost.

Owed by every reflector, and kept here: bookmarks, so that a quiet watch can be taken up again; a time limit on every
watch; backoff with jitter on failures, also on watches that end as soon as they began; a fresh list on 410 Gone only.
A right that is missing is told once, with the rule that gives it, and asked for again as any other failure.
Source: the behaviour of client-go's Reflector.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from batchsched.errors import ApiError, Unreachable
from batchsched.kube.backoff import Backoff
from batchsched.kube.connection import Connection
from batchsched.kube.listing import PAGE, page, pages
from batchsched.kube.resources import Resource
from batchsched.ports.clock import Clock
from batchsched.ports.feed import Sink

_LOG: Final = logging.getLogger(__name__)
_WATCH_SECONDS: Final = 300
"""The shortest time that a watch is asked for; the longest is twice that, so that not all watches end together."""
_SHORT: Final = 1.0
"""A watch that ended within so many seconds without an event counts as a failure."""
_MOMENT: Final = 1
"""Seconds of a watch that takes in what is late: the shortest that can be asked for."""
_LONGEST_WAIT: Final = 15.0
"""Seconds between two attempts at most: so much later do we hear of a server that came back."""
_NOBODY: Final = "nobody.batchsched.dev"
"""A name that no object has."""
_DEADLINE: Final = 10.0
_GONE: Final = 410
_FORBIDDEN: Final = 403
_FOR_GOOD: Final = 3
"""Refusals in a row after which a right is missing: an API server that just began refuses before it knows roles."""
_DETAIL: Final = logging.INFO - 2
"""What only `-vv` shows."""


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


_EVENT: Final = msgspec.json.Decoder(_Event)
_META: Final = msgspec.json.Decoder(_Meta)
_FAILURE: Final = msgspec.json.Decoder(_Failure)


@dataclass(frozen=True, slots=True)
class ReflectorTimes:
    """How a collection is followed.

    Args:
      selector: more of every query, such as a fieldSelector.
      page: objects of one page of a list.
      silence: seconds without a byte after which a watch counts as dead. A bookmark comes every minute, or a
        little later.
      without: what becomes of it while we may not read the collection; "": everybody has to wait for that.
    """

    selector: Mapping[str, str] = field(default_factory=dict)
    page: int = PAGE
    silence: float = 90.0
    without: str = ""


class Reflector:
    """Tells a sink of every object of a collection, for as long as it runs.

    Args:
      connection: to the API server.
      resource: the collection.
      sink: is told.
      clock: waits.
      terms: how it is followed.
      read: makes of an object as it comes what the sink is told, so that no list is ever held as text; None from
        it is passed over.
    """

    def __init__(
        self,
        connection: Connection,
        resource: Resource,
        sink: Sink[Any],
        clock: Clock,
        *,
        terms: ReflectorTimes | None = None,
        read: Callable[[bytes], Any] = bytes,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        """Set once the first list was taken in, or nobody has to wait for it."""
        self.forbidden = False
        """Whether we lack the right to list or watch."""
        self.lists = self.events = self.failures = 0
        """How often the collection was listed, events that watches brought, and what failed, since the start."""
        self.heard_at: float | None = None
        """When a watch brought something last, an event or a bookmark; by the monotonic clock."""
        self._connection = connection
        self._sink = sink
        self._clock = clock
        self._terms = terms or ReflectorTimes()
        self._version = ""
        self._read = read
        self._missing = False
        self._refusals = 0
        self._asked = self._answered = 0
        """How often somebody wanted all to be told, and up to which of these it was."""
        self._told = asyncio.Event()
        self._watching: asyncio.Timeout | None = None
        self._backoff = Backoff(clock, longest=_LONGEST_WAIT)

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        while True:
            asked = self._asked
            try:
                if not self._version:
                    await self._list()
                elif asked > self._answered:
                    await self._catch_up()
                else:
                    await self._follow()
                    continue
                self._answered = asked
                self._told.set()
            except (ApiError, Unreachable, msgspec.DecodeError) as error:
                await self._recover(error)

    async def _follow(self) -> None:
        """Watch until the server ends it, or somebody wants to be up to date."""
        try:
            async with asyncio.timeout(None) as self._watching:
                await self._watch(int(_WATCH_SECONDS * (1 + self._clock.jitter())))
        except TimeoutError:
            _LOG.log(_DETAIL, "%s: the watch is taken up anew", self.resource.plural)
        finally:
            self._watching = None

    async def up_to_date(self) -> None:
        """Wait until the sink was told all that had been written when this was called.

        A watch tells everything, but not how late it is; one that has fallen silent tells nothing for a while.
        """
        self._asked += 1
        mine = self._asked
        if self._watching is not None and not self._watching.expired():
            self._watching.reschedule(asyncio.get_running_loop().time())
        while self._answered < mine:
            self._told.clear()
            await self._told.wait()

    @property
    def needed(self) -> bool:
        """Whether nothing may be decided before the collection was listed."""
        return not self._terms.without

    async def _recover(self, error: Exception) -> None:
        status = error.status if isinstance(error, ApiError) else 0
        self.failures += status != 404
        if status == 404:
            self._absent()
        elif status == _FORBIDDEN:
            self._refused(error)
        else:
            _LOG.warning("%s: %s; going on", self.resource.plural, error)
        if status in (404, _GONE):
            self._version = ""  # what we knew is too old to go on from
        await self._backoff.wait(error.retry_after if isinstance(error, ApiError) else 0.0)

    def _absent(self) -> None:
        """The kind is not installed, or no more: nobody is to wait for it."""
        if not self._missing:
            _LOG.log(_DETAIL, "%s of %s: no such kind", self.resource.plural, self.resource.api_version)
            self._sink.replaced(())
        self._missing = True
        self.synced.set()

    def _refused(self, error: Exception) -> None:
        """Say once which right is missing; what we knew before stays."""
        self._refusals += 1
        if self.forbidden or self._refusals < _FOR_GOOD:
            _LOG.log(_DETAIL, "%s: %s; going on", self.resource.full_name, error)
            return
        self.forbidden = True
        where = self.resource
        _LOG.warning(
            '%s: %s; the rule that gives it: {apiGroups: ["%s"], resources: [%s], verbs: [list, watch]}; until then %s',
            where.full_name,
            error,
            where.group,
            where.plural,
            self._terms.without
            or ("we go by what we know" if self.synced.is_set() else "nothing is scheduled"),
        )
        if not self.needed:
            self.synced.set()

    def _allowed(self) -> None:
        if self.forbidden:
            _LOG.info("%s: may be listed and watched now", self.resource.full_name)
        self.forbidden, self._refusals = False, 0

    async def _list(self) -> None:
        """Take in everything there is, page by page."""
        found: list[Any] = []
        version = ""
        terms = self._terms
        async with aclosing(
            pages(self._connection, self.resource.path(), terms.selector, terms.page)
        ) as all_pages:
            async for items, latest in all_pages:
                found += map(self._read, items)
                version = latest
        self._sink.replaced([one for one in found if one is not None])
        self.lists += 1
        self.heard_at = self._clock.monotonic()
        self._version = version
        # The backoff stays as it is: lists may go well whose watches do not.
        self._missing = False
        self._allowed()
        self.synced.set()

    async def _catch_up(self) -> None:
        """Take in what is not told yet, by a short watch: what is late comes first in it, and its end after that.

        Before it a consistent read of nothing: its answer waits until the server, which answers watches from a cache of
        its own, is up to date (1.31 and later).
        """
        nothing = {"fieldSelector": f"metadata.name={_NOBODY}"}
        await page(self._connection, self.resource.path(), nothing, _DEADLINE)
        await self._watch(_MOMENT)

    async def _watch(self, seconds: int) -> None:
        """Follow changes until the server ends the watch, after so many seconds."""
        query = {
            **self._terms.selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        begun, seen = self._clock.monotonic(), 0
        async with aclosing(
            self._connection.lines(self.resource.path(), query, self._terms.silence)
        ) as stream:
            async for lines in stream:
                for line in lines:
                    if line:
                        self._take(_EVENT.decode(line))
                        seen += 1
                self.heard_at = self._clock.monotonic()
                self._backoff.reset()
                self._allowed()
        if self._clock.monotonic() - begun < _SHORT and (not seen or seconds == _MOMENT):
            raise Unreachable("the watch ended as soon as it began")
        self._backoff.reset()

    def _take(self, event: _Event) -> None:
        raw = bytes(event.object)
        match event.type:
            case "ADDED" | "MODIFIED":
                self._tell(self._sink.changed, raw)
            case "DELETED":
                self._tell(self._sink.gone, raw)
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

    def _tell(self, how: Callable[[Any], None], raw: bytes) -> None:
        found = self._read(raw)
        self.events += 1
        if found is not None:
            how(found)

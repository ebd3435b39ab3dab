"""Lists and watches one collection of the API, and passes each object to a handler.

The rules of every reflector:

- It requests bookmarks, so that a watch without events can be resumed.
- Every watch has a time limit.
- Failures are retried with backoff and jitter. A watch that ends immediately is a failure.
- The collection is listed again only after 410 Gone, or if its resourceVersion goes back: then the API server was
  restored from a backup, and a watch from a version of the future delivers nothing. After each failure, and before a
  replica leads, a consistent read tells. The versions of a collection that changes rarely may tell nothing, so
  `on_rewound` reports a restore, and the other reflectors list again as well.
- A missing permission is logged once, with the RBAC rule that grants it, and retried like any other failure.
- Users write the objects. An exception about one object sets this object aside, and all others are handled.

Source: the Reflector of client-go.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from batchsched.api.crd.validation import FieldError
from batchsched.api.json_errors import MAX_MESSAGE_CHARACTERS, to_field_error
from batchsched.errors import ApiError, Unreachable
from batchsched.kube.clock import RetryBackoff
from batchsched.kube.connection import ApiResource, Connection
from batchsched.kube.listing import PAGE, list_page, list_pages
from batchsched.ports.cluster import Clock, ObjectHandler, SetAsideObject

_LOG: Final = logging.getLogger(__name__)
_WATCH_SECONDS: Final = 300
"""The shortest requested duration of a watch. The longest is twice that, so that watches do not all end together."""
_MIN_WATCH_SECONDS: Final = 1.0
"""A watch that ends earlier without an event counts as a failure."""
_DOUBTFUL_WATCH_SECONDS: Final = 10
"""Duration of a watch that is resumed although the API server refuses to tell its resourceVersion."""
_CATCH_UP_SECONDS: Final = 1
"""Duration of a watch that catches up with late events: the shortest that the API accepts."""
_MAX_BACKOFF_SECONDS: Final = 15.0
"""The longest wait between two attempts, and so the longest delay after the API server returns."""
_NO_OBJECT: Final = "no-object.batchsched.dev"
"""A name that no object has."""
_DEADLINE_SECONDS: Final = 10.0
_GONE: Final = 410
_TOO_LARGE: Final = "too large resource version"
"""Part of the message of an API server that was asked for a resourceVersion of the future."""
_MAX_CHECKS: Final = 3
"""Attempts to compare versions before a replica leads."""
_FORBIDDEN: Final = 403
_REFUSALS_UNTIL_FORBIDDEN: Final = 3
"""Consecutive refusals after which a permission counts as missing. A starting API server refuses until it has roles."""
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)
"""Errors of an object that cannot be decoded. Any other error is a defect of batchsched."""
_DETAIL: Final = logging.INFO - 2
"""The level of messages that only `-vv` shows."""


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
class ReflectorSettings:
    """The settings of a reflector, such as its selector, its page size and the timeout of its watches.

    Args:
      selector: further parameters of each query, such as a fieldSelector.
      page: the number of objects of one page of a list.
      silence: seconds without a byte after which a watch counts as lost. The API server sends a bookmark about every
        minute.
      without: the consequence of a missing permission, as a sentence; "" means that nothing is scheduled without the
        permission.
    """

    selector: Mapping[str, str] = field(default_factory=dict)
    page: int = PAGE
    silence: float = 90.0
    without: str = ""


class _Rewound(Exception):
    """The resourceVersion of a collection went back."""


def do_nothing_on_restored_backup() -> None:
    """Do nothing; this is the default callback for an API server that was restored from a backup."""


class Reflector:
    """The component that lists and watches one collection of the API, and passes all changes to a handler.

    Args:
      connection: the connection to the API server.
      resource: the collection.
      handler: receives the objects.
      clock: the clock for waits.
      terms: the settings.
      read: decodes each object as it arrives, so that no list is held as text. Objects for which it returns None
        are skipped.
    """

    def __init__(
        self,
        connection: Connection,
        resource: ApiResource,
        handler: ObjectHandler[Any],
        clock: Clock,
        *,
        terms: ReflectorSettings | None = None,
        read: Callable[[bytes], Any] = bytes,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        """Set after the first list, or if sessions need not wait for it."""
        self.forbidden = False
        """Whether the permission to list or watch is missing."""
        self.lists = self.events = self.failures = 0
        """The numbers of lists, of watch events and of failures since the start."""
        self.on_rewound: Callable[[], None] = do_nothing_on_restored_backup
        """Called if the API server was restored from a backup."""
        self.last_event_at: float | None = None
        """The time of the last event or bookmark, by the monotonic clock."""
        self._connection = connection
        self._handler = handler
        self._clock = clock
        self._terms = terms or ReflectorSettings()
        self._version = ""
        self._read_object = read
        self.is_missing = False
        self._in_doubt = False
        """Whether a failure came after the last event, so that the API server may have been restored meanwhile."""
        self._list_again = False
        """Whether the next step is a list, whatever the version."""
        self._watch_first = False
        """Whether the watch is resumed before the next comparison of versions, because the last ones were refused."""
        self._refusals = 0
        self._requested = self._served = 0
        """The number of calls of `wait_until_up_to_date`, and how many of them were served."""
        self._caught_up = asyncio.Event()
        self._watching: asyncio.Timeout | None = None
        self._pausing: asyncio.Timeout | None = None
        self._backoff = RetryBackoff(clock, longest=_MAX_BACKOFF_SECONDS)

    @property
    def set_aside_objects(self) -> Mapping[str, SetAsideObject]:
        """The invalid objects of the collection that the handler set aside, by `namespace/name`."""
        return self._handler.set_aside_objects

    async def run(self) -> None:
        """List and watch the collection until this task is cancelled."""
        while True:
            requested = self._requested
            try:
                if self._must_list:
                    await self._list()
                elif self._in_doubt and not self._watch_first:
                    await self._end_doubt()
                    continue
                elif requested > self._served:
                    await self._catch_up()
                else:
                    await self._follow()
                    continue
                self._served = requested
                self._caught_up.set()
            except _Rewound as error:
                _LOG.warning("%s: %s; listing again", self.resource.plural, error)
                self._version = ""
                if not self._list_again:  # otherwise another reflector was first
                    self.on_rewound()
                self._backoff.reset()  # the server answers
                await self._backoff.wait()
            except (ApiError, Unreachable, msgspec.DecodeError, RecursionError) as error:
                await self._recover(error)

    async def _follow(self) -> None:
        """Watch until the server ends the watch, or until `wait_until_up_to_date` is called."""
        self._watch_first = False
        seconds = int(_WATCH_SECONDS * (1 + self._clock.random_fraction()))
        try:
            async with asyncio.timeout(None) as self._watching:
                await self._watch(_DOUBTFUL_WATCH_SECONDS if self._in_doubt else seconds)
        except TimeoutError:
            _LOG.log(_DETAIL, "%s: the watch is resumed", self.resource.plural)
        finally:
            self._watching = None

    async def verify_resource_version(self) -> None:
        """Verify that the collection's resourceVersion has not decreased; if it has, wait for a new list.

        The known objects are kept if the API server does not answer, or if the kind is not installed.
        """
        if self._must_list:
            await self.wait_for_list()
            return
        backoff = RetryBackoff(self._clock)
        for _ in range(_MAX_CHECKS):
            try:
                await self._check_version()
            except _Rewound:
                # The run loop makes the same comparison, and lists again.
                self._in_doubt = True
                await self.wait_until_up_to_date()
            except ApiError as error:
                if error.status not in (404, _FORBIDDEN):
                    await backoff.wait(error.retry_after)
                    continue
            except (Unreachable, msgspec.DecodeError):
                await backoff.wait()
                continue
            return
        _LOG.warning("%s: its resourceVersion could not be verified", self.resource.plural)

    async def wait_for_list(self) -> None:
        """Wait until the collection has been listed, if it must be listed; otherwise return at once.

        For an optional kind, return at once as well, because sessions need not wait for it.
        """
        if self._must_list and self.is_required_for_sessions and not self.forbidden:
            await self.wait_until_up_to_date()

    def request_relist(self) -> None:
        """Make `run` list the collection again at once, because the API server was restored from a backup."""
        self._list_again = True
        _end(self._watching)
        _end(self._pausing)

    @property
    def is_relist_requested(self) -> bool:
        """Whether the collection must be listed again because the API server was restored from a backup."""
        return self._list_again and not self.forbidden

    @property
    def _must_list(self) -> bool:
        return not self._version or self._list_again

    async def wait_until_up_to_date(self) -> None:
        """Wait until the handler has received every change that was written before this call.

        A watch delivers all events but does not show its delay, and a lost connection delivers none for a while. If the
        kind is not installed, there is nothing to wait for.
        """
        if self.is_missing:
            return
        self._requested += 1
        number = self._requested
        _end(self._watching)
        while self._served < number:
            self._caught_up.clear()
            await self._caught_up.wait()

    @property
    def is_required_for_sessions(self) -> bool:
        """Whether sessions must wait until the collection has been listed once."""
        return not self._terms.without

    async def _recover(self, error: Exception) -> None:
        status = error.status if isinstance(error, ApiError) else 0
        self.failures += status != 404
        if status == 404:
            self._absent()
        elif status == _FORBIDDEN:
            self._refused(error)
        else:
            problem = (
                f"the answer is invalid: {to_field_error(error)}"
                if isinstance(error, msgspec.DecodeError)
                else error
            )
            _LOG.warning("%s: %s; retrying", self.resource.plural, problem)
        if status in (404, _GONE) or _TOO_LARGE in str(error).lower():
            self._version = ""  # too old to resume from, or of the future
        self._in_doubt = bool(self._version)
        with contextlib.suppress(TimeoutError):  # `request_relist` ends it
            async with asyncio.timeout(None) as self._pausing:
                await self._backoff.wait(error.retry_after if isinstance(error, ApiError) else 0.0)
        self._pausing = None

    def _absent(self) -> None:
        """The kind is not installed: sessions and a new leader need not wait for it."""
        if not self.is_missing:
            _LOG.log(_DETAIL, "%s of %s: no such kind", self.resource.plural, self.resource.api_version)
            self._replace([])
        self.is_missing = True
        self._list_again = False
        self.synced.set()
        self._served = self._requested
        self._caught_up.set()

    def _refused(self, error: Exception) -> None:
        """Log once which permission is missing. The objects that are known already are kept."""
        self._refusals += 1
        if self.forbidden or self._refusals < _REFUSALS_UNTIL_FORBIDDEN:
            _LOG.log(_DETAIL, "%s: %s; retrying", self.resource.full_name, error)
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
            or ("the known objects are used" if self.synced.is_set() else "nothing is scheduled"),
        )
        if not self.is_required_for_sessions:
            self.synced.set()

    def _allowed(self) -> None:
        if self.forbidden:
            _LOG.info("%s: may be listed and watched now", self.resource.full_name)
        self.forbidden, self._refusals = False, 0

    async def _list(self) -> None:
        """List all objects, page by page."""
        objects: list[Any] = []
        unreadable: list[tuple[bytes, Exception]] = []
        version = ""
        terms = self._terms
        async with contextlib.aclosing(
            list_pages(self._connection, self.resource.path(), terms.selector, terms.page)
        ) as all_pages:
            async for items, latest in all_pages:
                for raw in items:
                    decoded, error = self._read(raw)
                    if error is not None:
                        unreadable.append((raw, error))
                    elif decoded is not None:
                        objects.append(decoded)
                version = latest
        self._replace(objects)
        for raw, error in unreadable:  # after the list, which forgets all that was set aside before
            self._put_aside(raw, error)
        self.lists += 1
        self.last_event_at = self._clock.monotonic()
        self._version = version
        self._in_doubt = self._list_again = False
        # No reset of the backoff: lists may succeed although watches fail.
        self.is_missing = False
        self._allowed()
        self.synced.set()

    async def _catch_up(self) -> None:
        """Receive late events by a short watch: it delivers them before it ends.

        The API server serves watches from a cache. A consistent list without results comes first, because the server
        (1.31 and later) answers it only when that cache is up to date.
        """
        await self._check_version()
        await self._watch(_CATCH_UP_SECONDS)

    async def _end_doubt(self) -> None:
        """Compare versions before the watch is resumed.

        An API server that starts refuses everything for a moment, so a refusal does not end the doubt. If the
        permission to list is missing, comparisons alternate with short watches.
        """
        try:
            await self._check_version()
        except ApiError as error:
            self._watch_first = self.forbidden and error.status == _FORBIDDEN
            raise

    async def _check_version(self) -> None:
        """Read the resourceVersion of the collection consistently, by a list without results.

        Source: KEP-5504, which allows clients to compare resourceVersions of one kind as numbers.

        Raises:
          _Rewound: it is lower than the version of an earlier answer.
        """
        before = self._version
        nothing = {"fieldSelector": f"metadata.name={_NO_OBJECT}"}
        listed = await list_page(self._connection, self.resource.path(), nothing, _DEADLINE_SECONDS)
        self._in_doubt = False
        _compare_versions(before, listed.metadata.resource_version)

    async def _watch(self, seconds: int) -> None:
        """Watch changes until the server ends the watch after a number of seconds."""
        query = {
            **self._terms.selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        begun, seen = self._clock.monotonic(), 0
        async with contextlib.aclosing(
            self._connection.watch_lines(self.resource.path(), query, self._terms.silence)
        ) as stream:
            async for lines in stream:
                for line in lines:
                    if line:
                        self._take_line(line)
                        seen += 1
                self.last_event_at = self._clock.monotonic()
                self._backoff.reset()
                if not self._in_doubt:
                    self._allowed()
        if self._clock.monotonic() - begun < _MIN_WATCH_SECONDS and (
            not seen or seconds == _CATCH_UP_SECONDS
        ):
            raise Unreachable("the watch ended immediately")
        self._backoff.reset()

    def _take_line(self, line: bytes) -> None:
        try:
            event = _EVENT.decode(line)
        except RecursionError:  # a custom resource with unknown fields may be nested without a bound
            _LOG.warning("%s: skipped an object that is nested too deeply", self.resource.plural)
            return
        self._take(event)

    def _take(self, event: _Event) -> None:
        raw = bytes(event.object)
        version = "" if event.type == "ERROR" else _resource_version(raw)
        _compare_versions(self._version, version)
        match event.type:
            case "ADDED" | "MODIFIED":
                self._deliver(self._handler.on_add_or_update, raw)
            case "DELETED":
                self._deliver(self._handler.on_delete, raw)
            case "BOOKMARK":
                pass
            case "ERROR":
                failure = _FAILURE.decode(raw)
                raise ApiError(failure.code, failure.reason, failure.message)
            case _:
                _LOG.warning("%s: skipped an event of the unknown type %r", self.resource.plural, event.type)
                return
        self.events += event.type != "BOOKMARK"
        self._version = version or self._version

    def add_or_update_from_json(self, raw: bytes) -> None:
        """Add or update an object in the handler from JSON that another component has read from the API server."""
        self._deliver(self._handler.on_add_or_update, raw)

    def _deliver(self, deliver: Callable[[Any], None], raw: bytes) -> None:
        decoded, error = self._read(raw)
        if error is None and decoded is not None:
            error = _failure_of(deliver, decoded)
        if error is not None:
            self._put_aside(raw, error)

    def _read(self, raw: bytes) -> tuple[Any, Exception | None]:
        try:
            return self._read_object(raw), None
        except Exception as error:  # noqa: BLE001 - see _failure_of
            return None, error

    def _replace(self, objects: Sequence[Any]) -> None:
        """Replace all objects. If that fails, leave out the objects that cause the failure."""
        if _failure_of(self._handler.on_replace, objects) is None:
            return
        usable: list[Any] = []
        unusable: list[tuple[Any, Exception]] = []
        for item in objects:
            error = _failure_of(self._handler.on_add_or_update, item)
            if error is None:
                usable.append(item)
            else:
                unusable.append((item, error))
        # The second list removes the objects that were deleted, and forgets what was set aside.
        error = _failure_of(self._handler.on_replace, usable)
        if error is not None:
            _LOG.error(
                "%s: objects that were deleted meanwhile may be missed: %s",
                self.resource.plural,
                _name_error(error),
            )
        for item, error in unusable:
            self._put_aside(item, error)

    def _put_aside(self, item: Any, error: Exception) -> None:
        """Set an object aside. An exception of the handler is logged, because the other objects matter more."""
        if isinstance(error, _UNREADABLE):
            problem = to_field_error(error)
        else:
            problem = FieldError(
                "", f"batchsched cannot handle this object, please report it: {_name_error(error)}"
            )
        failed = _failure_of(partial(self._handler.set_object_aside, item), problem)
        if failed is not None:
            _LOG.error("%s: %s; and then: %s", self.resource.plural, problem, _name_error(failed))


def _end(waiting: asyncio.Timeout | None) -> None:
    """Let a wait end now."""
    if waiting is not None and not waiting.expired():
        waiting.reschedule(asyncio.get_running_loop().time())


def _failure_of(handle: Callable[[Any], None], item: Any) -> Exception | None:
    """Handle an object, or a list, and return the exception; None if there was none.

    This is the boundary at which objects of users enter the process. A defect in reading or handling one object must
    cost this object only: an exception would end the process, and the object would end its successor as well.
    """
    try:
        handle(item)
    except Exception as error:  # noqa: BLE001 - any exception, as the docstring says
        return error
    return None


def _name_error(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:MAX_MESSAGE_CHARACTERS]}"


def _resource_version(raw: bytes) -> str:
    try:
        return _META.decode(raw).metadata.resource_version
    except (ValueError, RecursionError):  # the next event has a later version
        return ""


def _compare_versions(before: str, after: str) -> None:
    """Compare two resourceVersions of one kind, if both are numbers.

    Raises:
      _Rewound: the version after is lower.
    """
    if before.isdecimal() and after.isdecimal() and _numeric_key(after) < _numeric_key(before):
        raise _Rewound(f"the API server went back from resourceVersion {before} to {after}")


def _numeric_key(digits: str) -> tuple[int, str]:
    """Return a key that sorts decimal numbers of any length; `int` refuses more than 4,300 digits."""
    significant = digits.lstrip("0")
    return len(significant), significant

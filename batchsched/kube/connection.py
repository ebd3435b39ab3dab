"""Requests to the API server: each with a deadline, each answered by bytes or by an error that says of which kind."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

import aiohttp
import msgspec
from aiohttp import AddrInfoType
from yarl import URL

from batchsched.errors import ApiError, Unreachable, UnusableInput
from batchsched.kube.credentials import Credentials, Identity
from batchsched.ports.clock import Clock

_LOG: Final = logging.getLogger(__name__)
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
_REFRESH: Final = 30.0
"""Seconds between two looks at the files behind our credentials."""
_NO_LIMIT: Final = aiohttp.ClientTimeout(total=None)
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""Of the socket, where the system has it: a peer that is gone is noticed in half a minute, also on a quiet watch."""
_TROUBLE: Final = (aiohttp.ClientError, TimeoutError, OSError)
NO_ANSWER: Final = "<error>"
"""Stands for the status of an answer that never came, as in client-go's metrics."""
_OPENING = 20.0
"""Seconds within which a watch has to begin: the API server answers at once, when nothing has happened too."""
_CLOSING: Final = 1.0
"""Seconds that closing may take at most."""
_HIDDEN: Final = 300
"""Characters of an answer that is no Status object (a proxy's page, say) that are worth repeating."""


class _Status(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


Asked = Callable[[str, str, float], None]
"""Hears of a request: its method, the status of the answer, and how many seconds it took."""


def _unheard(method: str, status: str, seconds: float) -> None:
    """Tell nobody."""


class Connection:
    """A pool of connections to one API server; use it as an asynchronous context manager.

    Args:
      credentials: who we are.
      clock: waits.
    """

    def __init__(self, credentials: Credentials, clock: Clock) -> None:
        self.asked: Asked = _unheard
        """Hears of each request but watches."""
        self._credentials = credentials
        self._clock = clock
        self._identity: Identity | None = None
        self._session: aiohttp.ClientSession | None = None
        self._refresher: asyncio.Task[None] | None = None
        self._renewing = asyncio.Lock()
        self._sockets: WeakSet[socket.socket] = WeakSet()

    async def __aenter__(self) -> Self:
        await self._load(anew=False)
        # trust_env looks for proxies at each request, which costs three times the request itself.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60, socket_factory=self._socket),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._refresher = asyncio.create_task(self._refresh(), name="credentials")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.wait([self._refresher])
        if self._session is not None:
            await self._session.close()
            await self._closed()

    async def _closed(self) -> None:
        """Wait for connections whose requests were cut short: TLS closes them in a turn to and fro."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + _CLOSING
        while loop.time() < ends and any(one.fileno() >= 0 for one in self._sockets):
            await asyncio.sleep(0.002)

    def _socket(self, address: AddrInfoType) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    @property
    def namespace(self) -> str:
        """The namespace that we run in."""
        return self._credentials.namespace

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        deadline: float = 10.0,
    ) -> bytes:
        """Ask, and return the body of the answer. A 401 is tried once more with fresh credentials.

        Raises:
          ApiError: the server refused.
          Unreachable: there was no answer within `deadline` seconds.
        """
        content = (body, content_type)
        try:
            # Not aiohttp's own limit, which it rounds up to a full second: a lease may hang on it.
            async with asyncio.timeout(deadline):
                used = self._identity
                try:
                    return await self._once(method, path, query, content)
                except ApiError as error:
                    if error.status != 401 or not await self._renew(used):
                        raise
                return await self._once(method, path, query, content)
        except _TROUBLE as error:
            raise Unreachable(f"{method} {path}: {_told(error)}") from error

    async def lines(
        self, path: str, query: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines of a watch as they come, several at a time.

        Args:
          path: of the collection.
          query: of the watch.
          silence: seconds without a byte after which the connection counts as dead.

        Raises:
          ApiError: the server refused.
          Unreachable: the connection broke, or ended in the middle of a line.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=silence)
        used = self._identity
        try:
            async with asyncio.timeout(_OPENING):
                opened = await self._open("GET", path, query, (None, JSON), timeout)
            async with opened as answer:
                if answer.status != 200:
                    refusal = await _refusal(answer)
                    if refusal.status == 401:
                        await self._renew(used)  # for the next attempt
                    raise refusal
                begun = b""
                async for chunk in answer.content.iter_any():
                    *whole, begun = (begun + chunk).split(b"\n")
                    if whole:
                        yield whole
                if begun.strip():
                    raise Unreachable(f"GET {path}: the watch ended in the middle of an event")
        except _TROUBLE as error:
            raise Unreachable(f"GET {path}: {_told(error)}") from error

    async def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        content: tuple[bytes | None, str],
    ) -> bytes:
        begun, status = self._clock.monotonic(), NO_ANSWER
        try:
            async with self._open(method, path, query, content, _NO_LIMIT) as answer:
                if answer.status >= 300:
                    refusal = await _refusal(answer)
                    status = str(answer.status)
                    raise refusal
                found: bytes = await answer.read()
                status = str(answer.status)
                return found
        finally:
            self.asked(method, status, self._clock.monotonic() - begun)

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        content: tuple[bytes | None, str],
        timeout: aiohttp.ClientTimeout,
    ) -> Any:
        if self._session is None or self._identity is None:
            raise Unreachable("the connection is not open")
        now = self._identity
        body, content_type = content
        headers = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": "batchsched"}
        if now.authorization:
            headers["Authorization"] = now.authorization
        if body is not None:
            headers["Content-Type"] = content_type
        return self._session.request(
            method,
            URL(now.server + path, encoded=True),
            params=query,
            data=body,
            headers=headers,
            timeout=timeout,
            ssl=now.tls if now.tls is not None else False,
            server_hostname=now.server_name,
            proxy=now.proxy,
            allow_redirects=False,
        )

    async def _load(self, *, anew: bool) -> None:
        # In a thread: an exec plugin is a program that may take seconds.
        self._identity = await asyncio.to_thread(self._credentials.load, anew=anew)

    async def _renew(self, used: Identity | None) -> bool:
        """Get other credentials than those that the server did not take; return whether there are any.

        Many requests fail together, and an exec plugin is to run once.
        """
        async with self._renewing:
            if self._identity is used:
                try:
                    await self._load(anew=True)
                except UnusableInput as error:
                    _LOG.warning(
                        "the server takes our credentials no more, and there are no others: %s", error
                    )
                    return False
        return True

    async def _refresh(self) -> None:
        while True:
            await self._clock.sleep(_REFRESH)
            try:
                await self._load(anew=False)
            except UnusableInput as error:  # a file half written; what we have may be good for a while
                _LOG.warning("credentials stay as they were: %s", error)


def _socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


async def _refusal(answer: aiohttp.ClientResponse) -> ApiError:
    said = await answer.read()
    try:
        status = msgspec.json.decode(said, type=_Status)
    except msgspec.DecodeError:
        status = _Status(message=said[:_HIDDEN].decode(errors="replace").strip() or answer.reason or "")
    return ApiError(
        answer.status, status.reason, status.message, _seconds(answer.headers.get("Retry-After", ""))
    )


def _seconds(text: str) -> float:
    """Return the seconds of a Retry-After header; the API server states no dates."""
    return float(text) if text.isdigit() else 0.0


def _told(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer within the deadline"
    return str(error) or type(error).__name__

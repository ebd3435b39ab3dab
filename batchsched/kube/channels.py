"""Connections for requests that are answered at once: one request after the other on each, many connections.

An HTTP client for all purposes takes 200 µs of CPU for a request to the API server, most of it for what nobody asks for
here (redirects, cookies, forms, traces, decompression); this takes a fraction of it, and a scheduler's CPU is requests
first of all. Watches, and servers behind a proxy, are left to such a client.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import quote, urlencode, urlsplit

from typing_extensions import override

from batchsched.kube.answer import Answer, Reading
from batchsched.kube.credentials import Identity
from batchsched.ports.clock import Clock

_IDLE: Final = 60.0
"""Seconds after which an idle connection is not used any more: before the server, or what is between, drops it."""
_REPEATABLE: Final = ("GET", "PUT", "DELETE")
"""What may be sent again when the server dropped an idle connection just then."""
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""Of the socket, where the system has it: a peer that is gone is noticed in half a minute, also on a quiet watch."""

Socket = Callable[[int, int, int], socket.socket]
"""Makes a socket of a family, kind and protocol."""


class Dropped(ConnectionError):
    """The server dropped the connection before a byte of its answer came."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked.

    Args:
      method: GET and so on.
      path: under the server's URL.
      query: of it.
      body: None for none.
      content_type: of the body.
    """

    method: str
    path: str
    query: Mapping[str, str] | None
    body: bytes | None
    content_type: str


class _Channel(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reading = Reading()
        self._answer: asyncio.Future[Answer] | None = None
        self.idle_since = 0.0
        self.open = True

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    async def ask(self, raw: bytes) -> Answer:
        """Send a request, and wait for its answer; whoever does not wait for it ends the connection."""
        if self._transport is None or not self.open:
            raise Dropped("the connection is closed")
        self._reading = Reading()
        self._answer = self._loop.create_future()
        self._transport.write(raw)
        try:
            return await self._answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None

    def close(self) -> None:
        """End it at once."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    @override
    def data_received(self, data: bytes) -> None:
        waiting = self._answer
        if waiting is None or waiting.done():  # nobody asked
            self.close()
            return
        try:
            answer = self._reading.feed(data)
        except ConnectionError as error:
            waiting.set_exception(error)
            return
        if answer is not None:
            self.open = answer.lasting
            waiting.set_result(answer)

    @override
    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        waiting = self._answer
        if waiting is None or waiting.done():
            return
        answer = self._reading.end()
        if answer is not None and error is None:
            waiting.set_result(answer)
        elif self._reading.begun:
            waiting.set_exception(ConnectionError("the connection broke in the middle of the answer"))
        else:
            waiting.set_exception(Dropped(f"the connection broke before the answer{_told(error)}"))


@dataclass(slots=True)
class _Server:
    """Where requests of one identity go, and what each of them begins with."""

    identity: Identity
    host: str = field(init=False)
    port: int = field(init=False)
    base: str = field(init=False)
    headers: str = field(init=False)

    def __post_init__(self) -> None:
        url = urlsplit(self.identity.server)
        self.host = url.hostname or ""
        self.port = url.port or (443 if url.scheme == "https" else 80)
        self.base = url.path.rstrip("/")
        authorization = self.identity.authorization
        self.headers = (
            f" HTTP/1.1\r\nHost: {url.netloc.rpartition('@')[2]}\r\nAccept: application/json\r\n"
            "Accept-Encoding: identity\r\nUser-Agent: batchsched\r\n"
            + (f"Authorization: {authorization}\r\n" if authorization else "")
        )

    def written(self, request: Request) -> bytes:
        """Return a request as it is sent."""
        path = self.base + request.path
        if not path.isascii() or not path.isprintable() or " " in path:
            path = quote(path)
        query = f"?{urlencode(request.query)}" if request.query else ""
        head = f"{request.method} {path}{query}{self.headers}"
        body = request.body
        if body is None:
            return f"{head}\r\n".encode()
        length = f"Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        return (head + length).encode() + body


class Channels:
    """Connections to one server; those of an identity that is no more are not used again.

    Args:
      clock: tells how long they have been idle.
      make: makes a socket.
    """

    def __init__(self, clock: Clock, make: Socket) -> None:
        self._clock = clock
        self._make = make
        self._idle: list[_Channel] = []
        self._server: _Server | None = None

    async def ask(self, identity: Identity, request: Request) -> Answer:
        """Send a request, and return its answer.

        Raises:
          OSError: there was none.
        """
        server = self._of(identity)
        raw = server.written(request)
        channel = self._take()
        if channel is not None:
            try:
                return await self._asked(channel, raw, server)
            except Dropped:
                if request.method not in _REPEATABLE:
                    raise
        return await self._asked(await self._connected(server), raw, server)

    def close(self) -> None:
        """End all that are idle."""
        for one in self._idle:
            one.close()
        self._idle.clear()

    def _of(self, identity: Identity) -> _Server:
        known = self._server
        if known is None or known.identity is not identity:
            if known is not None and _trust(known.identity) != _trust(identity):
                self.close()
            known = self._server = _Server(identity)
        return known

    def _take(self) -> _Channel | None:
        now = self._clock.monotonic()
        while self._idle:
            channel = self._idle.pop()  # the one that was used last: the others may end
            if channel.open and now - channel.idle_since < _IDLE:
                return channel
            channel.close()
        return None

    async def _asked(self, channel: _Channel, raw: bytes, server: _Server) -> Answer:
        answer = await channel.ask(raw)
        current = self._server
        if channel.open and current is not None and _trust(current.identity) == _trust(server.identity):
            channel.idle_since = self._clock.monotonic()
            self._idle.append(channel)
        else:
            channel.close()
        return answer

    async def _connected(self, server: _Server) -> _Channel:
        """Connect to the first address that answers.

        Raises:
          OSError: none does.
        """
        found = await asyncio.get_running_loop().getaddrinfo(
            server.host, server.port, type=socket.SOCK_STREAM
        )
        refused = OSError(f"{server.host} has no address")
        for family, kind, protocol, _, address in found:
            try:
                return await _connected_to(server, self._make(family, kind, protocol), address)
            except OSError as error:
                refused = error
        raise refused


def _trust(identity: Identity) -> tuple[str, int, str | None]:
    """Return what a connection was made with; the token is told with each request."""
    return identity.server, id(identity.tls), identity.server_name


async def _connected_to(server: _Server, made: socket.socket, address: tuple[object, ...]) -> _Channel:
    loop, identity = asyncio.get_running_loop(), server.identity
    try:
        made.setblocking(False)
        await loop.sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    name = None if identity.tls is None else identity.server_name or server.host
    # From here on the loop closes the socket, whatever happens.
    _, channel = await loop.create_connection(_Channel, sock=made, ssl=identity.tls, server_hostname=name)
    return channel


def kept_alive(family: int, kind: int, protocol: int) -> socket.socket:
    """Return a socket that notices when its peer is gone."""
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with suppress(OSError):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _told(error: Exception | None) -> str:
    return f": {error}" if error is not None and str(error) else ""

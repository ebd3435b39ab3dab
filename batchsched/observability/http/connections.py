"""Connections of the HTTPS server: limits, deadlines, and answers to requests that are not valid HTTP.

Any client that reaches the port can open connections before it is authenticated. So the number of connections is
limited in total and for each peer. If a limit is reached, the oldest connection without a request in progress makes
room for the new one: a health check is answered while another client keeps hundreds of connections open. Every
connection has deadlines, and no text of a malformed request is logged, since it may contain a token.
"""

import asyncio
import logging
import resource
import socket
import ssl
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

_LOG: Final = logging.getLogger(__name__)
BACKLOG: Final = 128
"""Maximum number of connections that the kernel keeps until the server accepts them."""
WARNING_SECONDS: Final = 60.0
"""Minimum seconds between two warnings about a limit."""
RETRY_SECONDS: Final = 0.5
"""Seconds until the next attempt after the kernel refused to accept a connection."""
SECURITY_HEADERS: Final = (("Server", "batchsched"), ("X-Content-Type-Options", "nosniff"))
"""Headers of every answer. The server does not name its version, nor those of its libraries."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of the HTTPS server on the number of connections and on their duration.

    Args:
      total: Maximum number of connections; at most a quarter of the file descriptors that the process may open.
      per_peer: Maximum number of connections from one IP address.
      handshake_seconds: Maximum seconds for the TLS handshake.
      request_seconds: Maximum seconds without a complete request header, since the handshake or the last answer.
      connection_seconds: Maximum seconds for which a connection is open.
    """

    total: int = 128
    per_peer: int = 64
    handshake_seconds: float = 5.0
    request_seconds: float = 10.0
    connection_seconds: float = 120.0

    @property
    def effective_max_connections(self) -> int:
        """The maximum number of connections, at most a quarter of the file descriptors that the process may open."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return self.total if soft == resource.RLIM_INFINITY else max(1, min(self.total, soft // 4))


def raise_descriptor_limit() -> int:
    """Raise the soft limit on open file descriptors to the hard limit, and return the resulting limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # not every system permits it
        _LOG.warning("the limit of %d file descriptors cannot be raised: %s", soft, error)
        return soft
    return hard


@dataclass(slots=True, eq=False)
class OpenConnection:
    """A connection that the HTTPS server has accepted.

    Args:
      peer: The IP address of the client.
      task: The task of the TLS handshake.
      transport: The transport, None before the handshake is complete.
      deadline: The timer that ends the connection.
      busy: True while a request is in progress.
    """

    peer: str
    task: asyncio.Task[None] | None = field(default=None)
    transport: asyncio.BaseTransport | None = field(default=None)
    deadline: asyncio.TimerHandle | None = field(default=None)
    busy: bool = False

    def abort(self) -> None:
        """Close the connection at once, without a TLS close handshake."""
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()


class ConnectionHandler(web.RequestHandler):
    """The handler of the HTTP requests of one connection.

    Args:
      listener: Counts the connection until it is closed.
      connection: The connection.
      server: Handles the requests.
    """

    __slots__ = ("_connection", "_listener")

    def __init__(self, listener: "LimitedListener", connection: OpenConnection, server: web.Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=listener.limits.request_seconds,
            lingering_time=1.0,
            access_log=None,  # type: ignore[arg-type]  # as in `web.AppRunner`, which turns the access log off
        )
        self._listener = listener
        self._connection = connection

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.transport = transport
        super().connection_made(transport)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._listener.forget_connection(self._connection)
        super().connection_lost(exc)

    def set_busy(self, busy: bool) -> None:
        """Record whether a request is in progress: at a limit, the server closes only idle connections."""
        self._connection.busy = busy

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        # The exception quotes what the client sent, such as a part of the Authorization header.
        if isinstance(exc, HttpProcessingError | web.RequestPayloadError):
            _LOG.debug("malformed request from %s: %s", self._connection.peer, type(exc).__name__)
            answer: web.StreamResponse = web.Response(status=400, text="malformed request\n")
            answer.force_close()
        else:
            answer = super().handle_error(request, status, exc, message)
        answer.headers.update(SECURITY_HEADERS)
        return answer


class LimitedListener:
    """A listener that accepts connections on a socket, and closes idle connections when a limit is reached.

    Args:
      listening: The socket, bound and listening.
      server: Handles the requests.
      tls: The TLS context; None for plain HTTP.
      limits: The limits.
    """

    def __init__(
        self,
        listening: socket.socket,
        server: web.Server,
        tls: ssl.SSLContext | None,
        limits: ConnectionLimits,
    ) -> None:
        self.limits = limits
        self._total = limits.effective_max_connections
        self._socket = listening
        self._server = server
        self._tls = tls
        self._connections: dict[OpenConnection, None] = {}
        """The open connections, the oldest first."""
        self._peers: Counter[str] = Counter()
        self._last_warning = float("-inf")

    async def accept_connections(self) -> None:
        """Accept connections and serve their requests until the task is canceled."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)
        while True:
            try:
                accepted, address = await loop.sock_accept(self._socket)
            except OSError as error:
                # The connection was closed meanwhile, or another part of the process used all file descriptors.
                self._warn("no connection is accepted: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._admit(accepted, str(address[0]))
            # `sock_accept` returns without a pause while connections are waiting; other tasks have a turn here.
            await asyncio.sleep(0)

    def close_socket_and_idle_connections(self) -> None:
        """Close the listening socket, and all connections without a request in progress."""
        self._socket.close()
        for connection in list(self._connections):
            if not connection.busy:
                connection.abort()

    def forget_connection(self, connection: OpenConnection) -> None:
        """Remove a closed connection from the count of open connections."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._peers[connection.peer] -= 1
        if not self._peers[connection.peer]:
            del self._peers[connection.peer]
        if connection.deadline is not None:
            connection.deadline.cancel()

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        """Serve an accepted connection; close it if a limit is reached and no other connection is idle."""
        if not self._make_room(peer):
            self._warn("a connection of %s is refused: too many requests are in progress", peer)
            accepted.close()
            return
        accepted.setblocking(False)
        connection = OpenConnection(peer)
        self._connections[connection] = None
        self._peers[peer] += 1
        loop = asyncio.get_running_loop()
        connection.deadline = loop.call_later(self.limits.connection_seconds, connection.abort)
        connection.task = loop.create_task(self._serve(connection, accepted), name="connection")

    def _make_room(self, peer: str) -> bool:
        """Close connections until a peer may open one more; return False if no connection may be closed."""
        while True:
            if self._peers[peer] >= self.limits.per_peer:
                crowded = peer
            elif len(self._connections) >= self._total:
                crowded = max(self._peers, key=self._peers.__getitem__)
            else:
                return True
            idle = (
                connection
                for connection in self._connections
                if connection.peer == crowded and not connection.busy
            )
            oldest = next(idle, None)
            if oldest is None:
                return False
            self._warn("the connections of %s reach a limit; the oldest are closed", crowded)
            oldest.abort()
            self.forget_connection(oldest)

    async def _serve(self, connection: OpenConnection, accepted: socket.socket) -> None:
        """Carry out the TLS handshake of a connection; afterwards, a `ConnectionHandler` serves it."""
        handler = ConnectionHandler(self, connection, self._server)
        tls: dict[str, Any] = {}
        if self._tls is not None:
            tls = {
                "ssl": self._tls,
                "ssl_handshake_timeout": self.limits.handshake_seconds,
                "ssl_shutdown_timeout": 1.0,
            }
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: handler, accepted, **tls)
        except OSError as error:
            _LOG.debug("no TLS handshake with %s: %s", connection.peer, type(error).__name__)
        finally:
            if connection.transport is None:
                accepted.close()
                self.forget_connection(connection)

    def _warn(self, message: str, detail: object) -> None:
        """Log a warning, at most once a minute."""
        now = asyncio.get_running_loop().time()
        if now - self._last_warning >= WARNING_SECONDS:
            self._last_warning = now
            _LOG.warning(message, detail)

"""The HTTPS server: one port, with access control in front of every route, and the serving certificate.

The certificate is the operator's, reloaded when its files change, or a self-signed one (`self_signed_certificate`).
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from aiohttp import web

from batchsched.errors import CommandError
from batchsched.observability.http.access import Handler
from batchsched.observability.http.connections import (
    BACKLOG,
    SECURITY_HEADERS,
    ConnectionHandler,
    ConnectionLimits,
    LimitedListener,
)
from batchsched.ports.cluster import Clock

_LOG: Final = logging.getLogger(__name__)


class RequestAccessCheck(Protocol):
    """The interface of access control for an HTTP server, such as `DelegatedAccess`."""

    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request to its handler if it is allowed, or return a response that refuses it."""


@dataclass(slots=True)
class HttpServer:
    """An HTTP or HTTPS server with access control; it serves its routes from `start` until `stop`.

    Args:
      access: The access control.
      routes: The routes to serve.
      address: The address to listen on.
      port: The port to listen on; 0 selects a free port.
      tls: The TLS context; None serves plain HTTP.
      limits: The limits of connections.
    """

    access: RequestAccessCheck
    routes: Iterable[web.RouteDef]
    address: str
    port: int
    tls: ssl.SSLContext | None
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    _runner: web.AppRunner | None = field(init=False, default=None)
    _listener: LimitedListener | None = field(init=False, default=None)
    _accepting: asyncio.Task[None] | None = field(init=False, default=None)

    async def start(self) -> None:
        """Listen on the address and port, and start to serve requests.

        Raises:
          CommandError: The port is in use, or the address does not exist.
        """

        @web.middleware
        async def handle_with_access_check(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = request.protocol
            if not isinstance(connection, ConnectionHandler):
                return await self.access.middleware(request, handler)
            connection.set_busy(True)
            try:
                return await self.access.middleware(request, handler)
            finally:
                connection.set_busy(False)

        app = web.Application(middlewares=[handle_with_access_check])
        app.add_routes(self.routes)
        app.on_response_prepare.append(_add_security_headers)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            listening = socket.create_server(
                (self.address, self.port),
                family=socket.AF_INET6 if ":" in self.address else socket.AF_INET,
                backlog=BACKLOG,
            )
        except OSError as error:
            await self.stop()
            raise CommandError(f"cannot listen on {self.address}:{self.port}: {error.strerror}") from error
        self.port = listening.getsockname()[1]
        server = self._runner.server
        assert server is not None  # since `setup`
        self._listener = LimitedListener(listening, server, self.tls, self.limits)
        self._accepting = asyncio.create_task(self._listener.accept_connections(), name="accept")
        _LOG.info("serving on %s", self.url)

    @property
    def url(self) -> str:
        """The URL of the server."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"

    async def stop(self) -> None:
        """Stop the server: close its port and all connections."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        if self._listener is not None:
            self._listener.close_socket_and_idle_connections()
        if self._runner is not None:
            await self._runner.cleanup()


async def _add_security_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SECURITY_HEADERS)


_CHECK_SECONDS: Final = 30.0
"""Seconds between two checks whether the files changed."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A pair of PEM files: a certificate and its private key."""

    certificate: Path
    key: Path

    def modification_times(self) -> tuple[int, ...]:
        """Return the modification times of the certificate and the key file; () if one file is missing.

        A change of these times shows that the certificate was rotated.
        """
        try:
            return tuple(path.stat().st_mtime_ns for path in (self.certificate, self.key))
        except OSError:
            return ()


def tls_context_from_files(files: CertificateFiles) -> ssl.SSLContext:
    """Return a TLS context with the certificate and private key of two PEM files.

    Raises:
      CommandError: A file is missing, or certificate and key do not match.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, files)
    return context


async def reload_certificate_on_change(
    context: ssl.SSLContext, files: CertificateFiles, clock: Clock
) -> None:
    """Reload a certificate and its key into a TLS context after each file change, until the task is canceled.

    If the new pair cannot be used, an error is logged and the previous certificate stays in use.
    """
    seen = files.modification_times()
    while True:
        await clock.sleep(_CHECK_SECONDS)
        stamp = await asyncio.to_thread(files.modification_times)
        if not stamp or stamp == seen:
            continue
        seen = stamp
        try:
            _load(context, files)
        except CommandError as error:
            _LOG.error("%s; the old certificate stays", error)
        else:
            _LOG.info("the certificate was rotated")


def _load(context: ssl.SSLContext, files: CertificateFiles) -> None:
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        raise CommandError(
            f"{files.certificate} and {files.key} cannot be used for TLS: {error}; expected PEM"
        ) from error

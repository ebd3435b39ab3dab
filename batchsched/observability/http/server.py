"""The HTTPS server: one port, with access control in front of every route."""

import logging
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from aiohttp import web

from batchsched.errors import UnusableInput
from batchsched.observability.http.access import Handler

_LOG: Final = logging.getLogger(__name__)


class RequestGuard(Protocol):
    """Access control for requests."""

    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request to the handler, or refuse it."""


@dataclass(slots=True)
class Server:
    """Serves routes between `start` and `stop`.

    Args:
      access: The access control.
      routes: The routes to serve.
      address: The address to listen on.
      port: The port to listen on; 0 selects a free port.
      tls: The TLS context; None serves plain HTTP.
    """

    access: RequestGuard
    routes: Iterable[web.RouteDef]
    address: str
    port: int
    tls: ssl.SSLContext | None
    _runner: web.AppRunner | None = field(init=False, default=None)

    async def start(self) -> None:
        """Listen on the address and port.

        Raises:
          UnusableInput: The port is in use, or the address does not exist.
        """

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self.access.middleware(request, handler)

        app = web.Application(middlewares=[guard])
        app.add_routes(self.routes)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.address, self.port, ssl_context=self.tls)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            raise UnusableInput(f"cannot listen on {self.address}:{self.port}: {error.strerror}") from error
        self.port = self._runner.addresses[0][1]
        _LOG.info("serving on %s", self.url)

    @property
    def url(self) -> str:
        """The URL of the server."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._runner is not None:
            await self._runner.cleanup()

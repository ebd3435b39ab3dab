"""The server: one port, and nobody who is not let in."""

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
    """Says who may see what."""

    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request pass, or refuse it."""


@dataclass(slots=True)
class Server:
    """Serves some routes; use it as `start` and `stop`.

    Args:
      access: says who may see what.
      routes: what there is.
      address: to listen on.
      port: to listen on, 0 for any.
      tls: the certificate; None: what is asked and answered can be read on the way.
    """

    access: RequestGuard
    routes: Iterable[web.RouteDef]
    address: str
    port: int
    tls: ssl.SSLContext | None
    _runner: web.AppRunner | None = field(init=False, default=None)

    async def start(self) -> None:
        """Listen.

        Raises:
          UnusableInput: the port is somebody else's.
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
        """Where it is found."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"

    async def stop(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()

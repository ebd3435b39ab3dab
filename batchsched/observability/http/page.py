"""The status page: one HTML file without scripts and external resources that reloads every 15 seconds."""

import asyncio
import datetime as dt
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from aiohttp import web

from batchsched import __version__
from batchsched.observability.http import view
from batchsched.observability.observer import Observer
from batchsched.scheduler.app import SchedulerApp

if TYPE_CHECKING:
    from jinja2 import Template

PATH: Final = "/"
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class StatusPage:
    """Renders the status page.

    Args:
      service: The scheduler.
      observation: The latest refusals and sessions of the scheduler.
    """

    def __init__(self, service: SchedulerApp, observation: Observer) -> None:
        self._service = service
        self._observation = observation

    async def answer(self, request: web.Request) -> web.Response:
        """Handle a request for the page."""
        return web.Response(text=await self.text(), content_type="text/html", headers=_HEADERS)

    async def text(self) -> str:
        """Return the HTML of the page for the present state of the cluster."""
        service, observation = self._service, self._observation
        snapshot = service.cache.snapshot()
        pending = view.waiting(service.planners, observation.refusals)
        # Usage and pod counts change with every event, so the thread gets copies.
        usage = service.cache.queue_usage.by_resource()
        counts = view.pod_counts(service.cache.gangs)
        view_of_cluster = await asyncio.to_thread(view.cluster, snapshot, pending, usage, counts)
        now = dt.datetime.fromtimestamp(service.clock.now(), dt.UTC)
        return _template().render(
            version=__version__,
            leads=service.leads,
            profiles=", ".join(profile.scheduler_name for profile in service.profiles),
            now=now.isoformat(sep=" ", timespec="seconds"),
            cluster=view_of_cluster,
            sessions=observation.sessions.summaries(),
        )


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined  # imported on first use: the import takes 60 ms

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8"))

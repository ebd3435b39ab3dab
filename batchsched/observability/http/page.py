"""The page: one HTML file without scripts that fetches nothing; it comes anew every fifteen seconds."""

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
    """Shows a service.

    Args:
      service: schedules.
      observation: heard of everything that it does.
    """

    def __init__(self, service: SchedulerApp, observation: Observer) -> None:
        self._service = service
        self._observation = observation

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a request for the page."""
        return web.Response(text=await self.text(), content_type="text/html", headers=_HEADERS)

    async def text(self) -> str:
        """Return the page as it is now."""
        service, observation = self._service, self._observation
        snapshot = service.cache.snapshot()
        waits = view.waiting(service.planners, observation.refusals)
        # The index and the tally change with every event, so a copy goes to the thread.
        usage = service.cache.queue_usage.by_resource()
        counts = view.pod_counts(service.cache.gangs)
        seen = await asyncio.to_thread(view.cluster, snapshot, waits, usage, counts)
        now = dt.datetime.fromtimestamp(service.clock.now(), dt.UTC)
        return _template().render(
            version=__version__,
            leads=service.leads,
            profiles=", ".join(one.scheduler_name for one in service.profiles),
            now=now.isoformat(sep=" ", timespec="seconds"),
            cluster=seen,
            sessions=observation.sessions.summaries(),
        )


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined  # 60 ms that nobody waits for who binds pods

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8"))

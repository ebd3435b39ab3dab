"""Results of the lab, served read-only: the report, the runs, and their files."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from aiohttp import web

from batchsched.errors import InvalidInput

T = TypeVar("T")
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
# The report draws with scripts of its own, which its own policy confines; nobody may put it into a frame.
_REPORT: Final = {**_HEADERS, "Content-Security-Policy": "frame-ancestors 'none'"}
_RUNS: Final = {
    **_HEADERS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}


class Exhibit(Protocol):
    """What there is to be seen, as it is now. Each may take seconds, and raises InvalidInput where there is nothing."""

    def report(self) -> str:
        """Return the report, HTML."""

    def runs(self) -> str:
        """Return the page of the runs, HTML."""

    def file(self, name: str) -> Path | None:
        """Return the file of a finished run, None: there is none of that name."""


class Results:
    """Answers who asks for results.

    Args:
      exhibit: what there is; it is asked one thing at a time, in a thread.
    """

    def __init__(self, exhibit: Exhibit) -> None:
        self._exhibit = exhibit
        self._turn = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """Return all of it."""
        return [
            web.get("/", self._report),
            web.get("/runs", self._runs),
            web.get("/runs/{name}", self._file),
        ]

    async def _report(self, request: web.Request) -> web.StreamResponse:
        text = await self._asked(self._exhibit.report)
        return web.Response(text=text, content_type="text/html", headers=_REPORT)

    async def _runs(self, request: web.Request) -> web.StreamResponse:
        text = await self._asked(self._exhibit.runs)
        return web.Response(text=text, content_type="text/html", headers=_RUNS)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        path = await self._asked(lambda: self._exhibit.file(name))
        if path is None:
            raise web.HTTPNotFound(text="there is no finished run of that name\n")
        disposition = f'attachment; filename="{path.name}"'
        return web.FileResponse(path, headers={**_HEADERS, "Content-Disposition": disposition})

    async def _asked(self, question: Callable[[], T]) -> T:
        async with self._turn:
            try:
                return await asyncio.to_thread(question)
            except (InvalidInput, OSError) as error:
                raise web.HTTPServiceUnavailable(text=f"{error}\n", headers=_HEADERS) from error

"""Read-only HTTP handlers of `lab serve`: the report, the list of runs, and the result files."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from aiohttp import web

from batchsched.errors import InvalidInput
from batchsched.observability.http.html_page import content_security_policy, page_headers

T = TypeVar("T")
# The `meta` element of each page allows only the scripts in this page; both policies apply.
_HEADERS: Final = page_headers(
    f"{content_security_policy(images='data: blob:', in_file=False)}; script-src 'unsafe-inline'"
)


class LabResultSource(Protocol):
    """The interface of a source of lab results: the report, the list of runs, and the result files.

    A method may take seconds, and raises InvalidInput if there are no results.
    """

    def report_html(self) -> str:
        """Return the report about the simulated runs as HTML."""

    def runs_html(self) -> str:
        """Return the list of the simulated runs as HTML."""

    def result_file_path(self, name: str) -> Path | None:
        """Return the path of the result file with this name, or None if no finished run has such a file."""


class LabResultHandlers:
    """HTTP handlers that serve lab results: the report, the list of runs, and the result files.

    Args:
      source: The results. They are read in a thread, one request at a time.
    """

    def __init__(self, source: LabResultSource) -> None:
        self._source = source
        self._turn = asyncio.Lock()

    def http_routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of the report, the list of runs and the result files."""
        return [
            web.get("/", self._report),
            web.get("/runs", self._runs),
            web.get("/runs/{name}", self._file),
        ]

    async def _report(self, request: web.Request) -> web.StreamResponse:
        return await self._page(self._source.report_html)

    async def _runs(self, request: web.Request) -> web.StreamResponse:
        return await self._page(self._source.runs_html)

    async def _page(self, render: Callable[[], str]) -> web.StreamResponse:
        text = await self._read(render)
        response = web.Response(text=text, content_type="text/html", headers=_HEADERS)
        response.enable_compression()  # plotly.js is 4.8 MB, compressed 1.5 MB
        return response

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        path = await self._read(lambda: self._source.result_file_path(name))
        if path is None:
            raise web.HTTPNotFound(text="there is no finished run with this name\n")
        disposition = f'attachment; filename="{path.name}"'
        return web.FileResponse(path, headers={**_HEADERS, "Content-Disposition": disposition})

    async def _read(self, question: Callable[[], T]) -> T:
        async with self._turn:
            try:
                return await asyncio.to_thread(question)
            except (InvalidInput, OSError) as error:
                raise web.HTTPServiceUnavailable(text=f"{error}\n", headers=_HEADERS) from error

"""What the lab has made is read over HTTP, and nothing else in the file system is."""

from contextlib import asynccontextmanager

import aiohttp
import pytest
from yarl import URL

from batchsched.errors import InvalidInput
from batchsched.observability.http.access import StaticTokenAccess
from batchsched.observability.http.results import LabResultHandlers
from batchsched.observability.http.server import HttpServer


class Shown:
    """A report, a page and one file."""

    def __init__(self, folder):
        self.file_there = folder / "a.parquet"
        self.file_there.write_bytes(b"PAR1")
        self.problem = None
        self.asked = []

    def report_html(self):
        if self.problem is not None:
            raise self.problem
        return "<p>the report"

    def runs_html(self):
        return "<p>the runs"

    def result_file_path(self, name):
        self.asked.append(name)
        return self.file_there if name == "a.parquet" else None


@pytest.fixture
def shown(tmp_path):
    return Shown(tmp_path)


@asynccontextmanager
async def served(shown):
    server = HttpServer(StaticTokenAccess(None), LabResultHandlers(shown).http_routes(), "127.0.0.1", 0, None)
    await server.start()
    async with aiohttp.ClientSession(server.url) as client:
        yield client
    await server.stop()


@pytest.mark.parametrize("path, text", [("/", "<p>the report"), ("/runs", "<p>the runs")])
async def test_pages_are_html_that_is_neither_cached_nor_framed(shown, path, text):
    async with served(shown) as client, client.get(path) as answer:
        assert (answer.status, await answer.text()) == (200, text)
        assert answer.content_type == "text/html"
        assert answer.headers["Cache-Control"] == "no-store"
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert {
            "default-src 'none'",
            "connect-src 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        } <= {*policy}


async def test_a_page_is_compressed_if_the_browser_accepts_it(shown):
    async with served(shown) as client, client.get("/", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert await answer.text() == "<p>the report"


async def test_a_file_is_saved_under_its_name(shown):
    async with served(shown) as client, client.get("/runs/a.parquet") as answer:
        assert (answer.status, await answer.read()) == (200, b"PAR1")
        assert answer.headers["Content-Disposition"] == 'attachment; filename="a.parquet"'
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    ["/runs/b.parquet", "/runs/../plan.json", "/runs/%2e%2e/plan.json", "/runs/..%2fplan.json", "/plan.json"],
)
async def test_a_name_that_is_not_a_run_is_not_found(shown, path):
    async with served(shown) as client, client.get(URL(path, encoded=True)) as answer:
        assert answer.status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_is_written(shown, method):
    async with served(shown) as client, client.request(method, "/runs/a.parquet") as answer:
        assert answer.status == 405


@pytest.mark.parametrize(
    "problem", [InvalidInput("holds no result"), FileNotFoundError("gone")], ids=["empty", "gone"]
)
async def test_a_folder_without_results_answers_unavailable_with_retry_after(shown, problem):
    async with served(shown) as client:
        shown.problem = problem
        async with client.get("/") as answer:
            assert answer.status == 503
            assert str(problem) in await answer.text()
        shown.problem = None
        async with client.get("/") as answer:
            assert answer.status == 200

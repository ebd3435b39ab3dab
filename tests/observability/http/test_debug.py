"""Paths below /debug: values that are no small number are refused, and no header breaks the access control."""

from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from batchsched.observability.activity_recorder import SessionHistory
from batchsched.observability.http.access import DelegatedAccess, StaticTokenAccess
from batchsched.observability.http.debug import DebugHandlers
from batchsched.observability.http.server import HttpServer
from tests.kube.virtual import Hurried

SERVICE: Any = SimpleNamespace()


class NoReviews:
    """A connection to an API server that must not be asked."""

    async def request(self, *_: object, **__: object) -> bytes:
        raise AssertionError("a review was requested")


async def asked(access: Any, method: str, path: str, **more: Any) -> tuple[int, str]:
    server = HttpServer(access, DebugHandlers(SERVICE, SessionHistory(1)).http_routes(), "127.0.0.1", 0, None)
    await server.start()
    try:
        async with (
            aiohttp.ClientSession(server.url) as client,
            client.request(method, path, **more) as answer,
        ):
            return answer.status, await answer.text()
    finally:
        await server.stop()


async def test_session_of_5000_digits_does_not_exist():
    status, text = await asked(StaticTokenAccess(None), "GET", f"/debug/sessions/{'9' * 5000}")
    assert status == 404
    assert len(text) < 100


VALUES = {
    "5000 digits": b"9" * 5000,
    "invalid UTF-8": b"\xff\xfe",
    "nothing": b"",
    "another script": "\u0663".encode(),
    "eleven": b"11",
    "negative": b"-1",
}
TOKENS = {"ISO 8859": "t\u00f6ken", "surrogate": "\ud800", "UTF-8": "t\u00f6ken".encode().decode("latin-1")}


@pytest.mark.parametrize("body", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("kind", ["text/plain", "text/plain; charset=unknown"])
async def test_verbosity_that_is_no_number_up_to_ten_is_refused(body, kind):
    access = StaticTokenAccess(None)
    status, text = await asked(access, "PUT", "/debug/flags/v", data=body, headers={"Content-Type": kind})
    assert status == 400
    assert text.startswith("expected a number from 0 to 10")


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
async def test_token_that_is_not_ascii_is_unauthorized_without_a_review(token):
    connection: Any = NoReviews()
    access = DelegatedAccess(connection, Hurried(), lambda: ())
    assert await access.authenticate(f"Bearer {token}") is None
    if token != "\ud800":
        status, _ = await asked(access, "GET", "/debug", headers={"Authorization": f"Bearer {token}"})
        assert status == 401

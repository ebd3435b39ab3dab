"""Whoever shows the one token comes in, and nobody else learns even what there is."""

import base64
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from batchsched.errors import UnusableInput
from batchsched.observability.http.access import Bearer, read_token
from batchsched.observability.http.server import Server, self_signed_context


async def say(request):
    return web.Response(text="here you are")


@asynccontextmanager
async def server(token, tls=None):
    served = Server(Bearer(token), [web.get("/", say)], "127.0.0.1", 0, tls)
    await served.start()
    async with aiohttp.ClientSession(served.url) as client:
        yield client
    await served.stop()


async def status(client, authorization=None, path="/"):
    headers = {"Authorization": authorization} if authorization else {}
    async with client.get(path, headers=headers, ssl=False) as answer:
        return answer.status


def basic(password):
    return "Basic " + base64.b64encode(f"whoever:{password}".encode()).decode()


async def test_the_token_is_shown_as_a_bearer_or_as_the_password_of_a_browser():
    async with server("s3cret") as client:
        assert await status(client, "Bearer s3cret") == 200
        assert await status(client, basic("s3cret")) == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "Bearer",
        "Bearer s3cre",
        "Bearer s3crets",
        "Digest s3cret",
        "s3cret",
        basic(""),
        "Basic no-base-64",
    ],
    ids=["none", "empty", "shorter", "longer", "scheme", "bare", "no-password", "no-base64"],
)
async def test_whoever_shows_another_or_none_is_asked_for_it(authorization):
    async with server("s3cret") as client:
        headers = {"Authorization": authorization} if authorization else {}
        async with client.get("/", headers=headers) as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"].startswith("Basic ")
            assert "here you are" not in await answer.text()


async def test_without_the_token_nobody_learns_what_there_is():
    async with server("s3cret") as client:
        assert await status(client, path="/absent") == 401
        assert await status(client, "Bearer s3cret", "/absent") == 404
        async with client.post("/") as answer:
            assert answer.status == 401


async def test_where_there_is_no_token_everybody_comes_in():
    async with server(None) as client:
        assert await status(client) == 200


async def test_the_token_goes_over_tls_where_there_is_a_certificate():
    async with server("s3cret", self_signed_context("127.0.0.1", 1_767_225_600.0)) as client:
        assert client._base_url.scheme == "https"
        assert await status(client, "Bearer s3cret") == 200


def test_a_token_is_read_without_the_line_end_of_an_editor(tmp_path):
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    assert read_token(file) == "s3cret"


@pytest.mark.parametrize(
    "content, complaint",
    [(b" \n", "holds no token"), (None, "cannot be read"), (b"\xff\xfe", "cannot be read")],
    ids=["empty", "absent", "binary"],
)
def test_a_file_without_a_token_is_no_token(tmp_path, content, complaint):
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UnusableInput, match=complaint):
        read_token(file)

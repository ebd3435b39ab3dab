"""Connections are used again while they are good, and what a server dropped is sent again where that is safe."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from batchsched.kube.channels import Channels, Dropped, Request, kept_alive
from batchsched.kube.credentials import Identity
from tests.kube.hurried import Hurried

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request by the next of some answers; None ends the connection instead."""

    def __init__(self, answers):
        self.answers = list(answers)
        self.heard = []
        self.connections = 0
        self.url = ""

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0
                )
                self.heard.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0) if self.answers else OK
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def server(*answers):
    made = Server(answers)
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/base"
    try:
        yield made
    finally:
        listening.close()


@asynccontextmanager
async def opened(clock=None):
    channels = Channels(clock or Hurried(), kept_alive)
    try:
        yield channels
    finally:
        channels.close()
        await asyncio.sleep(0.01)


def get(path="/pods", **query):
    return Request("GET", path, query or None, None, "application/json")


POST = Request("POST", "/pods", None, b"{}", "application/json")


async def test_a_request_says_what_the_api_server_has_to_know():
    async with server() as there, opened() as channels:
        answer = await channels.ask(Identity(there.url, "Bearer x", None), get("/pods", limit="5", of="a=b"))
        await channels.ask(Identity(there.url, "", None), POST)
    assert (answer.status, answer.body) == (200, b"ok")
    first, second = there.heard
    assert first.startswith(b"GET /base/pods?limit=5&of=a%3Db HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer x\r\n" in first
    assert b"Authorization" not in second
    assert second.endswith(b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")


async def test_a_name_cannot_add_a_header():
    async with server() as there, opened() as channels:
        await channels.ask(Identity(there.url, "", None), get("/pods/a b\r\nX-Evil: 1"))
    assert there.heard[0].startswith(b"GET /base/pods/a%20b%0D%0AX-Evil%3A%201 HTTP/1.1\r\n")


async def test_one_connection_serves_one_request_after_the_other_and_many_serve_many_at_once():
    async with server() as there, opened() as channels:
        identity = Identity(there.url, "", None)
        for _ in range(5):
            await channels.ask(identity, get())
        assert there.connections == 1
        await asyncio.gather(*(channels.ask(identity, POST) for _ in range(8)))
        assert there.connections == 8
        await asyncio.gather(*(channels.ask(identity, POST) for _ in range(8)))
        assert there.connections == 8


async def test_a_connection_that_the_server_ends_is_not_used_again():
    closing = OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    async with server(closing, OK) as there, opened() as channels:
        identity = Identity(there.url, "", None)
        await channels.ask(identity, POST)
        await channels.ask(identity, POST)
        assert there.connections == 2


async def test_what_is_idle_for_long_is_not_used_again(monkeypatch):
    monkeypatch.setattr("batchsched.kube.channels._IDLE", 0.0)
    async with server() as there, opened() as channels:
        identity = Identity(there.url, "", None)
        await channels.ask(identity, get())
        await channels.ask(identity, get())
        assert there.connections == 2


async def test_a_read_is_sent_again_when_an_idle_connection_was_dropped_and_a_write_is_not():
    async with server(OK, None, OK, None) as there, opened() as channels:
        identity = Identity(there.url, "", None)
        await channels.ask(identity, get())
        assert (await channels.ask(identity, get())).body == b"ok"
        with pytest.raises(Dropped):
            await channels.ask(identity, POST)
    assert [one[:4] for one in there.heard] == [b"GET ", b"GET ", b"GET ", b"POST"]


async def test_a_fresh_connection_that_is_dropped_is_told():
    async with server(None) as there, opened() as channels:
        with pytest.raises(Dropped):
            await channels.ask(Identity(there.url, "", None), get())
    assert len(there.heard) == 1


async def test_a_connection_whose_answer_nobody_waits_for_any_more_is_not_used_again():
    async with server(OK[:-1]) as there, opened() as channels:
        asked = asyncio.create_task(channels.ask(Identity(there.url, "", None), POST))
        await asyncio.sleep(0.05)
        asked.cancel()  # as a deadline does
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (await channels.ask(Identity(there.url, "", None), get())).body == b"ok"
        assert there.connections >= 2


async def test_connections_are_made_anew_for_another_server_and_kept_for_another_token():
    async with server() as there, server() as other, opened() as channels:
        await channels.ask(Identity(there.url, "Bearer a", None), get())
        await channels.ask(Identity(there.url, "Bearer b", None), get())
        assert there.connections == 1
        await channels.ask(Identity(other.url, "Bearer b", None), get())
        await channels.ask(Identity(there.url, "Bearer b", None), get())
        assert (there.connections, other.connections) == (2, 1)


async def test_a_server_that_is_not_there_is_an_error_of_the_system():
    async with opened() as channels:
        with pytest.raises(OSError, match=r"refused|Connect"):
            await channels.ask(Identity("http://127.0.0.1:9", "", None), get())


def test_it_works_on_the_loop_that_the_scheduler_runs_on():
    uvloop = pytest.importorskip("uvloop")

    async def both():
        async with server() as there, opened() as channels:
            await channels.ask(Identity(there.url, "", None), POST)
            return (await channels.ask(Identity(there.url, "", None), get())).body, there.connections

    assert uvloop.run(both()) == (b"ok", 1)

"""Connections: limits and deadlines release what idle clients hold, and logs contain no token."""

import asyncio
import json
import logging
import resource
import subprocess
import sys
import textwrap
import time
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from batchsched.observability.http.access import StaticTokenAccess
from batchsched.observability.http.connections import ConnectionLimits, raise_descriptor_limit
from batchsched.observability.http.self_signed_certificate import self_signed_tls_context
from batchsched.observability.http.server import HttpServer

FEW = ConnectionLimits(
    total=8, per_peer=4, handshake_seconds=0.5, request_seconds=0.5, connection_seconds=2.0
)


async def health(request):
    return web.Response(text="ok")


@asynccontextmanager
async def served(limits=FEW, *, tls=True, routes=()):
    context = self_signed_tls_context("127.0.0.1", time.time()) if tls else None
    server = HttpServer(
        StaticTokenAccess(None), [web.get("/livez", health), *routes], "127.0.0.1", 0, context, limits
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def is_healthy(server):
    async with aiohttp.ClientSession(server.url) as client, client.get("/livez", ssl=False) as answer:
        return answer.status == 200


async def closed_after(reader, seconds):
    """Return after how many seconds the server closed the connection."""
    start = time.monotonic()
    try:
        while await asyncio.wait_for(reader.read(1000), seconds):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - start


async def raw(server, data):
    """Send bytes without TLS, and return what the server answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer.decode("utf-8", "replace")


async def test_connection_without_a_handshake_is_closed_after_the_deadline():
    async with served() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert 0.3 < await closed_after(reader, 5) < 3
        writer.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "], ids=["no byte", "a part of the header"]
)
async def test_connection_without_a_complete_header_is_closed_after_the_deadline(sent):
    async with served(tls=False) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        assert 0.3 < await closed_after(reader, 5) < 3
        writer.close()


async def test_connection_that_sends_its_body_byte_by_byte_is_closed_after_the_deadline():
    async def read_body(request):
        return web.Response(body=await request.read())

    async with served(tls=False, routes=[web.put("/slow", read_body)]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"PUT /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        assert 1.5 < await closed_after(reader, 10) < 6
        writer.close()


async def test_oldest_idle_connections_of_a_peer_make_room_for_a_new_one(caplog):
    async with served(ConnectionLimits(total=8, per_peer=4)) as server:
        idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
        assert await is_healthy(server)
        ended = await asyncio.gather(*(closed_after(reader, 2) for reader, _ in idle[:16]))
        assert max(ended) < 1
        for _, writer in idle:
            writer.close()
    assert caplog.text.count("reach a limit") == 1


async def test_connection_is_refused_while_all_others_have_requests_in_progress():
    release = asyncio.Event()

    async def wait(request):
        await release.wait()
        return web.Response(text="done")

    limits = ConnectionLimits(total=2, per_peer=2)
    async with (
        served(limits, tls=False, routes=[web.get("/wait", wait)]) as server,
        aiohttp.ClientSession(server.url) as client,
    ):
        waiting = [asyncio.create_task(client.get("/wait")) for _ in range(2)]
        await asyncio.sleep(0.3)
        with pytest.raises(aiohttp.ClientError):
            await client.get("/livez")
        release.set()
        assert [(await one).status for one in waiting] == [200, 200]


async def test_malformed_request_is_answered_without_a_trace_of_its_token_in_the_log(caplog):
    caplog.set_level(logging.INFO)
    async with served(tls=False) as server:
        for data in (
            b"GET /livez HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret" + b"a" * 9000 + b"\r\n\r\n",
            b"GET /" + b"s3cret" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            b"s3cret\x00\r\n\r\n",
            b"GET /livez HTTP/1.1\r\nHost: x\r\nAuthorization: \x00s3cret\r\n\r\n",
        ):
            answer = await raw(server, data)
            assert answer.startswith(("HTTP/1.0 400 ", "HTTP/1.1 400 ")), answer
            assert "s3cret" not in answer
            assert "nosniff" in answer
            assert "aiohttp" not in answer
    assert "s3cret" not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("path, status", [("/livez", 200), ("/absent", 404), ("/broken", 500)])
async def test_every_answer_forbids_sniffing_and_names_no_version(path, status):
    async def fail(request):
        raise RuntimeError("a defect")

    async with (
        served(tls=False, routes=[web.get("/broken", fail)]) as server,
        aiohttp.ClientSession(server.url) as client,
        client.get(path) as answer,
    ):
        assert answer.status == status
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Server"] == "batchsched"


def test_limit_of_connections_is_at_most_a_quarter_of_the_file_descriptors(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert ConnectionLimits().effective_max_connections == 16


UNDER_ATTACK = """
    import asyncio, json, os, resource, sys, time
    {loop}
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    from aiohttp import web
    from batchsched.observability.http.access import StaticTokenAccess
    from batchsched.observability.http.self_signed_certificate import self_signed_tls_context
    from batchsched.observability.http.server import HttpServer

    async def health(request):
        return web.Response(text="ok")

    async def main():
        tls = self_signed_tls_context("127.0.0.1", time.time())
        server = HttpServer(StaticTokenAccess(None), [web.get("/livez", health)], "127.0.0.1", 0, tls)
        await server.start()
        print(server.port, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(len(os.listdir("/proc/self/fd")), flush=True)
        await server.stop()

    run(main())
"""
LOOPS = {"asyncio": "from asyncio import run", "uvloop": "from uvloop import run"}


@pytest.mark.parametrize("loop", LOOPS)
async def test_health_is_answered_beside_975_half_open_connections_and_descriptors_are_released(loop):
    program = textwrap.dedent(UNDER_ATTACK).format(loop=LOOPS[loop])
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        commands, answers = process.stdin, process.stdout
        assert commands is not None
        assert answers is not None

        def descriptors():
            commands.write("\n")
            commands.flush()
            return int(answers.readline())

        port = int(answers.readline())
        before = descriptors()
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(975)]
        async with aiohttp.ClientSession() as client:
            for _ in range(5):
                async with client.get(
                    f"https://127.0.0.1:{port}/livez", ssl=False, timeout=aiohttp.ClientTimeout(5)
                ) as answer:
                    assert answer.status == 200
        assert descriptors() - before <= ConnectionLimits().per_peer + 8
        limit = time.monotonic() + ConnectionLimits().handshake_seconds + 5
        while descriptors() - before > 2 and time.monotonic() < limit:
            await asyncio.sleep(0.2)
        assert descriptors() - before <= 2
        for _, writer in opened:
            writer.close()
        commands.close()
        assert process.wait(20) == 0


def test_process_raises_its_soft_limit_of_descriptors_to_the_hard_limit():
    program = (
        "import json, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))\n"
        "from batchsched.observability.http.connections import raise_descriptor_limit\n"
        "print(json.dumps([raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE)]))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert json.loads(found.stdout) == [1024, 1024, 1024]
    assert raise_descriptor_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]

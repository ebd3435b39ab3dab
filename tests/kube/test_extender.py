"""Faults of the network to an extender, reuse of connections, and the deadline of a call."""

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from batchsched.kube import extender as adapter
from batchsched.kube.extender import HttpExtenderClient
from batchsched.ports.external import ExtenderEndpoint, ExtenderReply, ExtenderTlsSettings
from tests.extender_server import extender


@contextlib.contextmanager
def raw(serve: Callable[[socket.socket], None], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server that speaks as the test likes; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)

        def run() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with (
                    connection
                    if context is None
                    else context.wrap_socket(connection, server_side=True) as one
                ):
                    one.settimeout(5)
                    asked = b""
                    while not asked.endswith(b"{}"):  # what is not read would cut the answer off
                        asked += one.recv(65536)
                    serve(one)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(5)


def ask(port: int, seconds: float = 5.0) -> ExtenderReply:
    return HttpExtenderClient().send_request(
        ExtenderEndpoint(f"http://127.0.0.1:{port}/x/", seconds), "filter", b"{}"
    )


def test_response_is_returned_unchanged_and_connections_are_reused():
    ports = set()

    def noting(question):
        return question

    with extender(filter=noting) as server:
        port = HttpExtenderClient()
        asked = [json.dumps({"at": at}) for at in range(5)]
        replies = [
            port.send_request(ExtenderEndpoint(server.url, 5.0), "filter", one.encode()) for one in asked
        ]
        (pool,) = port._pools.values()
        ports = {pool.pools[key].num_connections for key in pool.pools.keys()}  # noqa: SIM118 - no mapping
    assert [one.body for one in replies] == asked
    assert ports == {1}


def test_response_that_trickles_in_exceeds_the_timeout():
    def dripping(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(100):
            connection.sendall(b" ")
            time.sleep(0.02)

    began = time.monotonic()
    with raw(dripping) as port:
        assert ask(port, 0.2).fault == "gave no answer within 0.2 s (httpTimeout)"
        assert time.monotonic() - began < 1.5


@pytest.mark.parametrize(
    "sent",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", b"what?\r\n", b""],
    ids=["short", "no-http", "nothing"],
)
def test_answer_that_is_cut_off_is_a_fault(sent):
    with raw(lambda connection: connection.sendall(sent)) as port:
        reply = ask(port)
    assert reply.body == ""
    assert reply.fault.startswith("cannot be reached: ")


def test_redirection_is_not_followed():
    answer = b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with raw(lambda connection: connection.sendall(answer)) as port:
        assert ask(port).fault == "answered filter with status 307"


def test_answer_above_the_size_limit_is_a_fault(monkeypatch):
    monkeypatch.setattr(adapter, "MAX_RESPONSE_BYTES", 1000)
    with extender(filter=b"x" * 5000) as server:
        reply = HttpExtenderClient().send_request(ExtenderEndpoint(server.url), "filter", b"{}")
    assert reply.fault == "answered filter with more than 1000 bytes"


@pytest.mark.parametrize("url", ["gopher://x", "http://", "x", "http://no such host/"])
def test_unreachable_prefix_is_a_fault(url):
    assert (
        HttpExtenderClient()
        .send_request(ExtenderEndpoint(url, 1.0), "filter", b"{}")
        .fault.startswith("cannot be reached: ")
    )


def test_put_does_not_block_the_event_loop():
    async def both():
        def slow(question):
            time.sleep(0.3)
            return question

        with extender(filter=slow) as server:
            began = time.monotonic()
            port = HttpExtenderClient()
            replies = await asyncio.gather(
                *(port.send_bind_request(ExtenderEndpoint(server.url), "filter", b"[]") for _ in range(3))
            )
            return replies, time.monotonic() - began

    replies, seconds = asyncio.run(both())
    assert replies == [ExtenderReply("[]")] * 3
    assert seconds < 0.8


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=extender.test",
            ),
            *("-addext", "subjectAltName=DNS:extender.test"),
            *("-keyout", str(folder / "key"), "-out", str(folder / "cert")),
        ],
        check=True,
        capture_output=True,
    )
    return folder


def data(path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize(
    "how, reached",
    [
        (lambda _: (True, ExtenderTlsSettings()), True),
        (lambda _: (False, ExtenderTlsSettings()), False),
        (lambda _: (False, ExtenderTlsSettings(insecure=True)), True),
        (lambda at: (True, ExtenderTlsSettings(ca_file=str(at / "cert"), server_name="extender.test")), True),
        (
            lambda at: (True, ExtenderTlsSettings(ca_data=data(at / "cert"), server_name="extender.test")),
            True,
        ),
        (lambda at: (True, ExtenderTlsSettings(ca_file=str(at / "cert"), server_name="other.test")), False),
        (lambda at: (True, ExtenderTlsSettings(ca_file=str(at / "none"))), False),
        (
            lambda at: (True, ExtenderTlsSettings(cert_data=data(at / "cert"), key_data=data(at / "key"))),
            True,
        ),
        (lambda at: (True, ExtenderTlsSettings(cert_data=data(at / "cert"), key_data="bm9uZQ==")), False),
    ],
    ids=["unchecked", "checked", "insecure", "ca-file", "ca-data", "other-name", "no-file", "own", "bad-key"],
)
def test_tls_settings_of_the_extender_are_used(certificate, how, reached):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert", certificate / "key")
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    https, tls = how(certificate)
    with raw(lambda connection: connection.sendall(answer), context) as port:
        reply = HttpExtenderClient().send_request(
            ExtenderEndpoint(f"https://127.0.0.1:{port}", 5.0, https, tls), "filter", b"{}"
        )
        if not reached:  # release the server, which still waits for a connection
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
    assert (reply.body == "{}") is reached, reply
    assert bool(reply.fault) is not reached

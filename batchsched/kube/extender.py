"""Calls of extenders over HTTP, each with one deadline."""

import asyncio
import base64
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Final

import urllib3
from typing_extensions import override
from urllib3.exceptions import HTTPError, InsecureRequestWarning, NewConnectionError
from urllib3.exceptions import TimeoutError as TooLate

from batchsched.ports.external import ExtenderEndpoint, ExtenderReply, Extenders, ExtenderTlsSettings

MAX_RESPONSE_BYTES: Final = 256 * 2**20
_CHUNK: Final = 2**16
_CONNECTIONS: Final = 8
_HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json"}


class HttpExtenderClient(Extenders):
    """A client that calls scheduler extenders over HTTP or HTTPS.

    All calls of one object share its open connections. A request is sent once: it is not retried, and
    redirects are not followed.
    """

    def __init__(self) -> None:
        self._pools: dict[tuple[bool, ExtenderTlsSettings], urllib3.PoolManager] = {}
        self._lock = Lock()

    @override
    def send_request(self, endpoint: ExtenderEndpoint, verb: str, question: bytes) -> ExtenderReply:
        if not endpoint.url.startswith(("http://", "https://")):
            return ExtenderReply(
                fault=f"cannot be reached: {endpoint.url!r} begins with neither http:// nor https://"
            )
        until = monotonic() + endpoint.timeout_seconds
        try:
            return self._post(endpoint, verb, question, until)
        except NewConnectionError as error:  # urllib3 counts a refused connection as a timeout
            return ExtenderReply(fault=f"cannot be reached: {_cause(error)}")
        except TooLate:
            return _too_late(endpoint)
        except (HTTPError, ssl.SSLError, ValueError, OSError) as error:
            return ExtenderReply(fault=f"cannot be reached: {_cause(error)}")

    @override
    async def send_bind_request(
        self, endpoint: ExtenderEndpoint, verb: str, question: bytes
    ) -> ExtenderReply:
        return await asyncio.to_thread(self.send_request, endpoint, verb, question)

    def _post(self, endpoint: ExtenderEndpoint, verb: str, question: bytes, until: float) -> ExtenderReply:
        response = self._pool(endpoint).request(
            "POST",
            f"{endpoint.url.rstrip('/')}/{verb}",
            body=question,
            headers=_HEADERS,
            timeout=urllib3.Timeout(total=endpoint.timeout_seconds),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        try:
            if response.status != HTTPStatus.OK:
                return ExtenderReply(fault=f"answered {verb} with status {response.status}")
            body = bytearray()
            # The timeout of urllib3 applies between bytes; a response that trickles in would never end.
            while chunk := response.read1(_CHUNK):
                body += chunk
                if monotonic() > until:
                    return _too_late(endpoint)
                if len(body) > MAX_RESPONSE_BYTES:
                    return ExtenderReply(fault=f"answered {verb} with more than {MAX_RESPONSE_BYTES} bytes")
            return ExtenderReply(body.decode("utf-8", "replace"))
        finally:
            # A connection with unread bytes cannot be reused.
            if response.closed:
                response.release_conn()
            else:
                response.close()

    def _pool(self, endpoint: ExtenderEndpoint) -> urllib3.PoolManager:
        key = (endpoint.https, endpoint.tls)
        with self._lock:
            if key not in self._pools:
                secure = endpoint.https or endpoint.url.startswith("https:")
                self._pools[key] = urllib3.PoolManager(
                    maxsize=_CONNECTIONS, **(_tls(endpoint) if secure else {})
                )
            return self._pools[key]


def _too_late(endpoint: ExtenderEndpoint) -> ExtenderReply:
    return ExtenderReply(fault=f"gave no answer within {endpoint.timeout_seconds:g} s (httpTimeout)")


def _cause(error: BaseException) -> str:
    """Return the innermost cause of an error. The outer ones describe sockets and pools only."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _tls(endpoint: ExtenderEndpoint) -> dict[str, Any]:
    """Return the TLS settings of a connection pool.

    Source: makeTransport of kube-scheduler's extender.go: `enableHTTPS` without authorities checks nothing.
    """
    tls = endpoint.tls
    context = ssl.create_default_context()
    if tls.ca_file or tls.ca_data:
        context = ssl.create_default_context(
            cafile=None if tls.ca_data else tls.ca_file,
            cadata=base64.b64decode(tls.ca_data).decode() if tls.ca_data else None,
        )
    if tls.insecure or (endpoint.https and not (tls.ca_file or tls.ca_data)):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        urllib3.disable_warnings(InsecureRequestWarning)  # the configuration requests it
    if (tls.cert_file or tls.cert_data) and (tls.key_file or tls.key_data):
        with _file(tls.cert_file, tls.cert_data) as certificate, _file(tls.key_file, tls.key_data) as key:
            context.load_cert_chain(certificate, key)
    named = (
        {"server_hostname": tls.server_name, "assert_hostname": tls.server_name} if tls.server_name else {}
    )
    return {"ssl_context": context, **named}


@contextmanager
def _file(name: str, data: str) -> Iterator[str]:
    """Provide a file, or data written to a temporary file: the TLS library reads files only."""
    if not data:
        yield name
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pem"
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(data))
        yield str(path)

"""Extenders over HTTP: one question, one answer, one deadline, whatever stands at the other end."""

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

from batchsched.ports.extender import Endpoint, Extenders, Reply, Tls

LARGEST_ANSWER: Final = 256 * 2**20
_CHUNK: Final = 2**16
_CONNECTIONS: Final = 8
_HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json"}


class HttpExtenders(Extenders):
    """Asks extenders over HTTP or HTTPS; connections are kept, and shared by all that one object asks.

    A question is sent once: nothing is tried again, and no redirection is followed.
    """

    def __init__(self) -> None:
        self._pools: dict[tuple[bool, Tls], urllib3.PoolManager] = {}
        self._lock = Lock()

    @override
    def ask(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        if not endpoint.url.startswith(("http://", "https://")):
            return Reply(
                fault=f"cannot be reached: {endpoint.url!r} begins with neither http:// nor https://"
            )
        until = monotonic() + endpoint.timeout_seconds
        try:
            return self._post(endpoint, verb, question, until)
        except NewConnectionError as error:  # nobody is there; it counts itself among the time-outs
            return Reply(fault=f"cannot be reached: {_cause(error)}")
        except TooLate:
            return _too_late(endpoint)
        except (HTTPError, ssl.SSLError, ValueError, OSError) as error:
            return Reply(fault=f"cannot be reached: {_cause(error)}")

    @override
    async def put(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        return await asyncio.to_thread(self.ask, endpoint, verb, question)

    def close(self) -> None:
        """Close the connections that are kept."""
        with self._lock:
            for pool in self._pools.values():
                pool.clear()
            self._pools.clear()

    def _post(self, endpoint: Endpoint, verb: str, question: bytes, until: float) -> Reply:
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
                return Reply(fault=f"answered {verb} with status {response.status}")
            body = bytearray()
            # Time-outs are between bytes: an answer that comes drop by drop would never end.
            while chunk := response.read1(_CHUNK):
                body += chunk
                if monotonic() > until:
                    return _too_late(endpoint)
                if len(body) > LARGEST_ANSWER:
                    return Reply(fault=f"answered {verb} with more than {LARGEST_ANSWER} bytes")
            return Reply(body.decode("utf-8", "replace"))
        finally:
            # What was not read to its end is no connection to be used again.
            if response.closed:
                response.release_conn()
            else:
                response.close()

    def _pool(self, endpoint: Endpoint) -> urllib3.PoolManager:
        key = (endpoint.https, endpoint.tls)
        with self._lock:
            if key not in self._pools:
                secure = endpoint.https or endpoint.url.startswith("https:")
                self._pools[key] = urllib3.PoolManager(
                    maxsize=_CONNECTIONS, **(_tls(endpoint) if secure else {})
                )
            return self._pools[key]


def _too_late(endpoint: Endpoint) -> Reply:
    return Reply(fault=f"gave no answer within {endpoint.timeout_seconds:g} s (httpTimeout)")


def _cause(error: BaseException) -> str:
    """Return what lies at the bottom of an error: layers above name sockets and pools."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _tls(endpoint: Endpoint) -> dict[str, Any]:
    """Return how a pool is to speak TLS.

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
        urllib3.disable_warnings(InsecureRequestWarning)  # whoever configures it knows
    if (tls.cert_file or tls.cert_data) and (tls.key_file or tls.key_data):
        with _file(tls.cert_file, tls.cert_data) as certificate, _file(tls.key_file, tls.key_data) as key:
            context.load_cert_chain(certificate, key)
    named = (
        {"server_hostname": tls.server_name, "assert_hostname": tls.server_name} if tls.server_name else {}
    )
    return {"ssl_context": context, **named}


@contextmanager
def _file(name: str, data: str) -> Iterator[str]:
    """Provide what is given as a file or as data in a file: the TLS library reads nothing else."""
    if not data:
        yield name
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pem"
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(data))
        yield str(path)

"""The URL paths of the Kubernetes API, and requests to the API server.

Each request has a deadline. It returns bytes, or raises `ApiError` or `Unreachable`.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote
from weakref import WeakSet

import aiohttp
import msgspec
from aiohttp import AddrInfoType
from yarl import URL

from batchsched.api.crd.base import API_VERSION
from batchsched.api.snapshot import OBJECT_KINDS, ObjectKind
from batchsched.errors import ApiError, CommandError, Unreachable
from batchsched.kube.credentials import ClientConfig, CredentialsReader
from batchsched.ports.cluster import Clock


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A resource type of the Kubernetes API, such as pods.

    Args:
      api_version: group and version, "v1" for the core group.
      plural: the last part of the path, such as "pods".
      kind: the kind of its objects, such as "Pod".
      namespaced: whether its objects belong to namespaces.
    """

    api_version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def group(self) -> str:
        """The API group of the resource, "" for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def full_name(self) -> str:
        """The full name of the resource as kubectl accepts it: `jobs.batch`, or `pods` for the core group."""
        return ".".join(part for part in (self.plural, self.group) if part)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of one object in it, or of a subresource of this object.

        Names are percent-encoded: a name with a slash or a control character must not change the request.
        """
        parts = ["/apis" if "/" in self.api_version else "/api", self.api_version]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [self.plural, quote(name, safe=""), subresource]
        return "/".join(filter(None, parts))


def plural_of_kind(kind: str) -> str:
    """Return the plural of a kind as in the URL paths of the API, such as `pods` for `Pod`."""
    small = kind.lower()
    if small.endswith(("s", "x")):
        return small + "es"
    if small.endswith("y"):
        return small[:-1] + "ies"
    return small + "s"


def api_resource(kind: ObjectKind) -> ApiResource:
    """Return the API resource of a kind of object, such as the resource `pods` for the kind `Pod`."""
    return ApiResource(kind.api_version, plural_of_kind(kind.name), kind.name, kind.namespaced)


def api_resources_of_snapshot() -> Iterator[tuple[ObjectKind, ApiResource]]:
    """Yield each kind of object that a Snapshot contains, with its API resource."""
    for kind in OBJECT_KINDS:
        yield kind, api_resource(kind)


POD_RESOURCE: Final = ApiResource("v1", "pods", "Pod", namespaced=True)
POD_GROUP_RESOURCE: Final = ApiResource(API_VERSION, "podgroups", "PodGroup", namespaced=True)
CLAIM_RESOURCE: Final = ApiResource("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", namespaced=True)
EVENTS: Final = ApiResource("events.k8s.io/v1", "events", "Event", namespaced=True)
LEASES: Final = ApiResource("coordination.k8s.io/v1", "leases", "Lease", namespaced=True)


_LOG: Final = logging.getLogger(__name__)
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
"""A patch that adds to lists with a merge key, such as finalizers. The API server has it for its built-in kinds."""
_REFRESH_SECONDS: Final = 30.0
"""Seconds between two checks of the files that contain the credentials."""
_NO_LIMIT: Final = aiohttp.ClientTimeout(total=None)
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""Options of each socket, if the system has them. A lost peer is noticed within 30 s, also on an idle watch."""
_TROUBLE: Final = (aiohttp.ClientError, TimeoutError, OSError)
_DESCRIPTOR_IN_USE: Final = "is used by transport"
NO_ANSWER: Final = "<error>"
"""The status of a request without an answer, as in the metrics of client-go."""
_OPENING_SECONDS: Final = 20.0
"""Seconds within which a watch must start. The API server answers immediately, even without events."""
_CLOSING_SECONDS: Final = 1.0
"""The longest time to wait for connections to close."""
_MAX_RETRY_AFTER_SECONDS: Final = 300.0
"""The longest wait that a Retry-After header may request."""
_MAX_MESSAGE_CHARACTERS: Final = 300
"""Characters that an error message quotes of an answer that is not a Status object, such as a page of a proxy."""


class _Status(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


OnRequest = Callable[[str, str, float], None]
"""Receives each finished request: its method, the status of the answer, and the duration in seconds."""


def _ignore(method: str, status: str, seconds: float) -> None:
    """Do nothing with a request."""


class Connection:
    """A pool of authenticated connections to one API server. It is an asynchronous context manager.

    Args:
      credentials: the server, and the identity of this client.
      clock: the clock for waits and for the duration of requests.
    """

    def __init__(self, credentials: CredentialsReader, clock: Clock) -> None:
        self.on_request: OnRequest = _ignore
        """Is called after each request except watches."""
        self._credentials = credentials
        self._clock = clock
        self._identity: ClientConfig | None = None
        self._session: aiohttp.ClientSession | None = None
        self._refresher: asyncio.Task[None] | None = None
        self._renewing = asyncio.Lock()
        self._sockets: WeakSet[socket.socket] = WeakSet()

    async def __aenter__(self) -> Self:
        await self._load(renew=False)
        # With trust_env, aiohttp searches for proxies at each request, which takes three times as long as the request.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60, socket_factory=self._socket),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._refresher = asyncio.create_task(self._refresh(), name="credentials")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.wait([self._refresher])
        if self._session is not None:
            await self._session.close()
            await self._closed()

    async def _closed(self) -> None:
        """Wait until the connections of cancelled requests are closed: TLS needs a round trip for that."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + _CLOSING_SECONDS
        while loop.time() < ends and any(opened.fileno() >= 0 for opened in self._sockets):
            await asyncio.sleep(0.002)

    def _socket(self, address: AddrInfoType) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    @property
    def own_pod_namespace(self) -> str:
        """The namespace of the pod in which this process runs, "default" outside a cluster."""
        return self._credentials.own_pod_namespace

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        deadline: float = 10.0,
    ) -> bytes:
        """Send a request to the API server and return the body of the response.

        After a 401, the request is sent again with new credentials.

        Raises:
          ApiError: the server refused.
          Unreachable: there was no answer within `deadline` seconds.
        """
        content = (body, content_type)
        with _RaisingUnreachable(method, path):
            # aiohttp rounds its own timeout up to a full second, which is too coarse for a Lease.
            async with asyncio.timeout(deadline):
                used = self._identity
                try:
                    return await self._once(method, path, query, content)
                except ApiError as error:
                    if error.status != 401 or not await self._renew(used):
                        raise
                return await self._once(method, path, query, content)

    async def watch_lines(
        self, path: str, query: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Start a watch and yield its events in batches as they arrive; each line of a batch is the JSON of one event.

        Args:
          path: the path of the collection.
          query: the query of the watch.
          silence: seconds without a byte after which the connection counts as lost.

        Raises:
          ApiError: the server refused.
          Unreachable: the connection broke or ended inside a line.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=silence)
        used = self._identity
        with _RaisingUnreachable("GET", path):
            async with asyncio.timeout(_OPENING_SECONDS):
                opened = await self._open("GET", path, query, (None, JSON), timeout)
            async with opened as answer:
                if answer.status != 200:
                    if answer.status == 401:
                        await self._renew(used)  # for the next attempt
                    raise await _refusal(answer)
                begun = b""
                async for chunk in answer.content.iter_any():
                    *whole, begun = (begun + chunk).split(b"\n")
                    if whole:
                        yield whole
                if begun.strip():
                    raise Unreachable(f"GET {path}: the watch ended inside an event")

    async def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        content: tuple[bytes | None, str],
    ) -> bytes:
        begun, status = self._clock.monotonic(), NO_ANSWER
        try:
            async with self._open(method, path, query, content, _NO_LIMIT) as answer:
                if answer.status >= 300:
                    refusal = await _refusal(answer)
                    status = str(answer.status)
                    try:
                        raise refusal
                    finally:
                        del refusal  # its traceback refers to this frame, which would stay until a collection
                content_read: bytes = await answer.read()
                status = str(answer.status)
                return content_read
        finally:
            self.on_request(method, status, self._clock.monotonic() - begun)

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        content: tuple[bytes | None, str],
        timeout: aiohttp.ClientTimeout,
    ) -> Any:
        if self._session is None or self._identity is None:
            raise Unreachable("the connection is not open")
        now = self._identity
        body, content_type = content
        headers = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": "batchsched"}
        if now.authorization:
            headers["Authorization"] = now.authorization
        if body is not None:
            headers["Content-Type"] = content_type
        return self._session.request(
            method,
            URL(now.server + path, encoded=True),
            params=query,
            data=body,
            headers=headers,
            timeout=timeout,
            ssl=now.tls if now.tls is not None else False,
            server_hostname=now.server_name,
            proxy=now.proxy,
            allow_redirects=False,
        )

    async def _load(self, *, renew: bool) -> None:
        # In a thread, because an exec plugin is a program that may take seconds.
        self._identity = await asyncio.to_thread(self._credentials.load_client_config, renew=renew)

    async def _renew(self, used: ClientConfig | None) -> bool:
        """Replace credentials that the server rejected; return whether others exist.

        Many requests fail at the same time. The lock ensures that an exec plugin runs only once.
        """
        async with self._renewing:
            if self._identity is used:
                try:
                    await self._load(renew=True)
                except CommandError as error:
                    _LOG.warning("the server rejects the credentials, and no others can be loaded: %s", error)
                    return False
        return True

    async def _refresh(self) -> None:
        while True:
            await self._clock.sleep(_REFRESH_SECONDS)
            try:
                await self._load(renew=False)
            except (
                CommandError
            ) as error:  # the file may be incomplete; the current credentials may still be valid
                _LOG.warning("credentials cannot be reloaded, and the current ones are kept: %s", error)


def _socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


async def _refusal(answer: aiohttp.ClientResponse) -> ApiError:
    body = await answer.read()
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        status = _Status(
            message=body[:_MAX_MESSAGE_CHARACTERS].decode(errors="replace").strip() or answer.reason or ""
        )
    return ApiError(
        answer.status, status.reason, status.message, _seconds(answer.headers.get("Retry-After", ""))
    )


def _seconds(text: str) -> float:
    """Return the seconds of a Retry-After header, within bounds. The API server never sends a date."""
    return min(float(text), _MAX_RETRY_AFTER_SECONDS) if text.isascii() and text.isdigit() else 0.0


class _RaisingUnreachable:
    """Raise `Unreachable` for an error that a broken or missing connection causes.

    It is a class, since a generator takes several times as long, and each binding has two requests.
    """

    __slots__ = ("_method", "_path")

    def __init__(self, method: str, path: str) -> None:
        self._method, self._path = method, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        # aiohttp closes the socket of a cancelled TLS handshake. Until its transport is closed, too, uvloop refuses a
        # new socket with the same descriptor.
        if isinstance(error, _TROUBLE) or (
            isinstance(error, RuntimeError) and _DESCRIPTOR_IN_USE in str(error)
        ):
            raise Unreachable(f"{self._method} {self._path}: {_message_of(error)}") from error


def _message_of(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer within the deadline"
    return str(error) or type(error).__name__

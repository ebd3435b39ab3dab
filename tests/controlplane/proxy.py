"""A bad network, on demand: an HTTP proxy between a client and the API server that does as its rules say.

The client speaks plain HTTP to it, and it speaks TLS to the API server, so a fault can be put anywhere into an
exchange. It runs on a thread of its own: tests may block, and may be on an event loop themselves.

    with Proxy(plane.server, plane.certificate) as proxy:
        proxy.on(lost(), method="POST", path="/binding$", count=1)      # the first bind is carried out, its answer lost
        proxy.on(cut(300, Ending.STALL), watch=True, chance=0.2)        # a fifth of the watches falls silent
        with proxy.partitioned(): ...
"""

import asyncio
import json
import random
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

import aiohttp
from aiohttp import web
from yarl import URL

_PASSED_ON: Final = ("Authorization", "Content-Type", "Accept", "Accept-Encoding", "User-Agent")


class Ending(Enum):
    """How an exchange ends that does not end well."""

    RESET = "the connection is reset"
    STALL = "nothing comes any more, and the connection stays"
    END = "the answer ends as if that had been all"


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of an exchange; the functions below make the usual ones.

    Args:
      answer: status, headers and body of an answer of the proxy's own; the API server hears nothing.
      delay: seconds before anything happens.
      forward: whether the API server gets the request.
      after: bytes of the answer's body that come through before `ending`; None: all of them.
      deaf: the API server carries the request out, and the client gets no answer at all.
      ending: how it ends.
    """

    answer: tuple[int, Mapping[str, str], bytes] | None = None
    delay: float = 0.0
    forward: bool = True
    after: int | None = None
    deaf: bool = False
    ending: Ending = Ending.RESET


_FAITHFUL: Final = Fault()


def status(code: int, reason: str = "", retry_after: int | None = None) -> Fault:
    """The API server says no, by a Status object."""
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    headers = {"Content-Type": "application/json"}
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return Fault(answer=(code, headers, json.dumps({**said, "message": "so says the proxy"}).encode()))


def page(code: int = 502) -> Fault:
    """A load balancer says no, by a page of HTML."""
    text = f"<html><body><h1>{code} Bad Gateway</h1></body></html>\n"
    return Fault(answer=(code, {"Content-Type": "text/html"}, text.encode()))


def says(*lines: Mapping[str, Any]) -> Fault:
    """The API server sends these lines, and that is all."""
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return Fault(answer=(200, {"Content-Type": "application/json"}, text))


def delayed(seconds: float) -> Fault:
    """All is well, but late."""
    return Fault(delay=seconds)


def refused() -> Fault:
    """The connection is reset before the API server hears of it."""
    return Fault(forward=False)


def hung() -> Fault:
    """Nothing happens, for as long as the client waits."""
    return Fault(forward=False, ending=Ending.STALL)


def lost(ending: Ending = Ending.RESET) -> Fault:
    """The API server executes the request, and its response is lost."""
    return Fault(deaf=True, ending=ending)


def cut(after: int, ending: Ending = Ending.RESET) -> Fault:
    """The response ends after a number of bytes."""
    return Fault(after=after, ending=ending)


@dataclass(slots=True)
class Rule:
    """The exchanges to which a fault applies.

    Args:
      fault: the fault.
      method: of these only.
      path: a regular expression that is searched in path and query.
      watch: True: watches only, False: anything else only.
      skip: the number of matching exchanges that pass first.
      count: the maximum number of faults, None for any number.
      chance: of those, which share.
    """

    fault: Fault
    method: str | None = None
    path: str = ""
    watch: bool | None = None
    skip: int = 0
    count: int | None = None
    chance: float = 1.0
    hits: int = 0
    """How often it has struck."""

    def fits(self, exchange: "Exchange") -> bool:
        """Return whether it is about this exchange."""
        return (
            (self.method is None or self.method == exchange.method)
            and (self.watch is None or self.watch == exchange.watch)
            and re.search(self.path, exchange.path) is not None
        )

    def strikes(self, draw: float) -> bool:
        """Return whether it befalls the next exchange that it is about."""
        if self.skip:
            self.skip -= 1
            return False
        if (self.count is not None and self.hits >= self.count) or draw >= self.chance:
            return False
        self.hits += 1
        return True


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that came, and when, by the monotonic clock."""

    method: str
    path: str
    at: float

    @property
    def watch(self) -> bool:
        """Whether it is a watch."""
        return "watch=true" in self.path


@dataclass
class Proxy:
    """Passes requests on to an API server, as its rules say; use it as a context manager.

    Args:
      server: the URL of the API server.
      certificate: what it is trusted by.
      seed: of the draws for rules that strike by chance.
    """

    server: str
    certificate: Path
    seed: int = 0
    url: str = field(default="", init=False)
    seen: list[Exchange] = field(default_factory=list, init=False)
    """Every request so far."""
    passed: list[Exchange] = field(default_factory=list, init=False)
    """The requests that were forwarded to the API server, with their times."""
    rules: list[Rule] = field(default_factory=list, init=False)

    def __enter__(self) -> Self:
        self._draw = random.Random(self.seed)
        self._open = WeakSet[asyncio.Transport]()
        self._watches: dict[web.StreamResponse, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._there(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._there(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def on(self, fault: Fault, **which: Any) -> Rule:
        """Add a rule, see `Rule`; the first that matches applies."""
        rule = Rule(fault, **which)
        self.rules.append(rule)
        return rule

    def calm(self) -> None:
        """Let everything pass from now on."""
        self.rules.clear()

    def inject(self, path: str, *lines: bytes) -> int:
        """Send lines to the open watches of a collection, between those of the API server; returns their number."""
        return int(self._there(self._inject(path, b"".join(line + b"\n" for line in lines))))

    def sever(self) -> None:
        """Reset every connection that is open."""
        self._there(self._sever())

    @contextmanager
    def partitioned(self) -> Iterator[None]:
        """Hold all traffic in both directions; afterwards it is forwarded, if its client still waits."""
        self._loop.call_soon_threadsafe(self._passable.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._passable.set)

    def count(self, method: str = "", path: str = "", *, watch: bool | None = None) -> int:
        """Return the number of requests of a kind."""
        rule = Rule(_FAITHFUL, method or None, path, watch)
        return sum(rule.fits(one) for one in list(self.seen))

    # On the proxy's own thread

    def _there(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _start(self) -> None:
        self._passable = asyncio.Event()
        self._passable.set()
        trust = ssl.create_default_context(cafile=str(self.certificate))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trust),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),  # what the client did not ask for it cannot read
            timeout=aiohttp.ClientTimeout(total=None),
        )
        self._runner = web.ServerRunner(
            web.Server(self._answer, handler_cancellation=True, access_log=None), shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        self._passable.set()
        await self._sever()
        await self._runner.cleanup()
        await self._session.close()
        await asyncio.sleep(0.05)  # aiohttp closes its TLS connections a little later

    async def _sever(self) -> None:
        for transport in tuple(self._open):
            _reset(transport)

    async def _inject(self, path: str, lines: bytes) -> int:
        watches = [response for response, of in self._watches.items() if of == path]
        for response in watches:
            await response.write(lines)
        return len(watches)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        exchange = Exchange(request.method, request.path_qs, time.monotonic())
        self.seen.append(exchange)
        fault = next(
            (
                rule.fault
                for rule in tuple(self.rules)
                if rule.fits(exchange) and rule.strikes(self._draw.random())
            ),
            _FAITHFUL,
        )
        if request.transport is not None:
            self._open.add(request.transport)
        body = await request.read()
        await asyncio.sleep(fault.delay)
        await self._passable.wait()
        if fault.answer is not None:
            code, headers, said = fault.answer
            return web.Response(status=code, headers=headers, body=said)
        if not fault.forward:
            return await self._end(request, fault.ending)
        try:
            return await self._pass(request, body, fault)
        except aiohttp.ClientError:
            return await self._end(request, Ending.RESET)

    async def _pass(self, request: web.BaseRequest, body: bytes, fault: Fault) -> web.StreamResponse:
        self.passed.append(Exchange(request.method, request.path_qs, time.monotonic()))
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        url = URL(self.server + request.raw_path, encoded=True)
        async with self._session.request(request.method, url, data=body or None, headers=headers) as answer:
            if fault.deaf:
                await answer.read()
                return await self._end(request, fault.ending)
            response = web.StreamResponse(status=answer.status, headers=_kept(answer))
            response.enable_chunked_encoding()
            await self._passable.wait()
            await response.prepare(request)
            if fault is _FAITHFUL and "watch=true" in request.query_string:
                return await self._pass_lines(request, response, answer)
            left = fault.after
            async for chunk in answer.content.iter_any():
                await self._passable.wait()
                if left is not None and left <= len(chunk):
                    await response.write(chunk[:left])
                    return await self._end(request, fault.ending, response)
                await response.write(chunk)
                left = left if left is None else left - len(chunk)
            await response.write_eof()
            return response

    async def _pass_lines(
        self, request: web.BaseRequest, response: web.StreamResponse, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        """Pass on a watch line by line, so that `inject` never splits a line."""
        self._watches[response] = request.path
        begun = b""
        try:
            async for chunk in answer.content.iter_any():
                await self._passable.wait()
                lines, newline, begun = (begun + chunk).rpartition(b"\n")
                if newline:
                    await response.write(lines + newline)
            await response.write_eof(begun)
            return response
        finally:
            del self._watches[response]

    async def _end(
        self, request: web.BaseRequest, how: Ending, begun: web.StreamResponse | None = None
    ) -> web.StreamResponse:
        if how is Ending.STALL:
            await asyncio.Event().wait()  # until the client goes away
        if how is Ending.RESET and request.transport is not None:
            _reset(request.transport)
        if begun is None:
            return web.Response()
        if how is Ending.END:
            await begun.write_eof()
        return begun


def _kept(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: answer.headers[name] for name in ("Content-Type", "Retry-After") if name in answer.headers}


def _reset(transport: asyncio.BaseTransport) -> None:
    """Close a connection the hard way: the other side reads a reset, not an end."""
    plug = transport.get_extra_info("socket")
    if plug is not None and plug.fileno() >= 0:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()  # type: ignore[attr-defined]

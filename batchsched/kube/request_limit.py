"""The limit on concurrent requests to the API server, which serves waiting namespaces in turn."""

import asyncio
from collections import deque


class ApiRequestLimit:
    """A semaphore that serves waiting namespaces in turn, so that many bindings of one namespace do not delay another.

    Args:
      count: the maximum number of concurrent requests.
    """

    def __init__(self, count: int) -> None:
        self._count = self._free = count
        self._idle = asyncio.Event()
        self._idle.set()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By namespace, the requests that wait; the first namespace has the next turn."""

    def request_slot(self, namespace: str) -> "RequestSlot":
        """Return the context of one request of a namespace."""
        return RequestSlot(self, namespace)

    async def wait_until_idle(self) -> None:
        """Wait until no request is counted as concurrent."""
        await self._idle.wait()

    async def acquire(self, namespace: str) -> None:
        """Wait until a request of a namespace may be sent, and count it as concurrent until `release`."""
        if self._free:
            self._free -= 1
            self._idle.clear()
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot was granted just before the cancellation
                self.release()
            raise

    def release(self) -> None:
        """Count one request less as concurrent, and let the next one be sent."""
        while self._waiting:
            namespace, turns = next(iter(self._waiting.items()))
            del self._waiting[namespace]
            turn = turns.popleft()
            if turns:
                self._waiting[namespace] = turns  # behind the other namespaces
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
        if self._free == self._count:
            self._idle.set()


class RequestSlot:
    """The context of one request: it begins when the request may be sent, and the request counts until it ends.

    It is a class, since an asynchronous generator takes several times as long, and each binding has two requests.
    """

    __slots__ = ("_limit", "_namespace")

    def __init__(self, limit: ApiRequestLimit, namespace: str) -> None:
        self._limit, self._namespace = limit, namespace

    async def __aenter__(self) -> None:
        await self._limit.acquire(self._namespace)

    async def __aexit__(self, *_: object) -> None:
        self._limit.release()

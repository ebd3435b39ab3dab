"""The limit on concurrent requests to the API server, which serves waiting namespaces in turn."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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

    @asynccontextmanager
    async def request_slot(self, namespace: str) -> AsyncIterator[None]:
        """Wait until a request of a namespace may be sent, and count it as concurrent until the context ends."""
        await self._acquire(namespace)
        try:
            yield
        finally:
            self._release()

    async def wait_until_idle(self) -> None:
        """Wait until no request is counted as concurrent."""
        await self._idle.wait()

    async def _acquire(self, namespace: str) -> None:
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
                self._release()
            raise

    def _release(self) -> None:
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

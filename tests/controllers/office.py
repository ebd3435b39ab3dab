"""What tests of reports share: an API server that takes what it is given, and a cache with something in it."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from batchsched.errors import BatchschedError
from batchsched.kube.connection import ApiResource
from batchsched.state.cluster_state import ClusterState
from tests.state.objects import told


class Desk:
    """As a Writer; remembers what it was sent.

    Args:
      slow: seconds that a request takes.
    """

    def __init__(self, slow: float = 0.0) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        self.slow = slow
        self.failing: list[BaseException] = []
        """What the next requests end in."""
        self.version = 0
        """The resource version of the answers; 0: the answers are empty."""
        self.at_once = self.most_at_once = 0

    async def send(
        self, method: str, path: str, body: bytes, content_type: str = "", *, patient: bool = True
    ) -> bytes:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.slow)
            if self.failing:
                raise self.failing.pop(0)
        finally:
            self.at_once -= 1
        self.sent.append((method, path, msgspec.json.decode(body)))
        return b'{"metadata":{"resourceVersion":"%d"}}' % self.version if self.version else b""

    async def create(self, resource: ApiResource, namespace: str, body: Any) -> bytes:
        return await self.send("POST", resource.path(namespace), msgspec.json.encode(body))

    async def patch(self, resource: ApiResource, namespace: str, name: str, change: Any) -> bytes:
        return await self.send("PATCH", resource.path(namespace, name), msgspec.json.encode(change))

    def fail(self, *faults: BatchschedError) -> None:
        self.failing.extend(faults)

    def of(self, path: str) -> list[Any]:
        """The writes to objects with the text in their path, the oldest first."""
        return [body for _, where, body in self.sent if path in where]


def observed(*parts: Iterable[Any]) -> ClusterState:
    """A cache with these objects, each with a uid."""
    cache = ClusterState(["batchsched"])
    for part in parts:
        for one in part:
            cache.put(known(one))
    return cache


def known(one: Any) -> Any:
    """Give an object a uid."""
    uid = f"uid-{one.metadata.name}"
    if isinstance(one, msgspec.Struct):
        return told(one, uid=uid)
    return one.model_copy(update={"metadata": one.metadata.model_copy(update={"uid": uid})})

"""Writing to the API server: so many requests at once, as fast as it lets us, and not a moment longer than we lead."""

import asyncio
import logging
from typing import Any, Final, Protocol

import msgspec

from batchsched.api.binding import Binding
from batchsched.api.core.pod import Pod
from batchsched.errors import ApiError, BindFailed, NotLeading, Unreachable
from batchsched.kube.backoff import Backoff
from batchsched.kube.connection import JSON, MERGE_PATCH, Connection
from batchsched.kube.resources import PODS, Resource
from batchsched.ports.clock import Clock

_LOG: Final = logging.getLogger(__name__)
_DEADLINE: Final = 10.0
"""Seconds that a single request may take."""
_PATIENCE: Final = 60.0
"""Seconds within which a write is tried again while the server is busy."""
_BUSY: Final = (429, 503, 504)
_TRIES: Final = 4
"""How often a bind is sent that gets no answer, and after which the pod has no node."""


class WriteFence(Protocol):
    """Says how long we may still write."""

    def remaining(self) -> float:
        """Return the seconds for which we lead for sure, 0 or less when we may not."""
        ...


class NoFence:
    """The fence of whoever is alone."""

    def remaining(self) -> float:
        """Return forever."""
        return float("inf")


class _Ref(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Named(msgspec.Struct, frozen=True):
    uid: str = ""


class _Bound(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()
    spec: _Ref = _Ref()


class Writer:
    """Sends writes.

    Args:
      connection: to the API server.
      clock: waits.
      fence: no request outlives it.
      in_flight: requests at once.
    """

    def __init__(
        self, connection: Connection, clock: Clock, fence: WriteFence | None = None, in_flight: int = 64
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._fence = fence or NoFence()
        self._slots = asyncio.Semaphore(in_flight)

    async def bind(self, binding: Binding) -> None:
        """Bind a pod. A request without an answer is looked into: the pod may be where it was to go.

        Whoever is not told that it is not waits: its room must not be given to another.

        Raises:
          BindFailed: it is bound elsewhere, or gone, or the server does not take it.
          NotLeading: the fence fell first.
        """
        meta: dict[str, Any] = {"name": binding.pod, "namespace": binding.namespace}
        if binding.labels:
            meta["labels"] = dict(binding.labels)
        if binding.uid:  # another pod of its name is not to be bound in its place
            meta["uid"] = binding.uid
        target = {"apiVersion": "v1", "kind": "Node", "name": binding.node}
        body = msgspec.json.encode(
            {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        )
        path = PODS.path(binding.namespace, binding.pod, "binding")
        failed = f"binding {binding.namespace}/{binding.pod} to {binding.node}"
        backoff = Backoff(self._clock, first=0.1, longest=5.0)
        in_doubt, in_vain = False, 0
        while True:
            try:
                await self.send("POST", path, body)
            except (ApiError, Unreachable) as error:
                status = error.status if isinstance(error, ApiError) else 0
                refused = 0 < status < 500
                if refused and status != 409 and not in_doubt:
                    raise BindFailed(f"{failed}: {error}") from error
                in_doubt = in_doubt or not refused
                node = await self._node_of(binding, failed, error)
                if node == binding.node:
                    return
                if node is not None:
                    in_vain += 1
                    if refused or in_vain == _TRIES:
                        why = error if refused else f"no answer to {_TRIES} requests"
                        raise BindFailed(f"{failed}: {why}") from error
                await backoff.wait()
            else:
                return

    async def _node_of(self, binding: Binding, failed: str, error: ApiError | Unreachable) -> str | None:
        """Return the node of a pod that was to be bound, "" where it has none, None where nobody can tell.

        Raises:
          BindFailed: it never will be.
        """
        try:
            now = msgspec.json.decode(await self.get(PODS, binding.namespace, binding.pod), type=_Bound)
        except ApiError as answer:
            if answer.status == 404:
                raise BindFailed(f"{failed}: the pod is gone") from error
            return None
        except (Unreachable, msgspec.DecodeError):
            return None
        if binding.uid and now.metadata.uid != binding.uid:
            raise BindFailed(f"{failed}: another pod has its name now") from error
        if now.spec.node_name not in ("", binding.node):
            raise BindFailed(f"{failed}: it is bound to {now.spec.node_name} already") from error
        return now.spec.node_name

    async def evict(self, pod: Pod, grace: int | None = None) -> None:
        """Evict a pod through the Eviction API, which minds disruption budgets; one that is gone already is no error.

        Raises:
          ApiError: a budget does not allow it (429), or another refusal.
          Unreachable: there was no answer.
          NotLeading: the fence fell first.
        """
        options: dict[str, Any] = {"preconditions": {"uid": pod.metadata.uid}} if pod.metadata.uid else {}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        path = PODS.path(pod.namespace, pod.name, "eviction")
        self._allowed()
        try:
            # The server tries a wrong UID again for ten seconds before it says no.
            now = msgspec.json.decode(await self.get(PODS, pod.namespace, pod.name), type=_Bound)
            if pod.metadata.uid not in ("", now.metadata.uid):
                return
            # 429 is the budget's word here: asking again at once would not change it.
            await self.send("POST", path, msgspec.json.encode(body), patient=False)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        """Read an object as it is now, before it is written.

        Raises:
          ApiError: the server refused.
          Unreachable: there was no answer.
        """
        async with self._slots:
            path = resource.path(namespace, name)
            return await self._connection.request("GET", path, deadline=_DEADLINE)

    async def create(self, resource: Resource, namespace: str, body: Any) -> bytes:
        """Make an object, and return it as the server wrote it. Raises as `send`."""
        return await self.send("POST", resource.path(namespace), msgspec.json.encode(body))

    async def replace(self, resource: Resource, namespace: str, name: str, body: Any) -> bytes:
        """Write an object anew; a resourceVersion in it is a condition. Raises as `send`."""
        return await self.send("PUT", resource.path(namespace, name), msgspec.json.encode(body))

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str = "") -> None:
        """Delete an object; one that is gone already is no error. Raises as `send`."""
        options = {"preconditions": {"uid": uid}} if uid else {}
        try:
            await self.send("DELETE", resource.path(namespace, name), msgspec.json.encode(options))
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def patch(
        self, resource: Resource, namespace: str, name: str, change: Any, subresource: str = ""
    ) -> bytes:
        """Merge a change into an object or a part of it, such as its status. Raises as `send`."""
        path = resource.path(namespace, name, subresource)
        return await self.send("PATCH", path, msgspec.json.encode(change), MERGE_PATCH)

    async def send(
        self, method: str, path: str, body: bytes, content_type: str = JSON, *, patient: bool = True
    ) -> bytes:
        """Send a write; while the server is too busy, wait as long as it asks and try again.

        Raises:
          ApiError: the server refused, or stayed busy for a minute.
          Unreachable: there was no answer: it may have been carried out.
          NotLeading: the fence fell first; nothing was sent after that.
        """
        begun, backoff = self._clock.monotonic(), Backoff(self._clock, first=0.2, longest=10.0)
        while True:
            async with self._slots:
                try:
                    return await self._connection.request(
                        method, path, body=body, content_type=content_type, deadline=self._allowed()
                    )
                except ApiError as error:
                    late = self._clock.monotonic() - begun > _PATIENCE
                    if error.status not in _BUSY or not patient or late:
                        raise
                    asked = error.retry_after
            # Outside of the slot: others may have more luck meanwhile.
            await backoff.wait(asked)

    def _allowed(self) -> float:
        remaining = self._fence.remaining()
        if remaining <= 0:
            raise NotLeading("nothing is written any more: the lease may be lost")
        return min(_DEADLINE, remaining)

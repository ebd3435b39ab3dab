"""An observer of all pods that reports violations of the invariants of a scheduler.

It talks to the API server directly, whatever network the scheduler under test has, and keeps to what it sees: a pod
gets a node once, and no node ever holds more than it has.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
import urllib3

from batchsched.api.core.pod import POD_GROUP_LABEL
from tests.controlplane.plane import Api

_IDLE: Final = 1.0
"""Seconds without events after which a watch is reopened."""
_OVER: Final = ("Succeeded", "Failed")


class _Resources(msgspec.Struct, frozen=True):
    requests: dict[str, str] = {}


class _Container(msgspec.Struct, frozen=True):
    resources: _Resources = _Resources()


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _List(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    items: tuple[_Pod, ...] = ()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Pod = _Pod()


_LIST: Final = msgspec.json.Decoder(_List)
_EVENT: Final = msgspec.json.Decoder(_Event)


def _milli_cpu(text: str) -> int:
    """Return a CPU request such as `2` or `500m` in milli-CPU."""
    return int(text[:-1]) if text.endswith("m") else 1000 * int(text)


@dataclass(slots=True)
class Sighting:
    """A pod as it was seen last."""

    name: str
    namespace: str
    gang: str
    cpu: int
    """Milli-CPU."""
    node: str = ""
    bound_at: float = 0.0
    """When it was first seen on its node, by the monotonic clock."""
    over: bool = False


@dataclass
class Witness:
    """Watches the pods of all namespaces.

    Args:
      api: an administrator.
      room: CPUs of every node.
    """

    api: Api
    room: int
    pods: dict[str, Sighting] = field(default_factory=dict)
    """By UID, those that exist."""
    complaints: list[str] = field(default_factory=list)
    binds: list[float] = field(default_factory=list)
    """When each pod was seen on its node, by the monotonic clock."""
    gone: Counter[str] = field(default_factory=Counter)
    """Pods that were deleted, by `namespace/name`."""
    _used: Counter[str] = field(default_factory=Counter)
    _placed: set[str] = field(default_factory=set)

    @contextmanager
    def watching(self) -> Iterator["Witness"]:
        """Look, as long as this lasts; at its end there must have been nothing to complain of."""
        over = threading.Event()
        thread = threading.Thread(target=self._run, args=(over,), name="witness", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join(30)
        assert not self.complaints, "; ".join(self.complaints)

    def bound(self, namespace: str, names: frozenset[str]) -> int:
        """How many of some pods have a node."""
        return sum(f"{namespace}/{name}" in self._placed for name in names)

    def gangs(self, namespace: str) -> Counter[str]:
        """How many pods of each gang of a namespace have a node; those without any are not there."""
        return Counter(
            one.gang
            for one in tuple(self.pods.values())
            if one.namespace == namespace and one.gang and one.node
        )

    def resumed(self, since: float) -> float | None:
        """When the first pod was bound after a moment."""
        return next((at for at in tuple(self.binds) if at > since), None)

    # On its own thread

    def _run(self, over: threading.Event) -> None:
        with urllib3.PoolManager(
            ca_certs=str(self.api.certificate), retries=False, timeout=urllib3.Timeout(connect=5, read=_IDLE)
        ) as pool:
            version = ""
            while not over.is_set():
                try:
                    version = version or self._list(pool)
                    version = self._follow(pool, version, over)
                except (urllib3.exceptions.HTTPError, msgspec.DecodeError):  # the API server is not to be had
                    version = ""
                    over.wait(0.2)

    def _list(self, pool: urllib3.PoolManager) -> str:
        answer = pool.request("GET", f"{self.api.server}/api/v1/pods", headers=self._headers, timeout=30.0)
        if answer.status != 200:
            raise urllib3.exceptions.HTTPError(f"{answer.status}")
        listed = _LIST.decode(answer.data)
        there = {one.metadata.uid for one in listed.items}
        for uid in [uid for uid in self.pods if uid not in there]:
            self._forget(uid)
        for one in listed.items:
            self._see(one)
        return listed.metadata.resource_version

    def _follow(self, pool: urllib3.PoolManager, version: str, over: threading.Event) -> str:
        """Watch from a version on; returns the last one seen, "" to list again."""
        url = f"{self.api.server}/api/v1/pods?watch=true&resourceVersion={version}"
        answer = pool.request("GET", url, headers=self._headers, preload_content=False)
        try:
            if answer.status != 200:
                return ""
            begun = b""
            for chunk in answer.stream(1 << 16):
                *lines, begun = (begun + chunk).split(b"\n")
                for line in lines:
                    event = _EVENT.decode(line)
                    if event.type == "ERROR":
                        return ""
                    version = event.object.metadata.resource_version
                    if event.type == "DELETED":
                        self._forget(event.object.metadata.uid)
                    else:
                        self._see(event.object)
                if over.is_set():
                    break
        except urllib3.exceptions.ReadTimeoutError:
            pass  # it is quiet
        finally:
            answer.close()
        return version

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api.token}"}

    def _see(self, pod: _Pod) -> None:
        meta = pod.metadata
        cpu = sum(_milli_cpu(one.resources.requests.get("cpu", "0")) for one in pod.spec.containers)
        fresh = Sighting(meta.name, meta.namespace, meta.labels.get(POD_GROUP_LABEL, ""), cpu)
        known = self.pods.setdefault(meta.uid, fresh)
        if known.node and pod.spec.node_name != known.node:
            self.complaints.append(f"{meta.name} was on {known.node}, and is on {pod.spec.node_name!r} now")
        if pod.spec.node_name and not known.node:
            known.node, known.bound_at = pod.spec.node_name, time.monotonic()
            self.binds.append(known.bound_at)
            self._placed.add(f"{known.namespace}/{known.name}")
            self._used[known.node] += known.cpu
            if self._used[known.node] > 1000 * self.room:
                self.complaints.append(f"{known.node} holds {self._used[known.node]}m of {self.room} CPUs")
        if pod.status.phase in _OVER and not known.over:
            known.over = True
            self._used[known.node] -= known.cpu

    def _forget(self, uid: str) -> None:
        known = self.pods.pop(uid, None)
        if known is not None:
            key = f"{known.namespace}/{known.name}"
            self.gone[key] += 1
            self._placed.discard(key)
            if not known.over:
                self._used[known.node] -= known.cpu

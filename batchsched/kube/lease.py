"""Who leads: one of several by a Lease, which it renews, gives back, and never outlives.

Clocks of two machines may differ, so nobody believes the times in a Lease: a Lease counts as left when it was seen
unchanged for its duration by one's own clock. A leader stops to write `renew` seconds after the last renewal it *sent*
that went well; others come after `duration` seconds at the earliest. What lies between is the margin.
Source: the behaviour of client-go's leader election, whose defaults these are.
"""

import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from batchsched.errors import ApiError, Unreachable
from batchsched.kube.connection import Connection
from batchsched.kube.resources import LEASES
from batchsched.ports.clock import Clock

_LOG: Final = logging.getLogger(__name__)


class _LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, rename="camel"):
    metadata: dict[str, Any]  # kept as it is: labels and annotations are others'
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of a Lease, in seconds.

    Args:
      duration: after which others take over a Lease that is not renewed.
      renew: after the last renewal in which we still lead.
      retry: between two attempts.

    Raises:
      ValueError: they are not in the order that keeps two from leading at once.
    """

    duration: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration > self.renew > self.retry > 0:
            raise ValueError("expected leaseDuration > renewDeadline > retryPeriod > 0")


class Lease:
    """A Lease that we want to hold; implements `kube.writer.Fence`.

    Args:
      connection: to the API server.
      clock: tells time.
      name: namespace and name of the Lease; it is made when it is not there.
      identity: who we are, different for every process.
      terms: its times.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        name: tuple[str, str],
        identity: str,
        terms: LeaseTimes | None = None,
    ) -> None:
        self.identity = identity
        self._connection = connection
        self._clock = clock
        self._namespace, self._name = name
        self._terms = terms or LeaseTimes()
        self._until = float("-inf")
        self._claimed = False
        """Whether the Lease may be ours: a claim was sent, and nobody else was seen to hold it since."""
        self._seen = ("", "")
        """Who held it when we looked last, and in which version."""
        self._seen_at = float("-inf")

    def remaining(self) -> float:
        """Return the seconds for which we lead for sure."""
        return self._until - self._clock.monotonic()

    async def acquire(self) -> None:
        """Wait until we lead."""
        while not await self._try(self._claim):
            await self._clock.sleep(self._terms.retry * (1 + self._clock.jitter() / 5))
        _LOG.info("%s leads (%s/%s)", self.identity, self._namespace, self._name)

    async def keep(self) -> None:
        """Renew for as long as it goes; return when somebody else may lead."""
        while True:
            await self._clock.sleep(min(self._terms.retry, max(0.0, self.remaining())))
            if not await self._try(self._renew) and self.remaining() <= 0:
                _LOG.error("%s leads no more: the Lease was not renewed in time", self.identity)
                return

    async def release(self) -> None:
        """Give the Lease back, so that the next one need not wait."""
        self._until = float("-inf")  # from here on nothing is written
        if not self._claimed:
            return
        self._claimed = False
        try:
            found = await self._read(self._terms.retry)
            if found is not None and found.spec.holder_identity == self.identity:
                found.spec.holder_identity = ""
                found.spec.lease_duration_seconds = 1
                found.spec.renew_time = found.spec.acquire_time = self._time()
                await self._write("PUT", found, self._terms.retry)
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            _LOG.warning("the Lease is not given back: %s", error)

    async def _try(self, take: Callable[[_Lease | None, float], Awaitable[bool]]) -> bool:
        """Take or renew the Lease; True when we lead."""
        sent = self._clock.monotonic()
        # A hung server must not keep us from noticing that our time is over.
        deadline = min(self._terms.renew / 2, max(self._terms.retry, self.remaining()))
        try:
            found = await self._read(deadline)
            self._look(found)
            if not await take(found, deadline):
                return False
        except ApiError as error:
            if error.status != 409:  # 409: somebody was faster
                _LOG.warning("Lease %s/%s: %s", self._namespace, self._name, error)
            return False
        except (Unreachable, msgspec.DecodeError) as error:
            _LOG.warning("Lease %s/%s: %s", self._namespace, self._name, error)
            return False
        self._until = sent + self._terms.renew
        return True

    def _look(self, found: _Lease | None) -> None:
        """Note who holds it; when that is somebody else, our time is over whatever our clock says."""
        if found is None:
            return
        # The version, not renewTime: another's clock may stand still.
        state = (found.spec.holder_identity or "", str(found.metadata.get("resourceVersion", "")))
        if state != self._seen:
            self._seen, self._seen_at = state, self._clock.monotonic()
        if state[0] != self.identity:
            self._until, self._claimed = float("-inf"), False

    async def _claim(self, found: _Lease | None, deadline: float) -> bool:
        """Take the Lease when nobody holds it, or its holder has not renewed it for its duration."""
        holder, theirs = self._seen[0], self._terms.duration
        if found is not None:
            theirs = max(theirs, float(found.spec.lease_duration_seconds or 0))
        # Also when it was deleted: whoever held it believes for a while that it still does.
        if holder not in ("", self.identity) and self._clock.monotonic() < self._seen_at + theirs:
            return False
        self._claimed = True
        if found is None:
            fresh = _Lease({"name": self._name, "namespace": self._namespace})
            await self._write("POST", self._ours(fresh, anew=True), deadline)
        else:
            await self._write("PUT", self._ours(found, anew=holder != self.identity), deadline)
        return True

    async def _renew(self, found: _Lease | None, deadline: float) -> bool:
        """Renew what is ours. What is not has to be acquired: another may have led meanwhile."""
        if found is None or found.spec.holder_identity != self.identity:
            self._until = float("-inf")
            return False
        await self._write("PUT", self._ours(found, anew=False), deadline)
        return True

    def _ours(self, lease: _Lease, *, anew: bool) -> _Lease:
        spec = lease.spec
        if anew:
            spec.acquire_time = self._time()
            spec.lease_transitions = (spec.lease_transitions or 0) + (
                1 if spec.holder_identity is not None else 0
            )
        spec.holder_identity = self.identity
        spec.lease_duration_seconds = max(1, round(self._terms.duration))
        spec.renew_time = self._time()
        return lease

    async def _read(self, deadline: float) -> _Lease | None:
        try:
            path = LEASES.path(self._namespace, self._name)
            return msgspec.json.decode(
                await self._connection.request("GET", path, deadline=deadline), type=_Lease
            )
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _write(self, method: str, lease: _Lease, deadline: float) -> None:
        path = LEASES.path(self._namespace, "" if method == "POST" else self._name)
        body: Any = msgspec.json.encode(lease)
        await self._connection.request(method, path, body=body, deadline=deadline)

    def _time(self) -> str:
        now = dt.datetime.fromtimestamp(self._clock.now(), dt.UTC)
        return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

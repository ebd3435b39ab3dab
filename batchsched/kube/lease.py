"""Leader election by a Lease: one replica acquires it, renews it, and stops writing before it expires.

The clocks of two machines may differ, so a replica ignores the times in a Lease. A Lease counts as expired after the
replica saw it unchanged for its duration, by its own clock. A leader stops writing `renew` seconds after it *sent* its
last successful renewal. Another replica takes over after `duration` seconds at the earliest. The difference is the
safety margin.
Source: the leader election of client-go, with its defaults.
"""

import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from batchsched.errors import ApiError, Unreachable
from batchsched.kube.connection import LEASES, Connection
from batchsched.ports.cluster import Clock

_LOG: Final = logging.getLogger(__name__)


class _LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, rename="camel"):
    metadata: dict[str, Any]  # kept unchanged: other clients own labels and annotations
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The durations of leader election in seconds: Lease duration, renew deadline and retry period.

    Args:
      duration: another replica may take over a Lease that was not renewed for this time.
      renew: a leader leads for this time after its last renewal.
      retry: the time between two attempts to acquire or renew the Lease.

    Raises:
      ValueError: the times are not in the order that prevents two leaders.
    """

    duration: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration > self.renew > self.retry > 0:
            raise ValueError("expected leaseDuration > renewDeadline > retryPeriod > 0")


class LeaderElector:
    """The component that acquires, renews and releases the Lease by which the replicas elect their leader.

    It implements `kube.writer.WriteFence`.

    Args:
      connection: the connection to the API server.
      clock: the current time.
      name: namespace and name of the Lease, which is created if it does not exist.
      identity: the name of this replica, different for every process.
      terms: the times of the Lease.
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
        """Whether this replica may hold the Lease: it sent a claim, and has seen no other holder since."""
        self._seen = ("", "")
        """The holder and the resourceVersion of the Lease as last read."""
        self._seen_at = float("-inf")
        self.other_holder = ""
        """Another identity that renewed the Lease while this replica observed it; "" if there is none."""

    @property
    def lease_key(self) -> str:
        """The `namespace/name` of the Lease."""
        return f"{self._namespace}/{self._name}"

    def remaining_seconds(self) -> float:
        """Return the seconds for which this replica is still the leader; at 0 or less, another may lead."""
        return self._until - self._clock.monotonic()

    async def acquire(self) -> None:
        """Try to acquire the Lease until this replica is the leader."""
        while not await self._try(self._claim):
            await self._clock.sleep(self._terms.retry * (1 + self._clock.random_fraction() / 5))
        _LOG.info("%s leads (%s)", self.identity, self.lease_key)

    async def renew_until_lost(self) -> None:
        """Renew the Lease periodically, and return when it has expired. Another replica may then lead."""
        while True:
            await self._clock.sleep(min(self._terms.retry, max(0.0, self.remaining_seconds())))
            if not await self._try(self._renew) and self.remaining_seconds() <= 0:
                _LOG.error("%s no longer leads: the Lease was not renewed in time", self.identity)
                return

    def stop_writes(self) -> None:
        """Let this replica send no further writes. The Lease stays until it is released or expires."""
        self._until = float("-inf")

    async def release(self) -> None:
        """Release the Lease, so that another replica can lead at once instead of after its expiry."""
        self.stop_writes()
        if not self._claimed:
            return
        self._claimed = False
        try:
            lease = await self._read(self._terms.retry)
            if lease is not None and lease.spec.holder_identity == self.identity:
                lease.spec.holder_identity = ""
                lease.spec.lease_duration_seconds = 1
                lease.spec.renew_time = lease.spec.acquire_time = self._time()
                await self._write("PUT", lease, self._terms.retry)
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            _LOG.warning("the Lease was not released: %s", error)

    async def acquire_or_renew_once(self) -> bool:
        """Acquire or renew the Lease once, without waiting. Return whether this replica holds it.

        Raises:
          ApiError: the server refused. 409: another replica wrote first.
          Unreachable: there was no answer.
          msgspec.DecodeError: the answer is not a Lease.
        """
        return await self._attempt(self._claim)

    async def _try(self, take: Callable[[_Lease | None, float], Awaitable[bool]]) -> bool:
        """Acquire or renew the Lease. Return whether this replica leads; log a failure."""
        try:
            return await self._attempt(take)
        except ApiError as error:
            if error.status != 409:  # 409: another replica wrote first
                _LOG.warning("Lease %s: %s", self.lease_key, error)
            return False
        except (Unreachable, msgspec.DecodeError) as error:
            _LOG.warning("Lease %s: %s", self.lease_key, error)
            return False

    async def _attempt(self, take: Callable[[_Lease | None, float], Awaitable[bool]]) -> bool:
        sent = self._clock.monotonic()
        # A hanging API server must not delay the end of the leadership beyond its time.
        deadline = min(self._terms.renew / 2, max(self._terms.retry, self.remaining_seconds()))
        lease = await self._read(deadline)
        self._look(lease)
        if not await take(lease, deadline):
            return False
        self.other_holder = ""
        self._until = sent + self._terms.renew
        return True

    def _look(self, lease: _Lease | None) -> None:
        """Record the holder. If it is another replica, this one stops leading at once."""
        if lease is None:
            return
        # The resourceVersion and not renewTime, because the clock of the holder may have stopped.
        state = (lease.spec.holder_identity or "", str(lease.metadata.get("resourceVersion", "")))
        if state != self._seen:
            # A holder that crashed does not renew: it is no other holder, although its Lease has not expired yet.
            renewed = state[0] == self._seen[0] and state[0] not in ("", self.identity)
            self.other_holder = state[0] if renewed else ""
            self._seen, self._seen_at = state, self._clock.monotonic()
        if state[0] != self.identity:
            self._until, self._claimed = float("-inf"), False

    async def _claim(self, lease: _Lease | None, deadline: float) -> bool:
        """Acquire the Lease if it has no holder, or if the holder has not renewed it for its duration."""
        holder, duration = self._seen[0], self._terms.duration
        if lease is not None:
            duration = max(duration, float(lease.spec.lease_duration_seconds or 0))
        # Also if the Lease was deleted: the former holder may still write until its own deadline.
        if holder not in ("", self.identity) and self._clock.monotonic() < self._seen_at + duration:
            return False
        self._claimed = True
        if lease is None:
            fresh = _Lease({"name": self._name, "namespace": self._namespace})
            await self._write("POST", self._with_holder(fresh, acquire=True), deadline)
        else:
            await self._write("PUT", self._with_holder(lease, acquire=holder != self.identity), deadline)
        return True

    async def _renew(self, lease: _Lease | None, deadline: float) -> bool:
        """Renew the Lease. A lost Lease must be acquired again, because another replica may have led meanwhile."""
        if lease is None or lease.spec.holder_identity != self.identity:
            self._until = float("-inf")
            return False
        await self._write("PUT", self._with_holder(lease, acquire=False), deadline)
        return True

    def _with_holder(self, lease: _Lease, *, acquire: bool) -> _Lease:
        spec = lease.spec
        if acquire:
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

"""Holds a Lease for each scheduler name, so that a second deployment with the same name is reported.

Leader election keeps two replicas from scheduling at the same time only if both use the same Lease. Two deployments
with different Leases and the same scheduler name would give the room of a node away twice, and neither would know.
Therefore the leader of each deployment also renews one Lease for each of its scheduler names, in a namespace that is
the same for all deployments. A leader that finds another deployment there reports it, and continues to schedule:
either deployment may be the one to keep.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from batchsched.controllers.event_recorder import PendingEvent, object_reference
from batchsched.errors import ApiError, Unreachable
from batchsched.kube.connection import LEASES, Connection
from batchsched.kube.lease import LeaderElector, LeaseTimes
from batchsched.ports.cluster import Clock

_LOG: Final = logging.getLogger(__name__)
SCHEDULER_NAME_LEASE_NAMESPACE: Final = "kube-public"
"""The namespace of the Leases. Each cluster has it, and it has no Leases of the control plane."""
LEASE_NAME_PREFIX: Final = "scheduler-name-"
LEASE_TIMES: Final = LeaseTimes(duration=60.0, renew=40.0, retry=10.0)
CONFLICT: Final = "SchedulerNameConflict"
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME_LENGTH: Final = 200
_CONFLICT_STATUS: Final = 409


def lease_name_of_scheduler_name(scheduler_name: str) -> str:
    """Return the name of the Lease by which this deployment reserves a scheduler name.

    If a scheduler name is not a valid object name, its hash is used instead.
    """
    usable = len(scheduler_name) <= _MAX_NAME_LENGTH and _OBJECT_NAME.fullmatch(scheduler_name)
    return LEASE_NAME_PREFIX + (
        scheduler_name if usable else hashlib.sha256(scheduler_name.encode()).hexdigest()
    )


class SchedulerNameLeases:
    """The Leases that claim this deployment's scheduler names, and reveal deployments with the same names.

    Args:
      connection: The connection to the API server.
      clock: The clock.
      deployment: A text that all replicas of the deployment have in common, and no other deployment has.
      scheduler_names: The scheduler names of the profiles.
      report: Called for each conflict at each check, with the Event.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        deployment: str,
        scheduler_names: Iterable[str],
        report: Callable[[PendingEvent], None],
    ) -> None:
        self.conflicts: dict[str, str] = {}
        """The other deployment that uses a scheduler name, by scheduler name."""
        self._clock = clock
        self._deployment = deployment
        self._report = report
        self._failed: set[str] = set()
        """The scheduler names for which the last check failed."""
        self._leases = {
            name: LeaderElector(
                connection,
                clock,
                (SCHEDULER_NAME_LEASE_NAMESPACE, lease_name_of_scheduler_name(name)),
                deployment,
                LEASE_TIMES,
            )
            for name in sorted(scheduler_names)
        }

    async def run(self) -> None:
        """Renew the Leases of the scheduler names, and report conflicts, until cancelled."""
        while True:
            for name, lease in self._leases.items():
                await self._check(name, lease)
            await self._clock.sleep(LEASE_TIMES.retry)

    async def _check(self, name: str, lease: LeaderElector) -> None:
        try:
            await lease.acquire_or_renew_once()
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            if isinstance(error, ApiError) and error.status == _CONFLICT_STATUS:
                return  # another deployment wrote first; the next check sees it
            if name not in self._failed:
                self._failed.add(name)
                _LOG.warning(
                    "it is unknown whether another deployment uses the schedulerName %s: Lease %s: %s",
                    name,
                    lease.lease_key,
                    error,
                )
            return
        self._failed.discard(name)
        self._compare(name, lease)

    def _compare(self, name: str, lease: LeaderElector) -> None:
        before, other = self.conflicts.get(name, ""), lease.other_holder
        if not other:
            if self.conflicts.pop(name, ""):
                _LOG.info("no other deployment uses the schedulerName %s any more", name)
            return
        self.conflicts[name] = other
        note = (
            f"the deployments {other} and {self._deployment} both schedule the pods with schedulerName {name}, and "
            f"may fill nodes beyond their capacity: stop one of them, or change its schedulerName"
        )
        if other != before:
            _LOG.error("%s", note)
        target = object_reference(
            LEASES, SCHEDULER_NAME_LEASE_NAMESPACE, lease_name_of_scheduler_name(name), ""
        )
        self._report(PendingEvent(target, CONFLICT, "Scheduling", note, warning=True))

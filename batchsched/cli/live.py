"""Commands that look at a running cluster: they list it, and write nothing."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchsched.cli.session import DecidedSession, profile_of, tell, timed
from batchsched.cli.stopwatch import Stopwatch

if TYPE_CHECKING:
    from batchsched.config.schema import Profile
    from batchsched.scheduler.app import SchedulerApp


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The cluster and the profile of a command.

    Args:
      kubeconfig, context: as of the options `--kubeconfig` and `--context`; None: the defaults of kubectl.
      config, profile: the configuration file and the name of the profile; None: the default profile.
    """

    kubeconfig: Path | None
    context: str | None
    config: Path | None
    profile: str | None

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context."""
        from batchsched.kube.credentials import Credentials

        return Credentials(self.kubeconfig, self.context).preferred_namespace


def live_session(access: ClusterAccess, seed: int) -> DecidedSession:
    """Decide one session over a cluster as it is.

    Raises:
      UnusableInput: there is no cluster to talk to, or it does not say what is there.
      InvalidInput: the configuration cannot be used.
    """
    profile = profile_of(access.config, access.profile)
    return decided(asyncio.run(_look(access, profile)), profile, time.time(), seed)


def what_if_sessions(
    access: ClusterAccess, files: Sequence[Path], seed: int
) -> tuple[DecidedSession, DecidedSession, list[str]]:
    """Decide a session without and one with the objects of files; returns both, and what the files bring.

    Raises:
      UnusableInput: as `live_session`, or there is nothing to schedule in the files.
      InvalidInput: the configuration, or an object, cannot be used.
    """
    from batchsched.scheduler.what_if import WhatIf

    profile = profile_of(access.config, access.profile)
    service = asyncio.run(_look(access, profile))
    now = time.time()
    before = decided(service, profile, now, seed)
    supposed = WhatIf(service, profile.scheduler_name, now, access.namespace)
    supposed.put(files)
    tell([f"warning: {line}" for line in supposed.warnings])
    return before, decided(service, profile, now, seed), supposed.gangs()


def decided(service: "SchedulerApp", profile: "Profile", now: float, seed: int) -> DecidedSession:
    """Decide a session over what was looked at."""
    from dataclasses import replace

    from batchsched.scheduler.live_snapshot import set_aside

    snapshot = service.cache.snapshot()
    snapshot = replace(snapshot, set_aside=(*snapshot.set_aside, *set_aside(service)))
    stopwatch = Stopwatch()
    try:
        decision, answers = timed(snapshot, profile, now, seed, stopwatch)
    finally:
        stopwatch.close()
    return DecidedSession(snapshot, profile, now, seed, decision, answers, stopwatch.calls)


async def _look(access: ClusterAccess, profile: "Profile") -> "SchedulerApp":
    from batchsched.api.crd.base import API_VERSION
    from batchsched.kube.clock import SystemClock
    from batchsched.kube.connection import Connection
    from batchsched.kube.credentials import Credentials
    from batchsched.scheduler.live_snapshot import list_cluster

    clock = SystemClock()
    async with Connection(Credentials(access.kubeconfig, access.context), clock) as connection:
        service = await list_cluster(connection, clock, [profile])
    ours = [one for one in service.reflectors if one.resource.api_version == API_VERSION]
    unknown = ", ".join(sorted(one.resource.plural for one in ours if not one.lists))
    if unknown:
        tell(
            [
                f"warning: the cluster does not know {unknown} of batchsched; `batchsched install` makes them known"
            ]
        )
    return service

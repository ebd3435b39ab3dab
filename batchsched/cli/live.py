"""Sessions over a running cluster: the commands list its objects and write nothing."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchsched.cli.session import DecidedSession, decide_with_timings, print_warnings, profile_of
from batchsched.cli.stopwatch import Stopwatch

if TYPE_CHECKING:
    from batchsched.config.schema import Profile
    from batchsched.scheduler.app import SchedulerApp


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The cluster that a command reads, and the profile that it uses.

    Args:
      kubeconfig, context: values of the options `--kubeconfig` and `--context`; None: the defaults of kubectl.
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
    """Decide one session over the current state of a cluster.

    Raises:
      UnusableInput: no cluster can be reached, or the API server does not list a required resource.
      InvalidInput: the configuration cannot be used.
    """
    profile = profile_of(access.config, access.profile)
    return decide_over(asyncio.run(_list_cluster(access, profile)), profile, time.time(), seed)


def what_if_sessions(
    access: ClusterAccess, files: Sequence[Path], seed: int
) -> tuple[DecidedSession, DecidedSession, list[str]]:
    """Decide one session over the cluster, and a second one with the objects of the files added.

    Returns:
      Both sessions, and the keys of the gangs in the files.

    Raises:
      UnusableInput: as `live_session`, or the files contain nothing to schedule.
      InvalidInput: the configuration or an object cannot be used.
    """
    from batchsched.scheduler.what_if import WhatIf

    profile = profile_of(access.config, access.profile)
    service = asyncio.run(_list_cluster(access, profile))
    now = time.time()
    before = decide_over(service, profile, now, seed)
    supposed = WhatIf(service, profile.scheduler_name, now, access.namespace)
    supposed.put(files)
    print_warnings([f"warning: {line}" for line in supposed.warnings])
    return before, decide_over(service, profile, now, seed), supposed.gangs()


def decide_over(service: "SchedulerApp", profile: "Profile", now: float, seed: int) -> DecidedSession:
    """Decide a session over the listed objects."""
    from dataclasses import replace

    from batchsched.scheduler.live_snapshot import set_aside

    snapshot = service.cache.snapshot()
    snapshot = replace(snapshot, set_aside=(*snapshot.set_aside, *set_aside(service)))
    stopwatch = Stopwatch()
    try:
        decision, answers = decide_with_timings(snapshot, profile, now, seed, stopwatch)
    finally:
        stopwatch.close()
    return DecidedSession(snapshot, profile, now, seed, decision, answers, stopwatch.calls)


async def _list_cluster(access: ClusterAccess, profile: "Profile") -> "SchedulerApp":
    from batchsched.api.crd.base import API_VERSION
    from batchsched.kube.clock import SystemClock
    from batchsched.kube.connection import Connection
    from batchsched.kube.credentials import Credentials
    from batchsched.scheduler.live_snapshot import list_cluster

    clock = SystemClock()
    async with Connection(Credentials(access.kubeconfig, access.context), clock) as connection:
        service = await list_cluster(connection, clock, [profile])
    own_kinds = [
        reflector for reflector in service.reflectors if reflector.resource.api_version == API_VERSION
    ]
    unknown = ", ".join(sorted(reflector.resource.plural for reflector in own_kinds if not reflector.lists))
    if unknown:
        print_warnings(
            [
                f"warning: the cluster does not know {unknown} of batchsched; `batchsched install` adds the CRDs"
            ]
        )
    return service

"""Lists a live cluster once, as the cluster state of a scheduler that watches and writes nothing.

Drift checks, explanations and sessions over a live cluster read this state.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from batchsched.api.decision import SetAside
from batchsched.api.snapshot import Snapshot
from batchsched.api.template_claims import with_template_claims_of_hypothetical_pods
from batchsched.config.schema import PodGrouperSettings, Profile
from batchsched.errors import ApiError, CommandError
from batchsched.kube.connection import Connection
from batchsched.kube.reflector import Reflector
from batchsched.ports.cluster import Clock
from batchsched.scheduler.app import SchedulerApp

LIST_TIMEOUT_SECONDS = 120.0
"""Maximum seconds for listing the whole cluster."""
MAX_LIST_FAILURES = 2
"""Number of failed list requests after which a kind is given up."""
CHECK_SECONDS = 0.02
"""Seconds between two checks whether all lists are complete."""


async def create_scheduler_from_cluster(
    connection: Connection, clock: Clock, profiles: Sequence[Profile], grouping: PodGrouperSettings
) -> SchedulerApp:
    """List all objects of a live cluster once, and return a scheduler that has them as its cluster state.

    Nothing is watched or written after that.

    Raises:
      Unreachable: The API server does not answer.
      CommandError: The API server refuses a list, or the lists take too long.
    """
    # This request reports an unreachable server once instead of once for each kind. A client that may not read the
    # version may still be allowed to list.
    with contextlib.suppress(ApiError):
        await connection.request("GET", "/version")
    service = SchedulerApp(connection, clock, profiles, grouping=grouping)
    following = asyncio.create_task(service.follow_cluster(), name="look")
    try:
        async with asyncio.timeout(LIST_TIMEOUT_SECONDS):
            while missing := [reflector for reflector in service.reflectors if not reflector.synced.is_set()]:
                needed = [
                    reflector for reflector in missing if reflector.is_required_for_sessions
                ]  # the rest is given up by itself
                # A refused permission does not come back within seconds, so do not wait for it until the timeout.
                if needed and all(reflector.failures >= MAX_LIST_FAILURES for reflector in needed):
                    raise CommandError(f"the cluster does not list {_names(needed)}")
                await clock.sleep(CHECK_SECONDS)
    except TimeoutError as error:
        raise CommandError(
            f"the cluster did not list {_names(missing)} within {LIST_TIMEOUT_SECONDS:g} s"
        ) from error
    finally:
        following.cancel()
        await asyncio.wait([following])
    return service


def _names(reflectors: Sequence[Reflector]) -> str:
    return ", ".join(sorted({reflector.resource.plural for reflector in reflectors}))


def list_set_aside_objects(service: SchedulerApp, file: str = "") -> tuple[SetAside, ...]:
    """Return all objects that a scheduler ignores because they are invalid, ordered by kind and name.

    Args:
      service: The scheduler.
      file: The file from which its objects were read; "" for those of a live cluster.
    """
    # Two reflectors read StatefulSets, and may report the same problem.
    return tuple(
        dict.fromkeys(
            msgspec.structs.replace(reflector.set_aside_objects[key].why, file=file)
            for reflector in service.reflectors
            for key in sorted(reflector.set_aside_objects)
        )
    )


def snapshot_of_cluster(service: SchedulerApp) -> Snapshot:
    """Return the listed cluster, including the objects that were added to it, as the input of a session."""
    snapshot = with_template_claims_of_hypothetical_pods(service.cache.snapshot())
    return replace(snapshot, set_aside=(*snapshot.set_aside, *list_set_aside_objects(service)))

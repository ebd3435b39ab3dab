"""A single listing of a live cluster, for drift checks, explanations and what-if questions."""

import asyncio
import contextlib
from collections.abc import Sequence

from batchsched.api.decision import SetAside
from batchsched.config.schema import Profile
from batchsched.errors import ApiError, UnusableInput
from batchsched.kube.connection import Connection
from batchsched.kube.reflector import Reflector
from batchsched.ports.clock import Clock
from batchsched.scheduler.app import SchedulerApp

LIST_TIMEOUT_SECONDS = 120.0
"""Maximum seconds for listing the whole cluster."""
MAX_LIST_FAILURES = 2
"""Number of failed list requests after which a kind is given up."""
CHECK_SECONDS = 0.02
"""Seconds between two checks whether all lists are complete."""


async def list_cluster(connection: Connection, clock: Clock, profiles: Sequence[Profile]) -> SchedulerApp:
    """List all kinds once, and return a scheduler with the resulting state. Nothing is watched or written.

    Raises:
      Unreachable: The API server does not answer.
      UnusableInput: The API server refuses a list, or the lists take too long.
    """
    # This request reports an unreachable server once instead of once for each kind. A client that may not read the
    # version may still be allowed to list.
    with contextlib.suppress(ApiError):
        await connection.request("GET", "/version")
    service = SchedulerApp(connection, clock, profiles)
    following = asyncio.create_task(service.follow(), name="look")
    try:
        async with asyncio.timeout(LIST_TIMEOUT_SECONDS):
            while missing := [reflector for reflector in service.reflectors if not reflector.synced.is_set()]:
                needed = [
                    reflector for reflector in missing if reflector.needed
                ]  # the rest is given up by itself
                # A refused permission does not come back within seconds, so do not wait for it until the timeout.
                if needed and all(reflector.failures >= MAX_LIST_FAILURES for reflector in needed):
                    raise UnusableInput(f"the cluster does not list {_names(needed)}")
                await clock.sleep(CHECK_SECONDS)
    except TimeoutError as error:
        raise UnusableInput(
            f"the cluster did not list {_names(missing)} within {LIST_TIMEOUT_SECONDS:g} s"
        ) from error
    finally:
        following.cancel()
        await asyncio.wait([following])
    return service


def _names(reflectors: Sequence[Reflector]) -> str:
    return ", ".join(sorted({reflector.resource.plural for reflector in reflectors}))


def set_aside(service: SchedulerApp) -> tuple[SetAside, ...]:
    """Return the invalid objects that were set aside, ordered by kind and name."""
    return tuple(
        intake.set_aside[key] for intake in service.intakes.values() for key in sorted(intake.set_aside)
    )

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

PATIENCE = 120.0
"""Maximum seconds for listing the whole cluster."""
TRIES = 2
"""Number of failed list requests after which a kind is given up."""
LOOK = 0.02
"""Seconds between two checks whether all lists are complete."""


async def look(connection: Connection, clock: Clock, profiles: Sequence[Profile]) -> SchedulerApp:
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
        async with asyncio.timeout(PATIENCE):
            while silent := [one for one in service.reflectors if not one.synced.is_set()]:
                needed = [one for one in silent if one.needed]  # the rest is given up by itself
                # A refused permission does not come back within seconds, so do not wait for it until the timeout.
                if needed and all(one.failures >= TRIES for one in needed):
                    raise UnusableInput(f"the cluster does not list {_names(needed)}")
                await clock.sleep(LOOK)
    except TimeoutError as error:
        raise UnusableInput(f"the cluster did not list {_names(silent)} within {PATIENCE:g} s") from error
    finally:
        following.cancel()
        await asyncio.wait([following])
    return service


def _names(reflectors: Sequence[Reflector]) -> str:
    return ", ".join(sorted({one.resource.plural for one in reflectors}))


def set_aside(service: SchedulerApp) -> tuple[SetAside, ...]:
    """Return the invalid objects that were set aside, ordered by kind and name."""
    return tuple(
        intake.set_aside[key] for intake in service.intakes.values() for key in sorted(intake.set_aside)
    )

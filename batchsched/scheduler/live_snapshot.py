"""A cluster as it is now, looked at once: for comparison, for an explanation, for a question of the kind what if."""

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
"""Seconds that listing a whole cluster may take."""
TRIES = 2
"""Failures of a list after which no other is waited for."""
LOOK = 0.02
"""Seconds between two looks at whether all is there."""


async def look(connection: Connection, clock: Clock, profiles: Sequence[Profile]) -> SchedulerApp:
    """List everything, and return what a scheduler makes of it; nothing is followed, and nothing written.

    Raises:
      Unreachable: nobody answers.
      UnusableInput: the cluster does not say what is there.
    """
    # Said once, and not for every kind; who may not ask for the version may still list.
    with contextlib.suppress(ApiError):
        await connection.request("GET", "/version")
    service = SchedulerApp(connection, clock, profiles)
    following = asyncio.create_task(service.follow(), name="look")
    try:
        async with asyncio.timeout(PATIENCE):
            while silent := [one for one in service.reflectors if not one.synced.is_set()]:
                needed = [one for one in silent if one.needed]  # the rest is given up by itself
                # Whoever may not list something will not be let a moment later: nobody is to wait for that.
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
    """Return the objects that cannot be used, by kind and name."""
    return tuple(
        intake.set_aside[key] for intake in service.intakes.values() for key in sorted(intake.set_aside)
    )

"""A cluster as it is now, looked at once: for comparison, for an explanation, for a question of the kind what if."""

import asyncio
from collections.abc import Sequence

from batchsched.errors import UnusableInput
from batchsched.kube.connection import Connection
from batchsched.model.decision import SetAside
from batchsched.ports.clock import Clock
from batchsched.service.wiring import Service
from batchsched.settings.schema import Profile

PATIENCE = 120.0
"""Seconds that listing a whole cluster may take."""


async def look(connection: Connection, clock: Clock, profiles: Sequence[Profile]) -> Service:
    """List everything, and return what a scheduler makes of it; nothing is followed, and nothing written.

    Raises:
      UnusableInput: the cluster does not say what is there.
    """
    service = Service(connection, clock, profiles)
    following = asyncio.create_task(service.follow(), name="look")
    try:
        async with asyncio.timeout(PATIENCE):
            await service.synced()
    except TimeoutError as error:
        silent = ", ".join(one.resource.plural for one in service.reflectors if not one.synced.is_set())
        raise UnusableInput(f"the cluster did not list {silent} within {PATIENCE:g} s") from error
    finally:
        following.cancel()
        await asyncio.wait([following])
    return service


def set_aside(service: Service) -> tuple[SetAside, ...]:
    """Return the objects that cannot be used, by kind and name."""
    return tuple(
        intake.set_aside[key] for intake in service.intakes.values() for key in sorted(intake.set_aside)
    )

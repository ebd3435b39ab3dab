"""What queues use while somebody else leads: so the past of queues does not end with a leader.

A replica that waits follows the cluster as the leader does. It looks once a minute at what each queue holds, and when
it leads itself its planners go on from there. Nothing of it is written anywhere: what no replica saw is not known.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from batchsched.cache.cache import Cache
from batchsched.model.snapshot import Snapshot
from batchsched.ordering.tree import QueueTree
from batchsched.ordering.usage import Past
from batchsched.ports.clock import Clock
from batchsched.service.gauges import usage
from batchsched.session.entitled import QueuePolicies
from batchsched.settings.schema import Profile

_LOG: Final = logging.getLogger(__name__)
EVERY: Final = 60.0
"""Seconds between two looks: what is used for a shorter time may be missed."""


class Chronicle:
    """Remembers what queues used, for each profile.

    Args:
      cache: what is known of the cluster.
      clock: tells time.
      profiles: returns those in force.
      leads: tells whether we lead: planners remember for themselves then.
    """

    def __init__(
        self, cache: Cache, clock: Clock, profiles: Callable[[], Sequence[Profile]], leads: Callable[[], bool]
    ) -> None:
        self._cache = cache
        self._clock = clock
        self._profiles = profiles
        self._leads = leads
        self._pasts: dict[str, Past] = {}

    def past(self, profile: Profile) -> Past:
        """Return what the queues of a profile used so far."""
        half_life = profile.usage_half_life_seconds
        return self._pasts.get(profile.scheduler_name, Past({}, half_life)).with_half_life(half_life)

    async def run(self) -> None:
        """Look now and then until we lead."""
        while not self._leads():
            await self._clock.sleep(EVERY)
            await self.look()

    async def look(self) -> None:
        """Take in what is used now, where a policy asks for it."""
        snapshot, now = self._cache.snapshot(), self._clock.now()
        tree = QueueTree(snapshot.queues)
        for profile in self._profiles():
            policies = QueuePolicies.between(tree, profile)
            if policies is not None and policies.remember:
                held = await asyncio.to_thread(_held, snapshot, profile.scheduler_name)
                past = self.past(profile)
                past.advance(now, held)
                past.hold(held)
                self._pasts[profile.scheduler_name] = past


def _held(snapshot: Snapshot, scheduler_name: str) -> dict[str, dict[str, int]]:
    """Return what the bound pods of each queue request."""
    found: dict[str, dict[str, int]] = {}
    for (queue, resource), (allocated, _) in usage(snapshot, frozenset({scheduler_name})).items():
        if allocated:
            found.setdefault(queue, {})[resource] = allocated
    return found


def ended(running: asyncio.Task[None]) -> None:
    """Complain when nobody looks any more; whoever leads next knows less of the past."""
    if not running.cancelled() and running.exception() is not None:
        _LOG.error("what queues use is remembered no more", exc_info=running.exception())

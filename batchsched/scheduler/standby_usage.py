"""Records the usage history of queues while another replica is the leader.

A standby replica follows the cluster as the leader does. Once a minute it samples what each queue uses; if it becomes
the leader, its sessions continue with this history. The history is kept in memory only, so usage from before the start
of the replica is missing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from batchsched.config.schema import Profile
from batchsched.ports.cluster import Clock
from batchsched.queues.tree import QueueTree
from batchsched.queues.usage_history import UsageHistory
from batchsched.session.gangs.order import QueueSharingPolicies
from batchsched.state.cluster_state import ClusterState

_LOG: Final = logging.getLogger(__name__)
SAMPLE_SECONDS: Final = 60.0
"""Seconds between two samples. Usage that starts and ends between two samples is missed."""


class StandbyUsageRecorder:
    """A recorder that samples the usage of queues for each profile, until this replica becomes the leader.

    Args:
      cache: The cluster state.
      clock: The clock.
      profiles: Returns the profiles in force.
      leads: Returns whether this replica leads; from then on, its sessions record the usage.
    """

    def __init__(
        self,
        cache: ClusterState,
        clock: Clock,
        profiles: Callable[[], Sequence[Profile]],
        leads: Callable[[], bool],
    ) -> None:
        self._cache = cache
        self._clock = clock
        self._profiles = profiles
        self._leads = leads
        self._histories: dict[str, UsageHistory] = {}

    def usage_history(self, profile: Profile) -> UsageHistory:
        """Return the recorded usage history of all queues for a profile, decayed with the half-life of the profile."""
        half_life = profile.usage_half_life_seconds
        history = self._histories.get(profile.scheduler_name, UsageHistory({}, half_life))
        return history.with_half_life(half_life)

    async def run(self) -> None:
        """Record the usage of queues once a minute until this replica leads."""
        while not self._leads():
            await self._clock.sleep(SAMPLE_SECONDS)
            self.record_usage()

    def record_usage(self) -> None:
        """Record the current usage of all queues for each profile with a policy that reads past usage."""
        now = self._clock.now()
        tree = QueueTree(self._cache.snapshot().queues)
        allocated = {
            queue: dict(amounts) for queue, amounts in self._cache.queue_usage.allocated_by_queue.items()
        }
        for profile in self._profiles():
            policies = QueueSharingPolicies.from_tree(tree, profile.queue_policy)
            if policies is not None and policies.reads_past_usage:
                history = self.usage_history(profile)
                history.advance(now, allocated)
                history.set_current_usage(allocated)
                self._histories[profile.scheduler_name] = history


def log_sampling_failure(running: asyncio.Task[None]) -> None:
    """Log an error if the task that samples queue usage failed.

    If this replica leads later, it starts with an incomplete history.
    """
    if not running.cancelled() and running.exception() is not None:
        _LOG.error("the usage of queues is no longer sampled", exc_info=running.exception())

"""What queues use while somebody else leads: so the past of queues does not end with a leader.

A replica that waits follows the cluster as the leader does. It looks once a minute at what each queue holds, and when
it leads itself its planners go on from there. Nothing of it is written anywhere: what no replica saw is not known.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from batchsched.api.core.pod import POD_GROUP_LABEL, QUEUE_LABEL, Pod
from batchsched.api.core.requests import requests
from batchsched.api.crd.podgroup import DEFAULT_QUEUE
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.clock import Clock
from batchsched.queues.tree import QueueTree
from batchsched.queues.usage_history import UsageHistory
from batchsched.session.gangs.order import QueuePolicies
from batchsched.state.cluster_state import ClusterState

_LOG: Final = logging.getLogger(__name__)
Usage = Mapping[tuple[str, str], tuple[int, int]]
"""(queue, resource) → what bound and what waiting pods request, in base units."""
EVERY: Final = 60.0
"""Seconds between two looks: what is used for a shorter time may be missed."""


class StandbyUsage:
    """Remembers what queues used, for each profile.

    Args:
      cache: what is known of the cluster.
      clock: tells time.
      profiles: returns those in force.
      leads: tells whether we lead: planners remember for themselves then.
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
        self._pasts: dict[str, UsageHistory] = {}

    def past(self, profile: Profile) -> UsageHistory:
        """Return what the queues of a profile used so far."""
        half_life = profile.usage_half_life_seconds
        return self._pasts.get(profile.scheduler_name, UsageHistory({}, half_life)).with_half_life(half_life)

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


def usage(snapshot: Snapshot, scheduler_names: frozenset[str]) -> Usage:
    """Add up what pods request by queue. It may run in another thread.

    Pods without a PodGroup count for the queue that their label names; those of other schedulers do not count.
    """
    queue_of = {group.key: group.spec.queue for group in snapshot.pod_groups}
    known: dict[int, dict[str, int]] = {}
    found: dict[tuple[str, str], list[int]] = {}
    for pod in snapshot.pods:
        if pod.spec.scheduler_name not in scheduler_names:
            continue
        queue = _queue(pod, queue_of)
        wants = known.get(id(pod.spec))
        if wants is None:
            wants = known[id(pod.spec)] = {"pods": 1, **requests(pod)}
        for resource, amount in wants.items():
            sums = found.setdefault((queue, resource), [0, 0])
            sums[0 if pod.node else 1] += amount
    return {key: (allocated, pending) for key, (allocated, pending) in found.items()}


def _queue(pod: Pod, queue_of: Mapping[str, str]) -> str:
    labels = pod.labels
    group = labels.get(POD_GROUP_LABEL)
    if group:
        return queue_of.get(f"{pod.namespace}/{group}", DEFAULT_QUEUE)
    return labels.get(QUEUE_LABEL, DEFAULT_QUEUE)

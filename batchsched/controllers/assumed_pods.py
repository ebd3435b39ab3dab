"""Pods whose binding the API server took, and that no watch has confirmed since: read before they are doubted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from batchsched.errors import ApiError, BatchschedError
from batchsched.state.assumed_pods import AssumedPod
from batchsched.state.cluster_state import PODS, ClusterState

_LOG: Final = logging.getLogger(__name__)
_GONE: Final = 404


class AssumedPodExpiry:
    """Looks after what was never confirmed; a `loop.Chore`.

    Args:
      cache: holds the assumed pods.
      read: reads the pod `namespace/name`.
      seen: takes in what was read.
    """

    def __init__(
        self, cache: ClusterState, read: Callable[[str], Awaitable[bytes]], seen: Callable[[bytes], None]
    ) -> None:
        self._cache = cache
        self._read = read
        self._seen = seen
        self._asking: dict[str, asyncio.Task[None]] = {}

    def turn(self, now: float) -> None:
        """Begin to look at the pods that are overdue."""
        for one in self._cache.overdue(now):
            if one.pod not in self._asking:
                self._asking[one.pod] = asyncio.create_task(self._look(one))

    async def _look(self, one: AssumedPod) -> None:
        try:
            self._seen(await self._read(one.pod))
        except BatchschedError as error:
            if not isinstance(error, ApiError) or error.status != _GONE:
                return  # nobody knows: it counts as bound until somebody answers
            pod = self._cache.get(PODS, one.pod)
            if pod is not None:
                self._cache.remove(pod)
        finally:
            del self._asking[one.pod]
        # What was read with its node is confirmed by now, and this changes nothing.
        if self._cache.forget(one.pod, one.assumption.node):
            _LOG.warning("%s is not bound to %s, though its binding was taken", one.pod, one.assumption.node)

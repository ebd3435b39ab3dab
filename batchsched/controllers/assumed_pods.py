"""The expiry of assumed pods: an overdue pod is read from the API server before it becomes pending."""

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
    """Verifies overdue assumed pods; a `loop.Chore`.

    Args:
      cache: The state of the cluster.
      read: Reads the pod `namespace/name` from the API server.
      seen: Handles the pod that was read.
    """

    def __init__(
        self, cache: ClusterState, read: Callable[[str], Awaitable[bytes]], seen: Callable[[bytes], None]
    ) -> None:
        self._cache = cache
        self._read = read
        self._seen = seen
        self._asking: dict[str, asyncio.Task[None]] = {}

    def turn(self, now: float) -> None:
        """Start to read the pods that are overdue."""
        for assumed in self._cache.overdue(now):
            if assumed.pod not in self._asking:
                self._asking[assumed.pod] = asyncio.create_task(self._look(assumed))

    async def _look(self, assumed: AssumedPod) -> None:
        try:
            self._seen(await self._read(assumed.pod))
        except BatchschedError as error:
            if not isinstance(error, ApiError) or error.status != _GONE:
                return  # the state of the pod is unknown, so it stays assumed
            pod = self._cache.get(PODS, assumed.pod)
            if pod is not None:
                self._cache.remove(pod)
        finally:
            del self._asking[assumed.pod]
        # If the pod was read with a node, `seen` has confirmed it, and `forget` changes nothing.
        if self._cache.forget(assumed.pod, assumed.assumption.node):
            _LOG.warning(
                "%s is not bound to %s, though its binding was taken", assumed.pod, assumed.assumption.node
            )

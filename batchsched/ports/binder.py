"""What the binding cycle asks of the world: the few writes that make a decision true, and to wait for them.

A write that fails raises; what is raised ends the pod's binding cycle, and the pod is unreserved at every plugin.
"""

from collections.abc import Sequence
from typing import Protocol

from batchsched.api.binding import Binding, NodeSelection, VolumeBinding


class Binder(Protocol):
    """Writes what binds a pod. All writes are idempotent: what stands already is a success."""

    async def bind(self, binding: Binding) -> None:
        """Bind a pod to its node."""
        ...

    async def bind_volume(self, binding: VolumeBinding) -> None:
        """Give a volume to a claim."""
        ...

    async def select_node(self, selection: NodeSelection) -> None:
        """Say from which node a claim's volume is to be reached."""
        ...

    async def claims_bound(self, claims: Sequence[str], timeout_seconds: float) -> bool:
        """Wait until all claims, `namespace/name`, have their volumes; False when that takes too long."""
        ...

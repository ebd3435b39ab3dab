"""The writes of a binding cycle: pods to nodes, volumes to claims.

A failed write raises an exception. It ends the binding cycle of the pod, and Unreserve of every plugin is called.
"""

from collections.abc import Sequence
from typing import Protocol

from batchsched.api.binding import Binding, NodeSelection, VolumeBinding


class Binder(Protocol):
    """Writes bindings. All writes are idempotent: a value that is already set is a success."""

    async def bind(self, binding: Binding) -> None:
        """Bind a pod to its node."""
        ...

    async def bind_volume(self, binding: VolumeBinding) -> None:
        """Bind a PersistentVolume to its claim."""
        ...

    async def select_node(self, selection: NodeSelection) -> None:
        """Write the selected node of a claim, so that its volume is provisioned within reach of that node."""
        ...

    async def claims_bound(self, claims: Sequence[str], timeout_seconds: float) -> bool:
        """Wait until all claims are bound. Return False if the timeout expires first.

        Args:
          claims: the claims by `namespace/name`.
          timeout_seconds: the longest time to wait.
        """
        ...

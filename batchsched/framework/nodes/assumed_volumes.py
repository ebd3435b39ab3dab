"""Volumes and claims that pods will use after Reserve, before the API server knows it.

A claim is bound, or its volume provisioned, in the binding cycle. Until then other pods must not use the volume, and
the claim counts as assigned to a node.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class AssumedClaim:
    """Volumes and claims that one pod reserved.

    Args:
      volumes: pairs of a volume and the claim, `namespace/name`, to which it will be bound.
      claims: pairs of a claim and the node from which its volume will be provisioned.
    """

    volumes: tuple[tuple[str, str], ...] = ()
    claims: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class AssumedVolumes:
    """Assumed volumes and claims by pod."""

    claim_of: dict[str, str] = field(default_factory=dict)
    """Volume → the claim, `namespace/name`, for which it is assumed."""
    node_of: dict[str, str] = field(default_factory=dict)
    """Claim → the node from which its volume will be provisioned."""
    _by_pod: dict[str, AssumedClaim] = field(default_factory=dict)

    def assume(self, pod: str, promise: AssumedClaim) -> None:
        """Store what a pod, `namespace/name`, reserved."""
        self._by_pod[pod] = promise
        self.claim_of.update(promise.volumes)
        self.node_of.update(promise.claims)

    def take_over(self, before: Self, is_reserved: Callable[[str], bool]) -> None:
        """Copy the assumed volumes of those pods, `namespace/name`, that are still reserved."""
        for pod, promise in before._by_pod.items():
            if is_reserved(pod):
                self.assume(pod, promise)

    def of(self, pod: str) -> AssumedClaim:
        """Return what a pod, `namespace/name`, reserved; an empty value if nothing."""
        return self._by_pod.get(pod, AssumedClaim())

    def revert(self, pod: str) -> None:
        """Delete what a pod reserved, if anything."""
        promise = self._by_pod.pop(pod, None)
        if promise is None:
            return
        for volume, _ in promise.volumes:
            del self.claim_of[volume]
        for claim, _ in promise.claims:
            del self.node_of[claim]

"""What pods that passed Reserve will make of their claims, before anybody has written it down.

Kubernetes binds a claim, or provisions a volume for it, after the scheduling cycle. Until then the next pod must see
that the volume is promised, and that the claim has its node.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class AssumedClaim:
    """What one pod's reservation promised.

    Args:
      volumes: (volume, claim) pairs: the volume is to be bound to the claim, `namespace/name`.
      claims: (claim, node) pairs: a volume is to be provisioned for the claim from the node.
    """

    volumes: tuple[tuple[str, str], ...] = ()
    claims: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class AssumedVolumes:
    """The promises that stand, by pod, and what they say of volumes and claims."""

    claim_of: dict[str, str] = field(default_factory=dict)
    """The claim, `namespace/name`, that a volume is promised to."""
    node_of: dict[str, str] = field(default_factory=dict)
    """The node from which a claim's volume is provisioned."""
    _by_pod: dict[str, AssumedClaim] = field(default_factory=dict)

    def assume(self, pod: str, promise: AssumedClaim) -> None:
        """Take note of what a pod, `namespace/name`, was promised."""
        self._by_pod[pod] = promise
        self.claim_of.update(promise.volumes)
        self.node_of.update(promise.claims)

    def take_over(self, before: Self, stands: Callable[[str], bool]) -> None:
        """Take note of earlier promises of those pods, `namespace/name`, whose reservation stands."""
        for pod, promise in before._by_pod.items():
            if stands(pod):
                self.assume(pod, promise)

    def of(self, pod: str) -> AssumedClaim:
        """Return what a pod, `namespace/name`, was promised; nothing where there is no promise."""
        return self._by_pod.get(pod, AssumedClaim())

    def revert(self, pod: str) -> None:
        """Take the pod's promises back; nothing happens where there are none."""
        promise = self._by_pod.pop(pod, None)
        if promise is None:
            return
        for volume, _ in promise.volumes:
            del self.claim_of[volume]
        for claim, _ in promise.claims:
            del self.node_of[claim]

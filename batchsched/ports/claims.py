"""Writes of ResourceClaims: reservations for pods, with the devices that a session chose, and their release."""

from dataclasses import dataclass
from typing import Protocol

from batchsched.api.core.device import AllocationResult


@dataclass(frozen=True, slots=True)
class ClaimReservation:
    """The reservation of a ResourceClaim for a pod, as it is written to `status.reservedFor`.

    Args:
      namespace, claim, uid: the claim.
      pod, pod_uid: the pod, of the same namespace.
      allocation: the devices to allocate if the claim has none yet; None if the session found the claim allocated.
    """

    namespace: str
    claim: str
    uid: str
    pod: str
    pod_uid: str
    allocation: AllocationResult | None = None

    @property
    def claim_key(self) -> str:
        """The `namespace/name` of the claim."""
        return f"{self.namespace}/{self.claim}"


@dataclass(frozen=True, slots=True)
class ClaimRelease:
    """The end of reservations of a ResourceClaim.

    Args:
      namespace, claim, uid: the claim.
      pod_uids: the pods that no longer use the claim.
      deallocates: free the devices of the claim if no other pod uses it.
    """

    namespace: str
    claim: str
    uid: str
    pod_uids: frozenset[str]
    deallocates: bool

    @property
    def claim_key(self) -> str:
        """The `namespace/name` of the claim."""
        return f"{self.namespace}/{self.claim}"


class ClaimBinder(Protocol):
    """Writes reservations of ResourceClaims. All writes are idempotent: a value that is already set is a success."""

    async def reserve_claim(self, reservation: ClaimReservation) -> None:
        """Reserve a claim for a pod, and allocate its devices if it has none yet."""
        ...

    async def release_claim(self, release: ClaimRelease) -> None:
        """Remove pods from a claim, and free its devices if no pod uses them any more. A deleted claim is no error."""
        ...

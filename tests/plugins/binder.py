"""A binder that records its writes, for tests of the binding cycle."""

from collections.abc import Sequence

from batchsched.ports.claims import (
    ExtendedResourceClaimRelease,
    ExtendedResourceClaimReservation,
    ResourceClaimRelease,
    ResourceClaimReservation,
)
from batchsched.ports.cluster import Binding, PersistentVolumeBinding, VolumeClaimSelectedNode

Write = (
    Binding
    | PersistentVolumeBinding
    | VolumeClaimSelectedNode
    | ResourceClaimReservation
    | ResourceClaimRelease
    | ExtendedResourceClaimReservation
    | ExtendedResourceClaimRelease
)


class Written:
    """Takes every write, and answers that claims are bound, or not in time; or fails at every write."""

    def __init__(self, *, bound: bool = True, fault: Exception | None = None) -> None:
        self.writes: list[Write] = []
        self.awaited: list[tuple[tuple[str, ...], float]] = []
        self._bound = bound
        self._fault = fault

    def _take(self, write: Write) -> None:
        if self._fault is not None:
            raise self._fault
        self.writes.append(write)

    async def bind(self, binding: Binding) -> None:
        self._take(binding)

    async def bind_volume(self, binding: PersistentVolumeBinding) -> None:
        self._take(binding)

    async def write_selected_node(self, selection: VolumeClaimSelectedNode) -> None:
        self._take(selection)

    @property
    def resource_claim_binder(self) -> "Written":
        return self

    async def reserve_resource_claim(self, reservation: ResourceClaimReservation) -> None:
        self._take(reservation)

    async def reserve_extended_resource_claim(self, reservation: ExtendedResourceClaimReservation) -> None:
        self._take(reservation)

    async def delete_extended_resource_claim(self, deletion: ExtendedResourceClaimRelease) -> None:
        self._take(deletion)

    async def wait_for_prepared_devices(self, claims: Sequence[str], timeout_seconds: float) -> bool:
        self.awaited.append((tuple(claims), timeout_seconds))
        return self._bound

    async def release_resource_claim(self, release: ResourceClaimRelease) -> None:
        self._take(release)

    async def wait_for_bound_volume_claims(
        self,
        claims: Sequence[str],
        timeout_seconds: float,
        selections: Sequence[VolumeClaimSelectedNode] = (),
    ) -> bool:
        self.awaited.append((tuple(claims), timeout_seconds))
        return self._bound

"""The ledger of devices: which devices are allocated to ResourceClaims, or reserved for placed pods.

Claims of the snapshot count by their `status.allocation`. A pod that passes Reserve assumes allocations for its claims;
they count until the pod is rolled back, or until the snapshot shows them. Pods that share a claim share its assumed
allocation.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Final, NamedTuple, Self

import msgspec

from batchsched.api.core.device import (
    AllocationResult,
    Amount,
    Amounts,
    ResourceClaim,
    ResourceClaimStatus,
)
from batchsched.api.core.pod import Pod
from batchsched.api.core.quantity import parse_quantity
from batchsched.api.pod_devices import PodDevices, ReservedClaimDevices, ReservedPodDevices
from batchsched.errors import InvalidQuantity

ZERO = Decimal(0)
EVERYTHING: Final = Decimal(2**63)
"""More than any capacity."""


class DeviceKey(NamedTuple):
    """The identity of a device: its driver, its pool and its name."""

    driver: str
    pool: str
    device: str


class DeviceUse(msgspec.Struct):
    """The current use of one device: the number of its allocations, and the capacity that they consume.

    Args:
      exclusive: number of claims that have the device for themselves.
      shares: number of allocations of a device that allows several.
      consumed: amount of each capacity that these allocations consume.
    """

    exclusive: int = 0
    shares: int = 0
    consumed: dict[str, Decimal] = msgspec.field(default_factory=dict)

    @property
    def is_free(self) -> bool:
        """True if the device has no allocation, not even one that is reserved or held for a pod."""
        return not self.exclusive and not self.shares

    def add_or_remove_allocation(self, consumed: Amounts | None, *, shared: bool, sign: int) -> None:
        """Count one more allocation of the device, or one fewer if `sign` is -1."""
        if not shared:
            self.exclusive += sign
            return
        self.shares += sign
        for name, amount in (consumed or {}).items():
            self.consumed[name] = self.consumed.get(name, ZERO) + sign * _consumed(amount)
            if not self.consumed[name]:
                del self.consumed[name]


def _consumed(amount: Amount) -> Decimal:
    """Return a consumed amount; one of more than 63 bits leaves nothing of any capacity."""
    try:
        return parse_quantity(amount)
    except InvalidQuantity:
        return EVERYTHING


NO_USE = DeviceUse()
MAX_KEPT_CHANGES: Final = 2**16
"""Changes of the use of devices that a ledger keeps; a reader that is further behind reads all uses again."""
PodTest = Callable[[str, str], bool]
"""A test of a pod, which is given by its `namespace/name` and its UID."""


def no_pod_is_bound(_pod: str, _uid: str) -> bool:
    """Return False for every pod; this function is the default if it is unknown which pods are bound."""
    return False


@dataclass(frozen=True, slots=True)
class HeldAllocation:
    """The devices that are held for one ResourceClaim because nominated pods use the claim.

    Args:
      allocation: the devices.
      pods: the `namespace/name` of the pods.
    """

    allocation: AllocationResult
    pods: set[str]


class DeviceLedger:
    """The record of all devices that are in use: allocated to ResourceClaims, or reserved or held for pods.

    Devices are reserved for pods that a session has placed, and held for nominated pods.

    Args:
      claims: the claims of the snapshot by `namespace/name`.
      reserved: what pods of earlier sessions reserved.
    """

    def __init__(
        self, claims: Mapping[str, ResourceClaim], reserved: Iterable[ReservedPodDevices] = ()
    ) -> None:
        self.claims = dict(claims)
        self.uses: dict[DeviceKey, DeviceUse] = {}
        self._changed: list[DeviceKey] = []
        """The devices of which the use changed last, in the order of the changes."""
        self._dropped_changes = 0
        """The number of earlier changes, which are not in `_changed`."""
        self._by_pod: dict[str, PodDevices] = {}
        self._assumed: dict[str, AllocationResult] = {}
        self._pods_of_claim: dict[str, set[str]] = {}
        self._created_keys: dict[str, str] = {}
        """Claim that batchsched creates for extended resources → the key under which a pod has reserved it."""
        self._reserved_elsewhere: dict[str, PodDevices] = {}
        """What pods in `_by_pod` reserved that other profiles placed, by pod, as their profiles keep it."""
        self._withdrawn: dict[str, PodDevices] = {}
        """What withdrawn pods reserved during sessions, by pod."""
        self._withdrawn_consumers: set[str] = set()
        """UIDs of consumers that do not count."""
        self._released: dict[str, ResourceClaim] = {}
        """The claims without another consumer, as they are in the snapshot; `claims` has them without allocation."""
        self._held: dict[str, HeldAllocation] = {}
        """Allocations that are kept for nominated pods, by claim."""
        for claim in claims.values():
            if claim.status.allocation is not None:
                self._count(claim.status.allocation, 1)
        for reservation in reserved:
            self.reserve_devices(reservation.pod, reservation.devices)

    def use_of(self, device: DeviceKey) -> DeviceUse:
        """Return how many allocations a device has, and how much of its capacity they consume."""
        return self.uses.get(device, NO_USE)

    def reserved_allocation_of_claim(self, claim: str) -> AllocationResult | None:
        """Return the devices that are reserved for a ResourceClaim, but not allocated yet; None if there are none."""
        return self._assumed.get(claim)

    def count_pods_with_reserved_claim(self, claim: str) -> int:
        """Return the number of pods for which sessions have reserved this ResourceClaim."""
        return len(self._pods_of_claim.get(claim, ()))

    def uids_of_pods_with_reserved_claim(self, claim: str) -> set[str]:
        """Return the UIDs of the pods for which sessions have reserved this ResourceClaim.

        A pod without UID is stated as `namespace/name`.
        """
        return {self._by_pod[pod].uid or pod for pod in self._pods_of_claim.get(claim, ())}

    def devices_reserved_for_pod(self, pod: str, uid: str = "") -> PodDevices | None:
        """Return the devices that are reserved for the pod `namespace/name`; None if there are none."""
        return self._by_pod.get(self._holder(pod, uid)) if self._by_pod else None

    def list_reserved_devices(self) -> tuple[ReservedPodDevices, ...]:
        """Return the devices that are reserved for each pod, except devices of allocated ResourceClaims.

        The result is sorted by the names of the pods.
        """
        return tuple(
            ReservedPodDevices(pod, self._without_allocated_claims(devices))
            for pod, devices in sorted(self._by_pod.items())
        )

    def _without_allocated_claims(self, devices: PodDevices) -> PodDevices:
        open_allocations = tuple(
            allocated for allocated in devices.allocations if not self._is_allocated(allocated.claim, devices)
        )
        return msgspec.structs.replace(devices, allocations=open_allocations)

    def has_reserved_devices_for_any_pod(self, pods: Iterable[Pod]) -> bool:
        """Return whether devices are reserved for at least one of the given pods."""
        return bool(self._by_pod) and any(
            self.devices_reserved_for_pod(pod.key, pod.metadata.uid) is not None for pod in pods
        )

    def copy_for_pods(self, pods: Iterable[Pod]) -> Self:
        """Return a new ledger that contains only the devices that are reserved for the given pods.

        Later sessions do not change the new ledger.
        """
        excerpt = type(self)({})
        for pod in pods:
            devices = self.devices_reserved_for_pod(pod.key, pod.metadata.uid)
            if devices is not None:
                excerpt.claims.update({key: self.claims[key] for key in devices.claims if key in self.claims})
                excerpt.reserve_devices(pod.key, devices)
        return excerpt

    @property
    def change_count(self) -> int:
        """The number of changes in this ledger so far: allocations and releases of devices."""
        return self._dropped_changes + len(self._changed)

    def devices_changed_since(self, change_count: int) -> Sequence[DeviceKey] | None:
        """Return the devices that were allocated or released since `change_count` had the given value.

        The result is None if the ledger no longer stores all these changes.
        """
        position = change_count - self._dropped_changes
        return None if position < 0 else self._changed[position:]

    def _holder(self, pod: str, uid: str) -> str:
        """Return the key under which devices are reserved for the pod with this UID, or for its newest namesake."""
        devices = self._by_pod.get(pod)
        is_newest = devices is not None and (not uid or not devices.uid or devices.uid == uid)
        return pod if is_newest else f"{pod}@{uid}"

    def _keep_apart(self, pod: str, uid: str) -> None:
        """Let a deleted pod keep its devices until its binding ends, although a new pod has its name."""
        before = self._by_pod.get(pod)
        if before is None or not before.uid or not uid or before.uid == uid:
            return
        holder = f"{pod}@{before.uid}"
        self._by_pod[holder] = self._by_pod.pop(pod)
        for claim in before.claims:
            self._pods_of_claim[claim].discard(pod)
            self._pods_of_claim[claim].add(holder)

    def reserve_devices(self, pod: str, devices: PodDevices) -> None:
        """Reserve devices for the pod `namespace/name`; they count as used from now on."""
        self._keep_apart(pod, devices.uid)
        self._by_pod[pod] = devices
        if devices.created is not None:
            self._created_keys[devices.created.claim.key] = devices.created.key
        for allocated in devices.allocations:
            if allocated.claim not in self._assumed and not self._is_allocated(allocated.claim, devices):
                self._assumed[allocated.claim] = allocated.allocation
                self._count(allocated.allocation, 1)
        for claim in devices.claims:
            self._pods_of_claim.setdefault(claim, set()).add(pod)

    def release_reserved_devices(self, pod: str, uid: str = "") -> None:
        """Release the devices that are reserved for a pod, except those of claims that other pods share."""
        pod = self._holder(pod, uid)
        devices = self._by_pod.pop(pod, None)
        if devices is None:
            return
        if devices.created is not None:
            self._created_keys.pop(devices.created.claim.key, None)
        for claim in devices.claims:
            pods = self._pods_of_claim[claim]
            pods.discard(pod)
            if pods:
                continue
            del self._pods_of_claim[claim]
            allocation = self._assumed.pop(claim, None)
            if allocation is not None:
                self._count(allocation, -1)

    def find_extended_resource_claim(self, pod: Pod) -> ResourceClaim | None:
        """Return the ResourceClaim for extended resources that an earlier attempt to bind the pod created."""
        key = self._extended_resource_claims.get((pod.metadata.name, pod.metadata.uid))
        return self.claims[key] if key is not None else None

    @cached_property
    def _extended_resource_claims(self) -> dict[tuple[str, str], str]:
        """The claims for extended resources by name and UID of their pod, so that no pod searches all claims."""
        return {
            pod: key
            for key, claim in self.claims.items()
            if (pod := claim.extended_resource_pod_name_and_uid) is not None
        }

    # Changes of the cluster

    def update_claims(self, changed: Iterable[ResourceClaim], removed: Iterable[str]) -> bool:
        """Replace ResourceClaims by their current versions. Call this method between two sessions only.

        What pods have reserved counts until their claims have an allocation.

        Args:
          changed: the claims that are new or changed.
          removed: `namespace/name` of claims that were deleted.

        Returns:
          Whether the use of a device changed. It does not if a claim got the devices that pods had reserved for it.
        """
        for index in ("_claims_of_consumer", "_extended_resource_claims"):
            self.__dict__.pop(index, None)
        change_count = self.change_count
        for claim in changed:
            self._replace_claim(claim.key, claim)
        for key in removed:
            self._replace_claim(key, None)
        return self.change_count != change_count

    def _replace_claim(self, key: str, claim: ResourceClaim | None) -> None:
        before = self.claims.pop(key, None)
        if claim is not None:
            self.claims[key] = claim
        reserved_key = self._created_keys.get(key, key)
        reserved = self._assumed.pop(reserved_key, None)
        # A claim counts once: by its status, or else by what pods have reserved for it.
        previous = (before.status.allocation if before is not None else None) or reserved
        present = claim.status.allocation if claim is not None else None
        if present is None:
            present = reserved or self._find_reserved_allocation(reserved_key)
            if present is not None:
                self._assumed[reserved_key] = present
        if previous is not None and present is not None and _are_equal_uses(previous, present):
            return
        if previous is not None:
            self._count(previous, -1)
        if present is not None:
            self._count(present, 1)

    def _find_reserved_allocation(self, claim: str) -> AllocationResult | None:
        """Return the allocation of a claim that a pod planned, if the pod is still being bound."""
        return next(
            (
                allocated.allocation
                for pod in sorted(self._pods_of_claim.get(claim, ()))
                for allocated in self._by_pod[pod].allocations
                if allocated.claim == claim
            ),
            None,
        )

    def release_reservations_of_pods_not_being_bound(
        self, is_reserved: PodTest, is_bound: PodTest = no_pod_is_bound
    ) -> None:
        """Release the reserved devices of all pods that are no longer being bound.

        A bound pod keeps its devices until its claims have them: the API server may show the pod first.

        Args:
          is_reserved: as of `copy_reservations_of_pods_being_bound`.
          is_bound: as of `copy_reservations_of_pods_being_bound`.
        """
        for pod, devices in list(self._own_reservations()):
            if not self._is_needed(pod, devices, is_reserved, is_bound):
                self.release_reserved_devices(pod)

    # Pods that may leave

    @cached_property
    def _claims_of_consumer(self) -> dict[str, list[str]]:
        """The allocated claims of the snapshot that are reserved for each consumer, by its UID."""
        claims_of_consumer: dict[str, list[str]] = {}
        for key, claim in self.claims.items():
            for consumer in claim.status.reserved_for or () if claim.status.allocation is not None else ():
                claims_of_consumer.setdefault(consumer.uid, []).append(key)
        return claims_of_consumer

    def consumer_pod_keys_by_uid(self) -> Mapping[str, str]:
        """Return the `namespace/name` of pods for which allocated ResourceClaims are reserved, by pod UID."""
        return {
            consumer.uid: f"{claim.metadata.namespace or 'default'}/{consumer.name}"
            for claim in self.claims.values()
            if claim.status.allocation is not None
            for consumer in claim.status.reserved_for or ()
            if consumer.is_pod
        }

    def simulate_deletion_of_pod(self, pod: Pod) -> None:
        """Count devices as free if the deletion of a pod would free them; `undo_simulated_deletion_of_pod` undoes this.

        A claim is released with its last consumer. A claim that is reserved for a PodGroup is not released.
        """
        devices = self.devices_reserved_for_pod(pod.key, pod.metadata.uid)
        if devices is not None:
            self._withdrawn[pod.key] = devices
            self.release_reserved_devices(pod.key, pod.metadata.uid)
        self.simulate_deletion_of_pod_uid(pod.metadata.uid)
        if devices is not None:
            # A pod that is being bound may share claims that are not reserved for it yet.
            self._release_unused_claims(devices.claims)

    def undo_simulated_deletion_of_pod(self, pod: Pod) -> None:
        """Count the devices of a pod as used again after `simulate_deletion_of_pod`."""
        self.undo_simulated_deletion_of_pod_uid(pod.metadata.uid)
        devices = self._withdrawn.pop(pod.key, None)
        if devices is not None:
            self._reinstate_claims(devices.claims)
            self.reserve_devices(pod.key, devices)

    def simulate_deletion_of_pod_uid(self, uid: str) -> None:
        """Count devices as free if their ResourceClaims are reserved only for the pod with this UID."""
        self._withdrawn_consumers.add(uid)
        self._release_unused_claims(self._claims_of_consumer.get(uid, ()))

    def _release_unused_claims(self, keys: Iterable[str]) -> None:
        for key in keys:
            claim = self.claims.get(key)
            allocation = claim.status.allocation if claim is not None else None
            if claim is None or allocation is None:
                continue
            consumers = claim.status.reserved_for or ()
            if not consumers or self.count_pods_with_reserved_claim(key) or self._is_consumed(claim):
                continue
            self._released[key] = claim
            self.claims[key] = msgspec.structs.replace(claim, status=ResourceClaimStatus())
            self._count(allocation, -1)

    def undo_simulated_deletion_of_pod_uid(self, uid: str) -> None:
        """Count the devices of the pod with this UID as used again, after `simulate_deletion_of_pod_uid`."""
        self._withdrawn_consumers.discard(uid)
        self._reinstate_claims(self._claims_of_consumer.get(uid, ()))

    def _reinstate_claims(self, keys: Iterable[str]) -> None:
        for key in keys:
            claim = self._released.pop(key, None)
            if claim is not None and claim.status.allocation is not None:
                self.claims[key] = claim
                self._count(claim.status.allocation, 1)

    def _is_consumed(self, claim: ResourceClaim) -> bool:
        return any(
            not consumer.is_pod or consumer.uid not in self._withdrawn_consumers
            for consumer in claim.status.reserved_for or ()
        )

    def allocations_freed_by_evictions(
        self, units: Sequence[Sequence[Pod]]
    ) -> Iterator[tuple[int, AllocationResult]]:
        """Yield the allocations that evictions would free, each with the index of the eviction unit that frees it.

        The last unit with a consumer of a claim frees its allocation, if all its consumers are in the units.
        """
        unit_of_uid = {pod.metadata.uid: number for number, pods in enumerate(units) for pod in pods}
        unit_of_pod = {pod.key: number for number, pods in enumerate(units) for pod in pods}
        keys = {key for uid in unit_of_uid for key in self._claims_of_consumer.get(uid, ())}
        keys |= {key for pod in unit_of_pod if pod in self._by_pod for key in self._by_pod[pod].claims}
        for key in sorted(keys):
            claim = self.claims.get(key)
            allocation = claim.status.allocation if claim is not None else None
            consumers = [
                unit_of_uid.get(consumer.uid, -1) if consumer.is_pod else -1
                for consumer in (claim.status.reserved_for or () if claim is not None else ())
                if consumer.uid not in self._withdrawn_consumers
            ]
            consumers += [unit_of_pod.get(pod, -1) for pod in self._pods_of_claim.get(key, ())]
            allocation = allocation or self._assumed.get(key)
            if allocation is not None and consumers and min(consumers) >= 0:
                yield max(consumers), allocation

    def hold_for_nominated_pod(self, pod: str, allocations: Iterable[ReservedClaimDevices]) -> None:
        """Mark devices as used on behalf of a nominated pod, without allocating them to a ResourceClaim."""
        for allocated in allocations:
            held = self._held.get(allocated.claim)
            if held is None:
                self._held[allocated.claim] = HeldAllocation(allocated.allocation, {pod})
                self._count(allocated.allocation, 1)
            else:
                held.pods.add(pod)

    def stop_holding_for_nominated_pod(self, pod: str) -> None:
        """Release the devices that `hold_for_nominated_pod` marked as used for a nominated pod."""
        for claim, held in list(self._held.items()):
            held.pods.discard(pod)
            if not held.pods:
                del self._held[claim]
                self._count(held.allocation, -1)

    def release_devices_of_ended_pod(self, pod: Pod, has_bound_group: Callable[[Pod], bool]) -> None:
        """Release the devices of a pod that ended in a simulation, except those of claims that other pods use, too.

        Devices that were allocated before the start of the simulation are released as well.

        Args:
          pod: the pod.
          has_bound_group: returns whether another pod of the pod's PodGroup of Kubernetes is bound.
        """
        if not self._by_pod and not self.claims:  # as in most simulations, which end ten thousands of pods
            return
        self.release_reserved_devices(pod.key, pod.metadata.uid)
        for key in pod.resource_claim_keys:
            claim = self.claims.get(key)
            if claim is None or claim.status.allocation is None:
                continue
            consumers = tuple(
                consumer
                for consumer in claim.status.reserved_for or ()
                if not consumer.includes_pod(pod.metadata.uid, pod.scheduling_group_name)
                or (consumer.is_pod_group and has_bound_group(pod))
            )
            is_used = bool(consumers) or self.count_pods_with_reserved_claim(key) > 0
            if not is_used:
                self._count(claim.status.allocation, -1)
            status = ResourceClaimStatus(
                allocation=claim.status.allocation if is_used else None, reserved_for=consumers or None
            )
            self.claims[key] = msgspec.structs.replace(claim, status=status)

    def copy_reservations_of_pods_being_bound(
        self, before: Self, is_reserved: PodTest, is_bound: PodTest = no_pod_is_bound
    ) -> None:
        """Reserve the devices that an earlier ledger reserves for pods which are still being bound.

        Allocations that the claims of this ledger have by now count only once.

        Args:
          before: the earlier ledger.
          is_reserved: returns whether a pod still has what its profile reserved, given the `namespace/name` and the
            UID of the pod. For a deleted pod with a newer namesake, it gets a name that no pod has.
          is_bound: returns whether a pod is bound to a node. The devices of a bound pod are copied as long as one of
            its claims has no allocation: the API server may show the pod first.
        """
        for pod, devices in before._own_reservations():
            if self._is_needed(pod, devices, is_reserved, is_bound):
                self.reserve_devices(pod, devices)

    def copy_devices_reserved_by_other_profiles(
        self,
        ledgers: Iterable[Self],
        is_reserved: PodTest,
        is_bound: PodTest = no_pod_is_bound,
    ) -> None:
        """Reserve the devices that the ledgers of other profiles reserve; release what they have released.

        Args:
          ledgers: the ledgers of the other profiles.
          is_reserved: as of `copy_reservations_of_pods_being_bound`.
          is_bound: as of `copy_reservations_of_pods_being_bound`.
        """
        reserved = {
            pod: devices
            for ledger in ledgers
            for pod, devices in ledger._own_reservations()
            if self._is_needed(pod, devices, is_reserved, is_bound)
            and (pod not in self._by_pod or pod in self._reserved_elsewhere)
        }
        before, self._reserved_elsewhere = self._reserved_elsewhere, reserved
        for pod, devices in before.items():
            if reserved.get(pod) is not devices:
                self.release_reserved_devices(pod)
        for pod, devices in reserved.items():
            if before.get(pod) is not devices:
                self.reserve_devices(pod, devices)

    def _own_reservations(self) -> Iterator[tuple[str, PodDevices]]:
        return (
            (pod, devices) for pod, devices in self._by_pod.items() if pod not in self._reserved_elsewhere
        )

    def _is_needed(self, pod: str, devices: PodDevices, is_reserved: PodTest, is_bound: PodTest) -> bool:
        return is_reserved(pod, devices.uid) or (
            is_bound(pod, devices.uid)
            and not all(self._is_allocated(allocated.claim, devices) for allocated in devices.allocations)
        )

    def _is_allocated(self, claim: str, devices: PodDevices) -> bool:
        created = devices.created
        if created is not None and created.key == claim:
            claim = created.claim.key  # it exists by now
        known_claim = self.claims.get(claim)
        return known_claim is not None and known_claim.status.allocation is not None

    def _count(self, allocation: AllocationResult, sign: int) -> None:
        for device, consumed, shared in devices_used_by_allocation(allocation):
            use = self.uses.get(device)
            if use is None:
                use = self.uses[device] = DeviceUse()
            use.add_or_remove_allocation(consumed, shared=shared, sign=sign)
            if use.is_free:
                del self.uses[device]
            self._changed.append(device)
        if len(self._changed) > MAX_KEPT_CHANGES:
            half = len(self._changed) // 2
            del self._changed[:half]
            self._dropped_changes += half


def _are_equal_uses(allocation: AllocationResult, other: AllocationResult) -> bool:
    return allocation is other or list(devices_used_by_allocation(allocation)) == list(
        devices_used_by_allocation(other)
    )


def devices_used_by_allocation(
    allocation: AllocationResult,
) -> Iterable[tuple[DeviceKey, Amounts | None, bool]]:
    """Yield for each device of an allocation: its key, the consumed capacity, and whether it may be shared.

    A device with admin access is left out: it is not used up.

    Source: `foreachAllocatedDevice` of kube-scheduler's plugins/dynamicresources.
    """
    for allocated in allocation.devices.results:
        if not allocated.admin_access:
            yield (
                DeviceKey(allocated.driver, allocated.pool, allocated.device),
                allocated.consumed_capacity,
                allocated.share_id is not None,
            )

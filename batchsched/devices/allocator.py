"""The search for free devices on one node for a pod's ResourceClaims, with the result of kube-scheduler.

The search goes through claims, requests and devices in their order, and takes the first complete solution. Of equal
solutions the one with the earlier devices is found, so drivers influence the choice by the names of pools and slices.

Source: k8s.io/dynamic-resource-allocation/structured/internal/incubating, allocator_incubating.go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

import msgspec

from batchsched.api.core.device import MAX_DEVICES_PER_CLAIM
from batchsched.api.core.node import Node
from batchsched.config.kubernetes_release import DeviceRules
from batchsched.devices.capacity import InvalidCapacityRequest, consumed_capacity, has_capacity
from batchsched.devices.constraints import AttributeConstraint, attribute_constraints
from batchsched.devices.inventory import DeviceInventory, DevicePool, PoolDevice
from batchsched.devices.ledger import ZERO, DeviceKey, DeviceLedger
from batchsched.devices.requests import AllocationError, ClaimRequests, NodeRefused, ResolvedDeviceRequest

MAX_SEARCH_STEPS: Final = 50_000
"""Steps after which the search on one node ends without a solution, about a microsecond each."""
SEARCH_STEPS_PER_DEVICE: Final = 64
"""Further steps for each device that the node reaches."""
MAX_SEARCH_DEPTH: Final = 360
"""Maximum number of claims, requests and devices of one pod, since the search is recursive."""
CAPACITY_STEPS: Final = 4
"""Steps for each capacity of a device that is tried."""
INVALID_POOLS: Final = "invalid resource pools were encountered"
SEARCH_ENDED: Final = "timed out trying to allocate devices"

Counters = dict[str, dict[str, Decimal]]
"""Counter set → counter → amount."""
UsedAlternatives = Mapping[tuple[int, int], int]
"""Number of a claim and of its request with alternatives → number of the alternative that is used."""


@dataclass(slots=True)
class SearchBudget:
    """The maximum number of steps that the search for devices on one node may take, and the steps taken so far.

    Each device that is tried for a request counts with its capacities and the constraints of the claim, and each
    evaluation of an expression with its estimated work.

    Args:
      steps: the maximum number of steps.
    """

    steps: int
    spent: int = 0

    def spend(self, steps: int) -> None:
        """Add steps to those already spent; raise `SearchBudgetExceeded` if the sum exceeds the maximum.

        Raises:
          SearchBudgetExceeded: these are more steps than the search may take.
        """
        self.spent += steps
        if self.spent > self.steps:
            raise SearchBudgetExceeded


class SearchBudgetExceeded(Exception):
    """Raised if the search for devices on a node needs more steps than its budget allows."""


class _TooManyDevices(Exception):
    """The claim would get more devices than its status can hold: fewer devices of an earlier request may help."""


class ChosenDevice(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A device that the search chose for a request, with the capacity that the request consumes.

    Args:
      request: the request, or the alternative that is used.
      device: the device.
      consumed: consumed amount by capacity; None if the claim has the device for itself.
    """

    request: ResolvedDeviceRequest
    device: PoolDevice
    consumed: dict[str, Decimal] | None


class PodDeviceAllocation(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The result of a search: devices on one node for all ResourceClaims of a pod.

    Args:
      devices: the chosen devices of each claim, in the order of its requests.
      alternatives: the alternatives that are used.
    """

    devices: tuple[tuple[ChosenDevice, ...], ...]
    alternatives: UsedAlternatives


@dataclass(frozen=True, slots=True)
class Allocator:
    """The component that finds devices on one node for the ResourceClaims of a pod.

    Args:
      inventory: the devices.
      ledger: the devices that are in use.
      rules: how the release of Kubernetes allocates devices.
    """

    inventory: DeviceInventory
    ledger: DeviceLedger
    rules: DeviceRules

    def new_budget(self, node: Node) -> SearchBudget:
        """Return the budget for a new search for devices on one node."""
        devices = len(self.inventory.usable_devices_of_node(node))
        return SearchBudget(MAX_SEARCH_STEPS + SEARCH_STEPS_PER_DEVICE * devices)

    def find_devices(
        self, node: Node, claims: Sequence[ClaimRequests], budget: SearchBudget | None = None
    ) -> PodDeviceAllocation | None:
        """Return free devices of a node for ResourceClaims; None if the free devices do not suffice.

        Args:
          node: the node.
          claims: the claims without allocation.
          budget: counts the steps of the search.

        Raises:
          AllocationError: a claim, a class or a slice is invalid.
          NodeRefused: the node cannot be judged.
        """
        pools = self.inventory.pools_of_node(node)
        try:
            search = _Search(self, node, claims, budget or self.new_budget(node))
            if search.try_to_allocate():
                return search.chosen_devices()
        except SearchBudgetExceeded as error:
            raise NodeRefused(f"node {node.name}: {SEARCH_ENDED}") from error
        except InvalidCapacityRequest as error:
            raise AllocationError(f"claim {claims[0].claim.key}: {error}") from error
        if any(pool.invalid for pool in pools):
            raise NodeRefused(INVALID_POOLS)
        return None


@dataclass(slots=True)
class _Choices:
    """The devices among which a request may choose: a number of any, or all of a list."""

    request: ResolvedDeviceRequest
    count: int
    all_devices: tuple[PoolDevice, ...] = ()


@dataclass(slots=True)
class _Step:
    """What has to be undone besides the choice of a device if the search continues without the device."""

    has_counters: bool


@dataclass(slots=True)
class _Allocating:
    """What the search has chosen of one device so far."""

    claims: list[int] = field(default_factory=list)
    shares: int = 0
    consumed: dict[str, Decimal] = field(default_factory=dict)


class _Search:
    """The search on one node."""

    def __init__(
        self, allocator: Allocator, node: Node, claims: Sequence[ClaimRequests], budget: SearchBudget
    ) -> None:
        self._ledger, self._rules, self._node = allocator.ledger, allocator.rules, node
        self._pools, self._claims, self._budget = allocator.inventory.pools_of_node(node), claims, budget
        self._candidates = allocator.inventory.usable_devices_of_node(node)
        self._pool_of = {pool.key: pool for pool in self._pools}
        self._selectable: dict[tuple[int, int], bool] = {}
        self._allocating: dict[DeviceKey, _Allocating] = {}
        self._available: dict[object, Counters] = {}
        self._consumed_counters: dict[object, Counters] = {}
        self._chosen: list[list[ChosenDevice]] = [[] for _ in claims]
        self._alternatives: dict[tuple[int, int], int] = {}
        self._evaluation_work: dict[int, int] = {}
        self._choices: list[list[list[_Choices]]] = []
        self._constraints: list[tuple[AttributeConstraint, ...]] = []
        for claim_requests in claims:
            self._choices.append(self._choices_of(claim_requests))
            self._constraints.append(
                attribute_constraints(
                    claim_requests.claim.key, claim_requests.claim.spec.devices.constraints, self._rules
                )
            )
        self._check_depth()

    def _check_depth(self) -> None:
        """Check that the recursion of the search is not too deep.

        Raises:
          AllocationError: the pod has too many claims, requests or devices.
        """
        depth = len(self._claims) + sum(
            1 + max((choices.count for choices in alternatives), default=0)
            for requests in self._choices
            for alternatives in requests
        )
        if depth > MAX_SEARCH_DEPTH:
            raise AllocationError(
                f"claim {self._claims[0].claim.key}: the pod has {len(self._claims)} claims, and with their requests "
                f"and devices they are {depth}; at most {MAX_SEARCH_DEPTH} are supported"
            )

    def chosen_devices(self) -> PodDeviceAllocation:
        """Return the devices that a successful search has chosen."""
        return PodDeviceAllocation(tuple(map(tuple, self._chosen)), dict(self._alternatives))

    def try_to_allocate(self) -> bool:
        """Choose devices for all ResourceClaims; return False if the free devices do not suffice.

        Raises:
          AllocationError: a claim would get too many devices, whatever alternatives it uses.
        """
        try:
            return self._place_request(0, 0)
        except _TooManyDevices as error:
            raise AllocationError("allocation max size exceeded") from error

    def _choices_of(self, claim_requests: ClaimRequests) -> list[list[_Choices]]:
        """Return the choices of each alternative of each request of a claim.

        Raises:
          AllocationError: the claim needs more devices than its status can hold, or requests all of an incomplete pool.
        """
        least = 0
        choices = []
        for alternatives in claim_requests.requests:
            result = [self._choices_for(claim_requests, request) for request in alternatives]
            least += min((each.count for each in result), default=0)
            if least > MAX_DEVICES_PER_CLAIM:
                raise AllocationError(
                    f"claim {claim_requests.claim.key}: number of requested devices {least} exceeds the claim limit of "
                    f"{MAX_DEVICES_PER_CLAIM}"
                )
            choices.append(result)
        return choices

    def _choices_for(self, claim_requests: ClaimRequests, request: ResolvedDeviceRequest) -> _Choices:
        if not request.requests_all_matching_devices:
            return _Choices(request, request.count)
        for pool in self._pools:
            if not pool.is_usable:
                state = "being updated" if pool.incomplete else "invalid"
                raise AllocationError(
                    f"claim {claim_requests.claim.key}, request {request.name}: asks for all devices, but resource "
                    f"pool {'/'.join(pool.key)} is currently {state}"
                )
        matching = tuple(
            device
            for device in self._candidates
            if self._selects(request, device) and self._has_enough(request, device)
        )
        return _Choices(request, len(matching), matching)

    def _has_enough(self, request: ResolvedDeviceRequest, device: PoolDevice) -> bool:
        """Return whether a device counts for a request for all devices, by its capacity."""
        self._budget.spend(1 + CAPACITY_STEPS * device.capacity_count)
        used = self._used_capacity(device) if self._rules.all_skips_used_capacity else {}
        return has_capacity(device, request.capacity, used)

    def _selects(self, request: ResolvedDeviceRequest, device: PoolDevice) -> bool:
        key = id(request), device.number
        cached = self._selectable.get(key)
        if cached is None:
            work = self._evaluation_work.get(id(request))
            if work is None:
                work = self._evaluation_work[id(request)] = request.evaluation_work()
            self._budget.spend(work)
            cached = request.selects(device) and device.matches_per_device_node_selection(self._node)
            self._selectable[key] = cached
        return cached

    def _place_request(self, claim: int, number: int) -> bool:
        """Choose devices for a request and everything after it."""
        if claim == len(self._claims):
            return True
        requests = self._choices[claim]
        if number == len(requests):
            try:
                return self._place_request(claim + 1, 0)
            except _TooManyDevices:
                return False  # another alternative of an earlier claim may leave more for the next one
        if not requests[number] or not requests[number][0].request.parent:
            return self._place_devices(claim, number, 0, (0, 0)) if requests[number] else False
        exceeded = True
        for alternative in range(len(requests[number])):
            try:
                placed = self._place_devices(claim, number, alternative, (0, 0))
            except _TooManyDevices:
                continue
            exceeded = False
            if placed:
                self._alternatives[claim, number] = alternative
                return True
        if exceeded:
            raise _TooManyDevices
        return False

    def _place_devices(self, claim: int, number: int, alternative: int, place: tuple[int, int]) -> bool:
        """Choose the remaining devices of a request, and everything after it.

        Args:
          claim: number of the claim.
          number: number of the request.
          alternative: number of the alternative.
          place: how many devices of the request are chosen, and the first candidate that may be next.
        """
        self._budget.spend(1)
        choices, (done, start) = self._choices[claim][number][alternative], place
        request = choices.request
        if request.requests_all_matching_devices and not choices.all_devices:
            return False
        if done >= choices.count:
            return self._place_request(claim, number + 1)
        if choices.count - done > MAX_DEVICES_PER_CLAIM - len(self._chosen[claim]):
            raise _TooManyDevices
        if request.requests_all_matching_devices:
            # The order does not matter: if one of them cannot be used, there is no solution.
            step = self._choose(claim, request, choices.all_devices[done], must=True)
            return step is not None and self._continue(step, claim, number, alternative, (done + 1, 0))
        for index in range(start, len(self._candidates)):
            device = self._candidates[index]
            self._budget.spend(1)
            if self._is_taken(claim, request, device) or not self._selects(request, device):
                continue
            if request.capacity or not device.whole:
                self._budget.spend(CAPACITY_STEPS * device.capacity_count)
                if not has_capacity(device, request.capacity, self._used_capacity(device)):
                    continue
            step = self._choose(claim, request, device, must=False)
            # Devices of one request are chosen in ascending order, so that no set of devices is tried twice.
            if step is not None and self._continue(step, claim, number, alternative, (done + 1, index + 1)):
                return True
        return False

    def _continue(
        self, step: _Step, claim: int, number: int, alternative: int, place: tuple[int, int]
    ) -> bool:
        """Continue after a chosen device; without a solution, undo the choice."""
        try:
            result = self._place_devices(claim, number, alternative, place)
        except _TooManyDevices:
            self._undo(claim, step)
            raise
        if not result:
            self._undo(claim, step)
        return result

    def _is_taken(self, claim: int, request: ResolvedDeviceRequest, device: PoolDevice) -> bool:
        """Return whether a device is in use so that the request cannot have it."""
        own = self._allocating.get(device.key)
        if request.admin:
            return own is not None and claim in own.claims
        return bool(self._ledger.use_of(device.key).exclusive) or (own is not None and bool(own.claims))

    def _used_capacity(self, device: PoolDevice) -> dict[str, Decimal]:
        used = self._ledger.use_of(device.key).consumed
        own = self._allocating.get(device.key)
        if own is None or not own.consumed:
            return used
        return {name: used.get(name, ZERO) + own.consumed.get(name, ZERO) for name in used | own.consumed}

    def _choose(
        self, claim: int, request: ResolvedDeviceRequest, device: PoolDevice, *, must: bool
    ) -> _Step | None:
        """Take a device for a request if everything allows it; None if not, and nothing has changed then.

        Raises:
          AllocationError: `must`, and a constraint of the claim does not allow the device.
        """
        if self._is_taken(claim, request, device):
            return None
        self._budget.spend(1 + len(self._constraints[claim]) + CAPACITY_STEPS * device.capacity_count)
        own = self._allocating.get(device.key)
        is_shared = device.shareable and bool(
            (own is not None and own.shares) or self._ledger.use_of(device.key).shares
        )
        # The first allocation of a shared device has consumed its counters.
        takes_counters = bool(device.counters) and not is_shared
        if takes_counters and not self._consume_counters(device):
            return None
        added: list[AttributeConstraint] = []
        if not request.tolerates(device) or not self._satisfies_constraints(claim, request, device, added):
            for constraint in reversed(added):
                constraint.remove_last_device(request)
            if takes_counters:
                self._count_counters(device, -1)
            if must and request.tolerates(device):
                raise AllocationError(
                    f"claim {self._claims[claim].claim.key}, request {request.name}: cannot add device "
                    f"{'/'.join(device.key)} because a claim constraint would not be satisfied"
                )
            return None
        if not has_capacity(device, request.capacity, self._used_capacity(device)):
            for constraint in reversed(added):
                constraint.remove_last_device(request)
            if takes_counters:
                self._count_counters(device, -1)
            return None
        return self._record(claim, request, device, has_counters=takes_counters)

    def _satisfies_constraints(
        self, claim: int, request: ResolvedDeviceRequest, device: PoolDevice, added: list[AttributeConstraint]
    ) -> bool:
        for constraint in self._constraints[claim]:
            if not constraint.add_if_allowed(request, device):
                return False
            added.append(constraint)
        return True

    def _record(
        self, claim: int, request: ResolvedDeviceRequest, device: PoolDevice, *, has_counters: bool
    ) -> _Step:
        own = self._allocating.setdefault(device.key, _Allocating())
        consumed = None
        if device.shareable:
            consumed = consumed_capacity(device, request.capacity)
            own.shares += 1
            for name, amount in consumed.items():
                own.consumed[name] = own.consumed.get(name, ZERO) + amount
        else:
            own.claims.append(claim)
        self._chosen[claim].append(ChosenDevice(request, device, consumed))
        return _Step(has_counters)

    def _undo(self, claim: int, step: _Step) -> None:
        chosen = self._chosen[claim].pop()
        device, own = chosen.device, self._allocating[chosen.device.key]
        if chosen.consumed is None:
            own.claims.remove(claim)
        else:
            own.shares -= 1
            for name, amount in chosen.consumed.items():
                own.consumed[name] -= amount
        for constraint in reversed(self._constraints[claim]):
            constraint.remove_last_device(chosen.request)
        if step.has_counters:
            self._count_counters(device, -1)

    def _consume_counters(self, device: PoolDevice) -> bool:
        """Count what a device consumes of its pool's counters; return False, and count nothing, if too few are left."""
        self._count_counters(device, 1)
        key = self._counter_key(device)
        available, consumed = self._available_counters(device), self._consumed_counters[key]
        if all(
            consumed.get(counter_set, {}).get(name, ZERO) <= amount
            for counter_set, counters in available.items()
            for name, amount in counters.items()
        ):
            return True
        self._count_counters(device, -1)
        return False

    def _count_counters(self, device: PoolDevice, sign: int) -> None:
        consumed = self._consumed_counters.setdefault(self._counter_key(device), {})
        for counter_set, name, amount in device.counters:
            counters = consumed.setdefault(counter_set, {})
            counters[name] = counters.get(name, ZERO) + sign * amount

    def _counter_key(self, device: PoolDevice) -> object:
        return device.pool.pool if self._rules.counters_by_pool_name else device.pool

    def _available_counters(self, device: PoolDevice) -> Counters:
        """Return the counters of a device's pool that allocated devices leave; an amount may be negative."""
        key = self._counter_key(device)
        available = self._available.get(key)
        if available is None:
            pool = self._pool_of[device.pool]
            available = self._available[key] = remaining_counters(pool, self._ledger)
        return available


def remaining_counters(pool: DevicePool, ledger: DeviceLedger) -> Counters:
    """Return the amount of each counter of a device pool minus the amounts that allocated devices consume."""
    remaining = {counter_set: dict(counters) for counter_set, counters in pool.counters.items()}
    for devices in (*pool.slices, pool.unreachable):
        for device in devices:
            if device.counters and not ledger.use_of(device.key).is_free:
                for counter_set, name, amount in device.counters:
                    if name in remaining.get(counter_set, {}):
                        remaining[counter_set][name] -= amount
    return remaining

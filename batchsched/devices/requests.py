"""The device requests of a ResourceClaim, in one form for exact requests and for alternatives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from batchsched.api.core.device import (
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from batchsched.api.core.quantity import parse_quantity
from batchsched.devices.inventory import PoolDevice
from batchsched.devices.selectors import CelSelectorError, compile_selector

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"
MAX_EXPRESSIONS_LENGTH: Final = 64 * 1024
"""Characters of all different expressions of a claim: to compile them takes about two microseconds for each."""


class AllocationError(Exception):
    """Raised if no node can satisfy a ResourceClaim, because the claim or another object is invalid.

    The other object is a DeviceClass or a ResourceSlice. A claim that exceeds a limit counts as invalid, too.
    """


class NodeRefused(Exception):
    """Raised if a node is refused because a pool is invalid or the device search took too many steps.

    The message states which of the two is the reason.
    """


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedDeviceRequest:
    """A device request, or one of its alternatives in `firstAvailable`, together with its DeviceClass.

    Args:
      name: the name of the request or of the alternative.
      parent: the name of the request that contains the alternative, "" for an exact request.
      device_class: the class of the devices.
      mode: `ExactCount` or `All`.
      count: the number of devices for `ExactCount`.
      admin: the devices may be in use.
      tolerations: tolerated taints.
      capacity: needed amount by capacity.
      expressions: CEL expressions of the class and of the request, each with the object that states it.
    """

    name: str
    parent: str
    device_class: DeviceClass
    mode: str
    count: int
    admin: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, Decimal]
    expressions: tuple[tuple[str, str], ...]

    @property
    def qualified_name(self) -> str:
        """The name of the request in an allocation: `request`, or `request/alternative`."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def requests_all_matching_devices(self) -> bool:
        """True if the request has the allocation mode All, and so needs all devices that match."""
        return self.mode == ALL

    def selects(self, device: PoolDevice) -> bool:
        """Return whether a device meets the selectors of the request and of its DeviceClass.

        Raises:
          AllocationError: an expression is invalid, or its evaluation failed.
        """
        for source, expression in self.expressions:
            try:
                if not compile_selector(expression).matches(device.driver, device.device):
                    return False
            except CelSelectorError as error:
                place = "/".join(device.key)
                raise AllocationError(f"{source} on device {place}: {error}") from error
        return True

    def tolerates(self, device: PoolDevice) -> bool:
        """Return whether the request tolerates all taints of a device."""
        return all(
            any(alternative.tolerates(taint) for alternative in self.tolerations) for taint in device.taints
        )

    def evaluation_work(self) -> int:
        """Return the estimated cost of the request's CEL expressions for one device, in steps of the search budget."""
        work = 0
        for _, expression in self.expressions:
            try:
                work += compile_selector(expression).work
            except CelSelectorError:
                break  # the evaluation raises it
        return work

    def attributes_and_capacities_read(self) -> frozenset[str] | None:
        """Return the names of all device attributes and capacities that the request reads.

        The result is None if a CEL expression is invalid, or if its text does not determine the names.
        """
        names: frozenset[str] = frozenset(self.capacity)
        for _, expression in self.expressions:
            try:
                read = compile_selector(expression).names
            except CelSelectorError:
                return None
            if read is None:
                return None
            names |= read
        return names


@dataclass(frozen=True, slots=True, eq=False)
class ClaimRequests:
    """The device requests of one ResourceClaim.

    Args:
      claim: the claim.
      requests: for each request its alternatives; one for an exact request.
    """

    claim: ResourceClaim
    requests: tuple[tuple[ResolvedDeviceRequest, ...], ...]


def claim_requests(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> ClaimRequests:
    """Return the device requests of a ResourceClaim, each with its DeviceClass.

    Raises:
      AllocationError: a request is invalid or of an unsupported kind, its class does not exist, or the expressions of
        the claim are too long together.
    """
    length = sum(map(len, _own_expressions(claim)))
    if length > MAX_EXPRESSIONS_LENGTH:
        raise AllocationError(
            f"claim {claim.key}: its expressions have {length:,} characters together; expected at most "
            f"{MAX_EXPRESSIONS_LENGTH:,}"
        )
    return ClaimRequests(
        claim, tuple(_alternatives(claim, request, classes) for request in claim.spec.devices.requests)
    )


def _own_expressions(claim: ResourceClaim) -> frozenset[str]:
    """Return the different expressions that a claim states itself."""
    return frozenset(
        selector.cel.expression
        for request in claim.spec.devices.requests
        for alternative in (request.exactly, *(request.first_available or ()))
        for selector in (alternative.selectors if alternative is not None else None) or ()
        if selector.cel is not None
    )


def _alternatives(
    claim: ResourceClaim, request: DeviceRequest, classes: Mapping[str, DeviceClass]
) -> tuple[ResolvedDeviceRequest, ...]:
    if request.exactly is not None:
        exact = request.exactly
        return (_request(claim, request.name, "", exact, classes, admin=bool(exact.admin_access)),)
    return tuple(
        _request(claim, alternative.name, request.name, alternative, classes, admin=False)
        for alternative in request.first_available or ()
    )


def _request(
    claim: ResourceClaim,
    name: str,
    parent: str,
    spec: ExactDeviceRequest | DeviceSubRequest,
    classes: Mapping[str, DeviceClass],
    *,
    admin: bool,
) -> ResolvedDeviceRequest:
    where = f"claim {claim.key}, request {name}"
    if spec.derived_attributes:
        raise AllocationError(
            f"{where}: cannot handle request with derived attributes (derivedAttributes), the feature is disabled"
        )
    device_class = classes.get(spec.device_class_name)
    if device_class is None:
        raise AllocationError(f"{where}: could not retrieve device class {spec.device_class_name}")
    mode = spec.allocation_mode or EXACT_COUNT
    if mode not in (EXACT_COUNT, ALL):
        raise AllocationError(f"{where}: unsupported count mode {mode}")
    capacity = (spec.capacity.requests if spec.capacity is not None else None) or {}
    of_class = _expressions(f"class {device_class.metadata.name}", device_class.spec.selectors)
    return ResolvedDeviceRequest(
        name=name,
        parent=parent,
        device_class=device_class,
        mode=mode,
        count=spec.count or (1 if mode == EXACT_COUNT else 0),
        admin=admin,
        tolerations=spec.tolerations or (),
        capacity={key: parse_quantity(amount) for key, amount in capacity.items()},
        expressions=(*of_class, *_expressions(f"claim {claim.key}", spec.selectors)),
    )


def _expressions(source: str, selectors: Sequence[DeviceSelector] | None) -> tuple[tuple[str, str], ...]:
    expressions = []
    for number, selector in enumerate(selectors or ()):
        if selector.cel is None:
            raise AllocationError(
                f"{source}, selector #{number}: CEL expression empty (unsupported selector type?)"
            )
        expressions.append((f"{source}: selector #{number}", selector.cel.expression))
    return tuple(expressions)

"""Constraints of a ResourceClaim that require equal, or all different, values of a device attribute.

Source: k8s.io/dynamic-resource-allocation/structured/internal/incubating, allocator_incubating.go and constraint.go.
"""

from collections.abc import Iterable

from typing_extensions import override

from batchsched.api.core.device import DeviceConstraint
from batchsched.config.kubernetes_release import DeviceRules
from batchsched.devices.inventory import PoolDevice
from batchsched.devices.requests import AllocationError, ResolvedDeviceRequest

AttributeValue = tuple[str, int | bool | str]


class AttributeConstraint:
    """A `matchAttribute` or `distinctAttribute` constraint, which a search checks before it adds a device.

    It keeps the attribute values of the devices that the search has chosen so far.

    Args:
      attribute: the fully qualified name of the attribute.
      requests: names of the requests that the constraint concerns; empty for all.
      distinct: the values must differ; otherwise they must be equal.
    """

    __slots__ = ("_attribute", "_distinct", "_requests", "_values")

    def __init__(self, attribute: str, requests: Iterable[str], *, distinct: bool) -> None:
        self._attribute = attribute
        self._requests = frozenset(requests)
        self._distinct = distinct
        self._values: list[AttributeValue] = []

    def add_if_allowed(self, request: ResolvedDeviceRequest, device: PoolDevice) -> bool:
        """Return whether the constraint allows a further device for a request, and if so, record the device."""
        if not self._concerns(request):
            return True
        value = attribute_type_and_value(device, self._attribute)
        if value is None:
            return False
        if self._distinct:
            if value in self._values:
                return False
        elif self._values and value != self._values[0]:
            return False
        self._values.append(value)
        return True

    def remove_last_device(self, request: ResolvedDeviceRequest) -> None:
        """Forget the last device that was recorded for a request."""
        if self._concerns(request):
            self._values.pop()

    def _concerns(self, request: ResolvedDeviceRequest) -> bool:
        if not self._requests:
            return True
        return (request.parent or request.name) in self._requests or request.qualified_name in self._requests


class DistinctFromLastDevicesConstraint(AttributeConstraint):
    """A `distinctAttribute` constraint that compares a device only with each request's last chosen device.

    Kubernetes 1.36 checks the constraint in this way. If a device is removed, no value of its request is compared any
    longer. So two devices of one request may have the same value.
    """

    __slots__ = ("_last_by_request",)

    def __init__(self, attribute: str, requests: Iterable[str]) -> None:
        super().__init__(attribute, requests, distinct=True)
        self._last_by_request: dict[str, AttributeValue] = {}

    @override
    def add_if_allowed(self, request: ResolvedDeviceRequest, device: PoolDevice) -> bool:
        if not self._concerns(request):
            return True
        value = attribute_type_and_value(device, self._attribute)
        if value is None or value in self._last_by_request.values():
            return False
        self._last_by_request[request.parent or request.name] = value
        return True

    @override
    def remove_last_device(self, request: ResolvedDeviceRequest) -> None:
        if self._concerns(request):
            self._last_by_request.pop(request.parent or request.name, None)


def attribute_type_and_value(device: PoolDevice, name: str) -> AttributeValue | None:
    """Return the type and value of a device attribute; None if the device lacks the attribute.

    `name` is the fully qualified name of the attribute.

    A device may state an attribute of its own driver without the domain.
    """
    attributes = device.device.attributes or {}
    attribute = attributes.get(name)
    if attribute is None:
        domain, _, own_name = name.partition("/")
        attribute = attributes.get(own_name) if domain == device.driver else None
    return None if attribute is None else attribute.type_and_value


def attribute_constraints(
    claim: str, constraints: Iterable[DeviceConstraint] | None, rules: DeviceRules
) -> tuple[AttributeConstraint, ...]:
    """Create the attribute constraints of a ResourceClaim for a new search for devices.

    Raises:
      AllocationError: a constraint is of an unknown type.
    """
    result: list[AttributeConstraint] = []
    for number, constraint in enumerate(constraints or ()):
        attribute = constraint.match_attribute or constraint.distinct_attribute
        if attribute is None:
            raise AllocationError(
                f"claim {claim}, constraint #{number}: empty constraint (unsupported constraint type?)"
            )
        requests, is_distinct = constraint.requests or (), constraint.match_attribute is None
        if is_distinct and rules.compares_last_values:
            result.append(DistinctFromLastDevicesConstraint(attribute, requests))
        else:
            result.append(AttributeConstraint(attribute, requests, distinct=is_distinct))
    return tuple(result)

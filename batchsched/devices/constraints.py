"""Constraints of a claim: the devices of some requests have an attribute in common, or all differ in it.

Source: k8s.io/dynamic-resource-allocation/structured/internal/incubating, allocator_incubating.go and constraint.go.
"""

from collections.abc import Iterable

from batchsched.api.core.device import DeviceConstraint
from batchsched.devices.inventory import PoolDevice
from batchsched.devices.requests import AllocationError, Request

AttributeValue = tuple[str, int | bool | str]


class AttributeConstraint:
    """A constraint of a ResourceClaim on one attribute of its devices, with the values of the devices chosen so far.

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

    def add(self, request: Request, device: PoolDevice) -> bool:
        """Add a device to the chosen ones, and return True, if the constraint allows the device; else return False."""
        if not self._concerns(request):
            return True
        value = attribute_value(device, self._attribute)
        if value is None:
            return False
        if self._distinct:
            if value in self._values:
                return False
        elif self._values and value != self._values[0]:
            return False
        self._values.append(value)
        return True

    def remove(self, request: Request) -> None:
        """Remove the device that was added last for a request."""
        if self._concerns(request):
            self._values.pop()

    def _concerns(self, request: Request) -> bool:
        if not self._requests:
            return True
        return (request.parent or request.name) in self._requests or request.qualified_name in self._requests


def attribute_value(device: PoolDevice, name: str) -> AttributeValue | None:
    """Return the value of a fully qualified attribute of a device, None if the device lacks it.

    A device may state an attribute of its own driver without the domain.
    """
    attributes = device.device.attributes or {}
    attribute = attributes.get(name)
    if attribute is None:
        domain, _, own_name = name.partition("/")
        attribute = attributes.get(own_name) if domain == device.driver else None
    return None if attribute is None else attribute.typed_value


def attribute_constraints(
    claim: str, constraints: Iterable[DeviceConstraint] | None
) -> tuple[AttributeConstraint, ...]:
    """Return the constraints of a ResourceClaim, before any device is chosen.

    Raises:
      AllocationError: a constraint is of an unknown type.
    """
    result = []
    for number, constraint in enumerate(constraints or ()):
        attribute = constraint.match_attribute or constraint.distinct_attribute
        if attribute is None:
            raise AllocationError(
                f"claim {claim}, constraint #{number}: empty constraint (unsupported constraint type?)"
            )
        result.append(
            AttributeConstraint(
                attribute, constraint.requests or (), distinct=constraint.match_attribute is None
            )
        )
    return tuple(result)

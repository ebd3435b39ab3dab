"""Checks of the quantities in objects of Dynamic Resource Allocation, such as ResourceSlices.

Kubernetes computes with larger quantities than 63 bits; the device search does not. An object with a larger quantity is
set aside, so that a message names it, and so that the device search for other pods does not fail.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from batchsched.api.core.device import (
    Amount,
    CapacityRequestPolicyRange,
    Counter,
    Device,
    DeviceCapacity,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceSlice,
    ResourceSliceSpec,
)
from batchsched.api.core.quantity import parse_quantity
from batchsched.errors import InvalidInput, InvalidQuantity

FieldAmount = tuple[str, Amount]
"""The path of a field, and the quantity in it."""


def check_device_quantities(decoded: msgspec.Struct) -> None:
    """Check the quantities of a ResourceClaim, a ResourceClaimTemplate or a ResourceSlice; ignore other objects.

    The amounts in the status of a claim are not checked: if the claim were set aside, its devices would count as free.

    Raises:
      InvalidInput: a text is not a quantity, or its value does not fit in 63 bits.
    """
    match decoded:
        case ResourceClaim():
            _check(_amounts_of_claim(decoded.spec, "spec.devices.requests"))
        case ResourceClaimTemplate():
            _check(_amounts_of_claim(decoded.spec.spec, "spec.spec.devices.requests"))
        case ResourceSlice():
            _check(_amounts_of_slice(decoded.spec))
        case _:
            pass


def _check(amounts: Iterable[FieldAmount]) -> None:
    for field, amount in amounts:
        try:
            parse_quantity(amount)
        except InvalidQuantity as error:
            raise InvalidInput(error.message, field=field) from error


def _amounts_of_claim(spec: ResourceClaimSpec, field: str) -> Iterator[FieldAmount]:
    for index, request in enumerate(spec.devices.requests):
        alternatives = {
            f"{field}[{index}].firstAvailable[{number}]": alternative.capacity
            for number, alternative in enumerate(request.first_available or ())
        }
        if request.exactly is not None:
            alternatives[f"{field}[{index}].exactly"] = request.exactly.capacity
        for place, capacity in alternatives.items():
            for name, amount in ((capacity.requests if capacity is not None else None) or {}).items():
                yield f"{place}.capacity.requests.{name}", amount


def _amounts_of_slice(spec: ResourceSliceSpec) -> Iterator[FieldAmount]:
    for index, device in enumerate(spec.devices or ()):
        yield from _amounts_of_device(device, f"spec.devices[{index}]")
    for index, counter_set in enumerate(spec.shared_counters or ()):
        yield from _amounts_of_counters(counter_set.counters, f"spec.sharedCounters[{index}].counters")


def _amounts_of_device(device: Device, field: str) -> Iterator[FieldAmount]:
    for name, offered in (device.capacity or {}).items():
        yield from _amounts_of_capacity(offered, f"{field}.capacity.{name}")
    for index, consumption in enumerate(device.consumes_counters or ()):
        yield from _amounts_of_counters(consumption.counters, f"{field}.consumesCounters[{index}].counters")


def _amounts_of_capacity(offered: DeviceCapacity, field: str) -> Iterator[FieldAmount]:
    yield f"{field}.value", offered.value
    policy = offered.request_policy
    if policy is None:
        return
    valid = policy.valid_range or CapacityRequestPolicyRange()
    optional = {
        "default": policy.default,
        "validRange.min": valid.min,
        "validRange.max": valid.max,
        "validRange.step": valid.step,
    }
    for name, amount in optional.items():
        if amount is not None:
            yield f"{field}.requestPolicy.{name}", amount
    for index, amount in enumerate(policy.valid_values or ()):
        yield f"{field}.requestPolicy.validValues[{index}]", amount


def _amounts_of_counters(counters: Mapping[str, Counter] | None, field: str) -> Iterator[FieldAmount]:
    for name, counter in (counters or {}).items():
        yield f"{field}.{name}.value", counter.value

"""Consumable capacity: how much of each capacity a request consumes, and whether a device has that much left.

Source: k8s.io/dynamic-resource-allocation/structured/internal/incubating, consumable_capacity.go.
"""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Final

from batchsched.api.core.device import CapacityRequestPolicyRange, DeviceCapacity
from batchsched.api.core.quantity import parse_quantity
from batchsched.devices.inventory import PoolDevice

LARGEST: Final = Decimal(2**63 - 1)
ZERO: Final = Decimal(0)


class InvalidCapacityRequest(Exception):
    """Raised if a request for device capacity is negative or too large.

    No device can serve the request, so the search stops.
    """


def consumed_capacity(device: PoolDevice, requested: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """Return the amount of each capacity of a device that a request consumes, by the name of the capacity.

    Raises:
      InvalidCapacityRequest: an amount is negative or too large.
    """
    return {
        name: _consumed(name, requested.get(name), offered)
        for name, offered in (device.device.capacity or {}).items()
    }


def has_capacity(
    device: PoolDevice,
    requested: Mapping[str, Decimal],
    used: Mapping[str, Decimal],
) -> bool:
    """Return whether a device has enough unused capacity for a request, in amounts that the device permits.

    Args:
      device: the device.
      requested: amount by capacity; others are consumed by their default.
      used: what other allocations consume of the device.

    Raises:
      InvalidCapacityRequest: an amount is negative or too large.
    """
    if device.whole and not requested:
        return True
    capacity = device.device.capacity or {}
    if not requested.keys() <= capacity.keys():
        return False
    consumed = consumed_capacity(device, requested)
    return all(
        _is_valid(amount, capacity[name]) and used.get(name, ZERO) + amount <= device.capacity[name]
        for name, amount in consumed.items()
    )


def _consumed(name: str, requested: Decimal | None, offered: DeviceCapacity) -> Decimal:
    policy = offered.request_policy
    if requested is None:
        default = policy.default if policy is not None else None
        amount = parse_quantity(offered.value if default is None else default)
    elif policy is None:
        amount = requested
    elif policy.valid_range is not None and policy.valid_range.min is not None:
        amount = _rounded_up(name, requested, policy.valid_range)
    elif policy.valid_values is not None:
        values = map(parse_quantity, policy.valid_values)
        amount = next((value for value in values if requested <= value), requested)
    else:
        amount = requested
    if amount < 0:
        raise InvalidCapacityRequest(f'capacity "{name}": capacity value is negative')
    return amount


def _rounded_up(name: str, requested: Decimal, valid: CapacityRequestPolicyRange) -> Decimal:
    """Return the smallest valid amount of a range, a number of steps above its start, that is enough for a request."""
    start = parse_quantity(valid.min or 0)
    if requested < start:
        return start
    if valid.step is None:
        return requested
    requested_units, start = _whole(requested), _whole(start)
    step = _whole(parse_quantity(valid.step))
    rounded = start + step * -((start - requested_units) // step) if step else requested_units
    if rounded < requested_units:
        rounded += step
    if rounded > LARGEST:
        raise InvalidCapacityRequest(
            f'capacity "{name}": the request, rounded up to the next step, is too large'
        )
    return rounded


def _is_valid(amount: Decimal, offered: DeviceCapacity) -> bool:
    policy = offered.request_policy
    if policy is None or (policy.default is not None and amount == parse_quantity(policy.default)):
        return True
    valid = policy.valid_range
    if valid is not None:
        if valid.max is not None and amount > parse_quantity(valid.max):
            return False
        return valid.step is None or _is_step(amount, valid)
    return not policy.valid_values or amount in map(parse_quantity, policy.valid_values)


def _is_step(amount: Decimal, valid: CapacityRequestPolicyRange) -> bool:
    step = _whole(parse_quantity(valid.step or 0))
    return not step or not (_whole(amount) - _whole(parse_quantity(valid.min or 0))) % step


def _whole(amount: Decimal) -> Decimal:
    """Return an amount as a whole number, rounded up as `Quantity.Value` rounds."""
    return amount.to_integral_value(ROUND_CEILING)

"""Kubernetes quantities as exact integers.

`500m`, `1.5Gi`, `2e3` and `12` are numbers with a unit; the scheduler compares them in base units: milli-CPU
for cpu, whole units (bytes, devices, pods) for everything else. A fraction of a base unit rounds up, as
`Quantity.MilliValue` and `Quantity.Value` do.

Source: k8s.io/apimachinery/pkg/api/resource, the grammar in the documentation of `Quantity`.
"""

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Final

from batchsched.errors import InvalidQuantity

_GRAMMAR: Final = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?\d+|[numkMGTPE]|)", re.ASCII
)
_SUFFIXES: Final = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
_LARGEST: Final = Decimal(2**63 - 1)
_LONGEST_EXPONENT: Final = 3
MILLI: Final = 1000
_BINARY_UNITS: Final = (
    *((1024**power, f"{letter}i") for power, letter in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K"))),
    (1, ""),
)


@lru_cache(maxsize=65536)
def parse_quantity(text: str | int | float) -> Decimal:
    """Return the exact decimal value of a Kubernetes quantity such as `500m` or `1.5Gi`.

    Raises:
      InvalidQuantity: the text is not a quantity, or its value does not fit in 63 bits.
    """
    match = _GRAMMAR.fullmatch(str(text))
    if match is None:
        raise InvalidQuantity(str(text), "expected a number with a suffix such as 500m, 4, 1.5Gi or 2e3")
    number, suffix = match.groups()
    factor = _SUFFIXES.get(suffix)
    if factor is None:
        if len(suffix.lstrip("eE+-")) > _LONGEST_EXPONENT:
            raise InvalidQuantity(str(text), "the exponent is too large")
        factor = Decimal(10) ** int(suffix[1:])
    value = Decimal(number) * factor
    if abs(value) > _LARGEST:
        raise InvalidQuantity(str(text), "the value does not fit in 63 bits")
    return value


@lru_cache(maxsize=65536)
def parse_quantity_in_base_units(resource: str, text: str | int | float) -> int:
    """Return a Kubernetes quantity of a resource as an integer in base units: milli-CPU, bytes, devices.

    Fractions round up.

    Raises:
      InvalidQuantity: the text is not a quantity, or is out of range.
    """
    value = parse_quantity(text)
    amount = math.ceil(value * MILLI) if resource == "cpu" else math.ceil(value)
    if abs(amount) > _LARGEST:
        raise InvalidQuantity(str(text), f"the amount of {resource} does not fit in 63 bits")
    return amount


def format_quantity(resource: str, amount: int) -> str:
    """Format an amount of a resource in base units as a Kubernetes quantity: `1500m`, `64Gi`, `8`."""
    if resource == "cpu":
        return str(amount // MILLI) if amount % MILLI == 0 else f"{amount}m"
    if resource in BYTES or resource.startswith("hugepages-"):
        unit, suffix = _largest_common_unit((amount,)) if amount else (1, "")
        return f"{amount // unit}{suffix}"
    return str(amount)


def format_quantities_in_same_unit(resource: str, *amounts: int) -> tuple[str, ...]:
    """Format amounts of a resource as quantities with the same suffix, so that readers can compare them.

    The amounts are in base units. An amount of 0 may have no suffix. For example, `6500m` and `6000m` of cpu, `1025Mi`
    and `1024Mi` of memory.
    """
    texts = tuple(format_quantity(resource, amount) for amount in amounts)
    suffixes = {text.lstrip("0123456789") for amount, text in zip(amounts, texts, strict=True) if amount}
    if len(suffixes) <= 1:
        return texts
    unit, suffix = (1, "m") if resource == "cpu" else _largest_common_unit(amounts)
    return tuple(f"{amount // unit}{suffix}" for amount in amounts)


def _largest_common_unit(amounts: Iterable[int]) -> tuple[int, str]:
    """Return the largest binary unit that divides all amounts, and its suffix."""
    divisor = math.gcd(*amounts)
    return next((unit, suffix) for unit, suffix in _BINARY_UNITS if divisor % unit == 0)


BYTES: Final = frozenset({"memory", "ephemeral-storage", "storage"})


def pluralize(count: int, noun: str, separator: str = ",") -> str:
    """Format a number with its noun, such as `1 pod` or `2,000 pods`.

    Args:
      count: the number.
      noun: the noun in the singular; its plural ends in `s`.
      separator: the separator of thousands, "" for none.
    """
    digits = f"{count:,}".replace(",", separator)
    return f"{digits} {noun}" if count == 1 else f"{digits} {noun}s"

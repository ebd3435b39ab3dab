"""The CEL functions of Kubernetes that device selectors use: quantities and semantic versions.

CEL has no types for them: a quantity or a version is a map with one entry, so that equal values are equal maps.

Source: k8s.io/apiserver/pkg/cel/library, quantity.go and semverlib.go.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from cel_expr_python import cel
from semver import Version

from batchsched.api.core.quantity import parse_quantity
from batchsched.errors import InvalidQuantity

QUANTITY: Final = "kubernetes.Quantity"
SEMVER: Final = "kubernetes.Semver"
_MOST_DIGITS: Final = 40
"""Digits of a quantity: sums of quantities of 63 bits have fewer."""

CelMap = Mapping[str, str]


def to_cel_quantity(amount: str | int | float | Decimal) -> dict[str, str]:
    """Return a Kubernetes quantity as a value for CEL expressions; equal amounts give equal values."""
    return {QUANTITY: str((amount if isinstance(amount, Decimal) else parse_quantity(amount)).normalize())}


def to_cel_version(text: str) -> dict[str, str]:
    """Return a semantic version as a value for CEL expressions.

    Raises:
      ValueError: the text is no version.
    """
    return {SEMVER: str(Version.parse(text))}


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except InvalidQuantity:
        return False
    return True


def _is_version(text: str) -> bool:
    return bool(Version.is_valid(text))


def _amount(value: CelMap) -> Decimal:
    amount = Decimal(value[QUANTITY])
    # An expression may state the map itself, and an integer of a million digits takes minutes.
    if not amount.is_finite() or amount.adjusted() > _MOST_DIGITS:
        raise ValueError("the quantity is too large")
    return amount


def _number(value: CelMap | int) -> Decimal:
    return Decimal(value) if isinstance(value, int) else _amount(value)


def _compare(first: CelMap, second: CelMap) -> int:
    if QUANTITY in first:
        difference = _amount(first) - _amount(second)
        return (difference > 0) - (difference < 0)
    return int(Version.parse(first[SEMVER]).compare(second[SEMVER]))


def _as_integer(value: CelMap) -> int:
    amount = _amount(value)
    if amount != amount.to_integral_value():
        raise ValueError("cannot convert value to integer")
    return int(amount)


def _part(name: str) -> Callable[[CelMap], int]:
    return lambda value: int(getattr(Version.parse(value[SEMVER]), name))


_MAP: Final = cel.Type.MAP
_INT: Final = cel.Type.INT
_BOOL: Final = cel.Type.BOOL
_STRING: Final = cel.Type.STRING


def _declare(
    name: str, result: Any, *overloads: tuple[tuple[Any, ...], Callable[..., Any]], member: bool = True
) -> Any:
    return cel.FunctionDecl(
        name,
        [
            cel.Overload(
                f"{name}_{number}",
                return_type=result,
                parameters=list(parameters),
                is_member=member,
                impl=function,
            )
            for number, (parameters, function) in enumerate(overloads)
        ],
    )


KUBERNETES_FUNCTIONS: Final = (
    _declare("quantity", _MAP, ((_STRING,), to_cel_quantity), member=False),
    _declare("isQuantity", _BOOL, ((_STRING,), _is_quantity), member=False),
    _declare("semver", _MAP, ((_STRING,), to_cel_version), member=False),
    _declare("isSemver", _BOOL, ((_STRING,), _is_version), member=False),
    _declare("compareTo", _INT, ((_MAP, _MAP), _compare)),
    _declare("isGreaterThan", _BOOL, ((_MAP, _MAP), lambda first, second: _compare(first, second) > 0)),
    _declare("isLessThan", _BOOL, ((_MAP, _MAP), lambda first, second: _compare(first, second) < 0)),
    _declare("sign", _INT, ((_MAP,), lambda value: (_amount(value) > 0) - (_amount(value) < 0))),
    _declare(
        "isInteger", _BOOL, ((_MAP,), lambda value: _amount(value) == _amount(value).to_integral_value())
    ),
    _declare("asInteger", _INT, ((_MAP,), _as_integer)),
    _declare("asApproximateFloat", cel.Type.DOUBLE, ((_MAP,), lambda value: float(_amount(value)))),
    _declare(
        "add",
        _MAP,
        ((_MAP, _MAP), lambda first, second: to_cel_quantity(_amount(first) + _number(second))),
        ((_MAP, _INT), lambda first, second: to_cel_quantity(_amount(first) + _number(second))),
    ),
    _declare(
        "sub",
        _MAP,
        ((_MAP, _MAP), lambda first, second: to_cel_quantity(_amount(first) - _number(second))),
        ((_MAP, _INT), lambda first, second: to_cel_quantity(_amount(first) - _number(second))),
    ),
    _declare("major", _INT, ((_MAP,), _part("major"))),
    _declare("minor", _INT, ((_MAP,), _part("minor"))),
    _declare("patch", _INT, ((_MAP,), _part("patch"))),
)
"""Functions for `cel.NewEnv`."""

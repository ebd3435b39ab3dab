"""The CEL functions of Kubernetes that device selectors use: quantities, semantic versions, lists and texts.

CEL has no types for quantities and versions: each is a map with one entry, so that equal values are equal maps.

Source: k8s.io/apiserver/pkg/cel/library, quantity.go, semverlib.go, lists.go and regex.go.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

from cel_expr_python import cel
from semver import Version

from batchsched.api.core.quantity import parse_quantity
from batchsched.errors import InvalidQuantity

QUANTITY: Final = "kubernetes.Quantity"
SEMVER: Final = "kubernetes.Semver"
_LEADING_ZEROS: Final = re.compile(r"^0+(?=\d)")
_GROUP: Final = re.compile(
    r"""\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|(\((?:\?P?<\w+>|(?!\?)))""", re.DOTALL
)
"""The beginning of a capturing group; and what contains parentheses that begin none: quotations and classes."""
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


def _to_normalized_version(text: str, normalize: bool) -> dict[str, str]:
    return to_cel_version(_normalize_version(text) if normalize else text)


def _is_normalized_version(text: str, normalize: bool) -> bool:
    return _is_version(_normalize_version(text) if normalize else text)


def _normalize_version(text: str) -> str:
    """Return a version without the prefix `v` and without leading zeros, and with all three numbers.

    A short version with a suffix stays invalid.

    Source: `normalizeAndParse` of semverlib.go.
    """
    parts = [_LEADING_ZEROS.sub("", part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and not set("+-").isdisjoint(parts[-1]):
        return text
    return ".".join([*parts, "0", "0"][:3])


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


def _has_equal_kind(first: object, second: object) -> bool:
    return isinstance(first, bool) == isinstance(second, bool)  # in Python, 1 == True


def _indexes(elements: Sequence[object], sought: object) -> list[int]:
    return [
        index
        for index, element in enumerate(elements)
        if element == sought and _has_equal_kind(element, sought)
    ]


def _is_sorted(elements: Sequence[Any]) -> bool:
    return all(first <= second for first, second in pairwise(elements))


def _find(text: str, pattern: str) -> str:
    return next(iter(_find_all(text, pattern)), "")


def _find_all(text: str, pattern: str) -> list[str]:
    matches = _matches_program().eval(data={"text": text, "pattern": _without_groups(pattern)})
    if matches.type() == cel.Type.ERROR:
        raise ValueError(matches.value())
    return list(matches.plain_value())


def _find_first(text: str, pattern: str, count: int) -> list[str]:
    matches = _find_all(text, pattern)
    return matches if count < 0 else matches[:count]


def _without_groups(pattern: str) -> str:
    """Return a regular expression that matches the same texts and captures no part of them."""
    return _GROUP.sub(lambda match: "(?:" if match.group(1) else match.group(), pattern)


@lru_cache(1)
def _matches_program() -> Any:
    """Return a program for the matches of a regular expression; it takes time linear in the text, unlike `re`."""
    config = cel.NewEnvConfigFromYaml("name: matches\nextensions: [{name: optional}, {name: regex}]")
    variables = {"text": cel.Type.STRING, "pattern": cel.Type.STRING}
    return cel.NewEnv(config=config, variables=variables).compile("regex.extractAll(text, pattern)")


_MAP: Final = cel.Type.MAP
_INT: Final = cel.Type.INT
_BOOL: Final = cel.Type.BOOL
_STRING: Final = cel.Type.STRING
_LIST: Final = cel.Type.LIST
_DYN: Final = cel.Type.DYN


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
    _declare(
        "semver",
        _MAP,
        ((_STRING,), to_cel_version),
        ((_STRING, _BOOL), _to_normalized_version),
        member=False,
    ),
    _declare(
        "isSemver",
        _BOOL,
        ((_STRING,), _is_version),
        ((_STRING, _BOOL), _is_normalized_version),
        member=False,
    ),
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
    _declare("sum", _DYN, ((_LIST,), sum)),
    _declare("min", _DYN, ((_LIST,), min)),
    _declare("max", _DYN, ((_LIST,), max)),
    _declare("isSorted", _BOOL, ((_LIST,), _is_sorted)),
    _declare(
        "indexOf", _INT, ((_LIST, _DYN), lambda elements, sought: next(iter(_indexes(elements, sought)), -1))
    ),
    _declare(
        "lastIndexOf",
        _INT,
        ((_LIST, _DYN), lambda elements, sought: max(_indexes(elements, sought), default=-1)),
    ),
    _declare("find", _STRING, ((_STRING, _STRING), _find)),
    _declare(
        "findAll",
        cel.Type.List(_STRING),
        ((_STRING, _STRING), _find_all),
        ((_STRING, _STRING, _INT), _find_first),
    ),
)
"""Functions of the CEL environment of Kubernetes that the CEL library lacks."""

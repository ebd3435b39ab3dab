"""Gangs and queues as `kubectl get` would list them: plain columns, for eyes and for pipes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchsched.api.core.metadata import seconds

Object = Mapping[str, Any]
NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
_GAP: Final = 3


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Args:
      title: in capitals.
      cell: of an object at a time, seconds since 1970.
      wide: whether only `-o wide` shows it.
    """

    title: str
    cell: Callable[[Object, float], str]
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """A kind that is listed.

    Args:
      plural: in paths.
      kind: its name.
      names: that users may say.
      namespaced: whether its objects live in namespaces.
      columns: after the name.
    """

    plural: str
    kind: str
    names: tuple[str, ...]
    namespaced: bool
    columns: tuple[Column, ...]


def value(found: Any, *path: str) -> Any:
    """Return what stands at a path; None where nothing does."""
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _text(*path: str, missing: str = NONE) -> Callable[[Object, float], str]:
    def cell(one: Object, _: float) -> str:
        found = value(one, *path)
        return missing if found in (None, "") else str(found)

    return cell


def _amounts(*path: str) -> Callable[[Object, float], str]:
    def cell(one: Object, _: float) -> str:
        found = value(one, *path)
        return ",".join(f"{name}={amount}" for name, amount in sorted(found.items())) if found else NONE

    return cell


def _condition(kind: str, *fields: str) -> Callable[[Object, float], str]:
    def cell(one: Object, _: float) -> str:
        for condition in value(one, "status", "conditions") or ():
            if condition.get("type") == kind:
                return ": ".join(str(condition[name]) for name in fields if condition.get(name)) or NONE
        return UNKNOWN

    return cell


def _least(one: Object, _: float) -> str:
    """Return minMember: as stated, or what its subgroups need."""
    spec = value(one, "spec") or {}
    total = sum(sub.get("minMember", 1) for sub in spec.get("subGroups") or ())
    return str(max(spec.get("minMember", 0), total) or 1)


def _age(one: Object, now: float) -> str:
    made = seconds(value(one, "metadata", "creationTimestamp"), default=-1.0)
    return UNKNOWN if made < 0 else duration(now - made)


def _start(one: Object, now: float) -> str:
    """Return how far away the start is that is kept for a gang."""
    start = seconds(value(one, "status", "estimatedStartTime"), default=-1.0)
    if start < 0:
        return NONE
    return f"in {duration(start - now)}" if start > now else "now"


AGE: Final = Column("AGE", _age)
POD_GROUPS: Final = Listed(
    "podgroups",
    "PodGroup",
    ("podgroups", "podgroup", "pg"),
    namespaced=True,
    columns=(
        Column("PHASE", _text("status", "phase", missing=UNKNOWN)),
        Column("MIN", _least),
        Column("PLACED", _text("status", "placed", missing="0")),
        Column("RUNNING", _text("status", "running", missing="0")),
        Column("QUEUE", _text("spec", "queue", missing="default")),
        AGE,
        Column("POSITION", _text("status", "queuePosition"), wide=True),
        Column("START", _start, wide=True),
        Column("SCHEDULED", _condition("Scheduled", "reason", "message"), wide=True),
    ),
)
QUEUES: Final = Listed(
    "queues",
    "Queue",
    ("queues", "queue", "bq"),
    namespaced=False,
    columns=(
        Column("PARENT", _text("spec", "parent")),
        Column("WEIGHT", _text("spec", "weight", missing="1")),
        Column("PENDING", _text("status", "pending", missing="0")),
        Column("ALLOCATED", _amounts("status", "allocated")),
        AGE,
        Column("GUARANTEE", _amounts("spec", "guarantee"), wide=True),
        Column("LIMIT", _amounts("spec", "limit"), wide=True),
        Column("FAIR-SHARE", _amounts("status", "fairShare"), wide=True),
        Column("ACTIVE", _condition("Active", "reason", "message"), wide=True),
    ),
)
KINDS: Final = (POD_GROUPS, QUEUES)


def rows(
    kind: Listed, found: Iterable[Object], now: float, *, wide: bool, namespaces: bool
) -> list[list[str]]:
    """Return the cells of a table, its titles first; namespaces: whether to say where each object is."""
    columns = [one for one in kind.columns if wide or not one.wide]
    titles = ["NAMESPACE"] * namespaces + ["NAME", *(one.title for one in columns)]
    return [
        titles,
        *(
            [str(value(one, "metadata", "namespace") or NONE)] * namespaces
            + [str(value(one, "metadata", "name")), *(column.cell(one, now) for column in columns)]
            for one in found
        ),
    ]


def aligned(table: Sequence[Sequence[str]]) -> Iterable[str]:
    """Yield the lines of a table, its columns three blanks apart as kubectl's."""
    widths = [max(map(len, column)) + _GAP for column in zip(*table, strict=True)]
    for row in table:
        yield "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def duration(passed: float) -> str:
    """Write a time span as kubectl does: the larger it is, the coarser.

    Source: `HumanDuration` of k8s.io/apimachinery/pkg/util/duration.
    """
    whole = int(passed)
    if whole < -1:
        return "<invalid>"
    if whole < 120:
        return f"{max(0, whole)}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    for below, large, small in (
        (10, (minutes, "m"), (whole % 60, "s")),
        (180, (minutes, "m"), (0, "s")),
        (480, (hours, "h"), (minutes % 60, "m")),
        (2880, (hours, "h"), (0, "m")),
        (11_520, (days, "d"), (hours % 24, "h")),
        (2880 * 365, (days, "d"), (0, "h")),
        (11_520 * 365, (days // 365, "y"), (days % 365, "d")),
    ):
        if minutes < below:
            return f"{large[0]}{large[1]}" + (f"{small[0]}{small[1]}" if small[0] else "")
    return f"{days // 365}y"

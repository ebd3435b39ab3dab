"""PodGroups and Queues in columns like those of `kubectl get`, easy to read and to parse."""

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
    """A column of the list.

    Args:
      title: the heading, in capitals.
      cell: returns the text for an object at a time, in seconds since 1970.
      wide: true if only `-o wide` shows the column.
    """

    title: str
    cell: Callable[[Object, float], str]
    wide: bool = False


@dataclass(frozen=True, slots=True)
class ListedKind:
    """A kind that `batchsched get` lists.

    Args:
      plural: the name in API paths.
      kind: the kind of the objects.
      names: the names and short names that the command accepts.
      namespaced: true if the objects belong to namespaces.
      columns: the columns after NAME.
    """

    plural: str
    kind: str
    names: tuple[str, ...]
    namespaced: bool
    columns: tuple[Column, ...]


def value_at(content: Any, *path: str) -> Any:
    """Return the value at a path of nested mappings; None if a key is missing."""
    for part in path:
        content = content.get(part) if isinstance(content, Mapping) else None
    return content


def _text(*path: str, missing: str = NONE) -> Callable[[Object, float], str]:
    def cell(content: Object, _: float) -> str:
        field = value_at(content, *path)
        return missing if field in (None, "") else str(field)

    return cell


def _amounts(*path: str) -> Callable[[Object, float], str]:
    def cell(content: Object, _: float) -> str:
        amounts = value_at(content, *path)
        return ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items())) if amounts else NONE

    return cell


def _condition(kind: str, *fields: str) -> Callable[[Object, float], str]:
    def cell(content: Object, _: float) -> str:
        for condition in value_at(content, "status", "conditions") or ():
            if condition.get("type") == kind:
                return ": ".join(str(condition[name]) for name in fields if condition.get(name)) or NONE
        return UNKNOWN

    return cell


def _min_member(content: Object, _: float) -> str:
    """Return minMember: the larger of the stated number and the sum over the subgroups."""
    spec = value_at(content, "spec") or {}
    total = sum(sub.get("minMember", 1) for sub in spec.get("subGroups") or ())
    return str(max(spec.get("minMember", 0), total) or 1)


def _age(content: Object, now: float) -> str:
    created = seconds(value_at(content, "metadata", "creationTimestamp"), default=-1.0)
    return UNKNOWN if created < 0 else duration(now - created)


def _start(content: Object, now: float) -> str:
    """Return the time until the estimated start of a gang."""
    start = seconds(value_at(content, "status", "estimatedStartTime"), default=-1.0)
    if start < 0:
        return NONE
    return f"in {duration(start - now)}" if start > now else "now"


AGE: Final = Column("AGE", _age)
POD_GROUPS: Final = ListedKind(
    "podgroups",
    "PodGroup",
    ("podgroups", "podgroup", "pg"),
    namespaced=True,
    columns=(
        Column("PHASE", _text("status", "phase", missing=UNKNOWN)),
        Column("MIN", _min_member),
        Column("PLACED", _text("status", "placed", missing="0")),
        Column("RUNNING", _text("status", "running", missing="0")),
        Column("QUEUE", _text("spec", "queue", missing="default")),
        AGE,
        Column("POSITION", _text("status", "queuePosition"), wide=True),
        Column("START", _start, wide=True),
        Column("SCHEDULED", _condition("Scheduled", "reason", "message"), wide=True),
    ),
)
QUEUES: Final = ListedKind(
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
    kind: ListedKind, objects: Iterable[Object], now: float, *, wide: bool, namespaces: bool
) -> list[list[str]]:
    """Return the cells of a table, headings first.

    Args:
      kind: the kind of the objects.
      objects: the objects, one per row.
      now: seconds since 1970.
      wide: true to include the columns of `-o wide`.
      namespaces: true to add the NAMESPACE column.
    """
    columns = [column for column in kind.columns if wide or not column.wide]
    titles = ["NAMESPACE"] * namespaces + ["NAME", *(column.title for column in columns)]
    return [
        titles,
        *(
            [str(value_at(content, "metadata", "namespace") or NONE)] * namespaces
            + [str(value_at(content, "metadata", "name")), *(column.cell(content, now) for column in columns)]
            for content in objects
        ),
    ]


def aligned(table: Sequence[Sequence[str]]) -> Iterable[str]:
    """Yield the lines of a table, with at least three spaces between columns, as kubectl prints them."""
    widths = [max(map(len, column)) + _GAP for column in zip(*table, strict=True)]
    for row in table:
        yield "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def duration(passed: float) -> str:
    """Return a time span as kubectl formats it: the longer the span, the coarser the unit.

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

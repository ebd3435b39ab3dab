"""Output on standard output: any data as JSON or YAML, tables that fit the terminal, and decisions as tables."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from batchsched.api.core.pod import POD_GROUP_LABEL
from batchsched.api.core.quantity import format_quantity
from batchsched.api.decision import Decision, Refusal
from batchsched.api.snapshot import Snapshot
from batchsched.cli.options import OutputFormat
from batchsched.cli.terminal import colors_enabled

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from batchsched.cli.session import DecidedSession, Timings

INDENT = 2
MAX_ROWS: Final = 60
"""Maximum rows of one table of a decision; -o json prints all of them."""
_MAX_NODES: Final = 6
_COLUMN_GAP: Final = 3
_PIPE_WIDTH: Final = 10_000
"""Characters of a line outside a terminal: no text is wrapped in a pipe."""


def print_data(data: Any, output: OutputFormat) -> None:
    """Print data on standard output as JSON or YAML.

    Args:
      data: A Struct, or plain values.
      output: JSON or YAML.
    """
    encoded = msgspec.json.encode(data)
    if output is OutputFormat.JSON:
        text = msgspec.json.format(encoded, indent=INDENT).decode()
    else:
        import yaml

        text = yaml.dump(
            msgspec.json.decode(encoded), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True
        ).rstrip("\n")
    sys.stdout.write(text + "\n")


def console(*, stderr: bool = False) -> "Console":
    """Return a rich console on standard output or standard error. It wraps lines on a terminal, or to COLUMNS."""
    from rich.console import Console

    enabled = colors_enabled()
    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(
        stderr=stderr,
        highlight=False,
        markup=False,
        soft_wrap=False,
        width=None if is_terminal or "COLUMNS" in os.environ else _PIPE_WIDTH,
        force_terminal=enabled or None,
        color_system="standard" if enabled else None,
    )


def new_table(title: str, *columns: str) -> "Table":
    """Return a terminal table with headings and without rows.

    Headings are plain text, so that a name from a manifest cannot act as markup.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in columns:
        made.add_column(Text(column), overflow="fold")
    return made


def add_row(made: "Table", *cells: str) -> None:
    """Add a row of plain text to a terminal table."""
    from rich.text import Text

    made.add_row(*(Text(cell) for cell in cells))


def print_aligned(rows: Sequence[Sequence[str]], indent: str = "") -> None:
    """Print rows of cells as aligned columns with three spaces between them, as kubectl does."""
    widths = [max(map(len, column)) + _COLUMN_GAP for column in zip(*rows, strict=True)]
    for row in rows:
        line = "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(indent + line.rstrip())


def format_duration(passed: float) -> str:
    """Format a duration in seconds as kubectl does: the longer the duration, the coarser the unit.

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


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Format resource amounts as text, such as `16 nvidia.com/gpu, 64Gi memory`."""
    return ", ".join(
        f"{format_quantity(resource, amount)} {resource}" for resource, amount in amounts.items()
    )


def nodes_text(pods: Iterable[tuple[str, str]], most: int = _MAX_NODES) -> str:
    """Format the nodes of pods as text with the number of pods on each node, such as `n1 ×8, n2 ×4`."""
    counts = Counter(node for _, node in pods)
    shown = [node if count == 1 else f"{node} ×{count}" for node, count in list(counts.items())[:most]]
    more = len(counts) - most
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def print_decision(session: "DecidedSession") -> None:
    """Print a session's placed, waiting and refused gangs, its evictions, and the solver's time and optimality gap."""
    decision = session.decision
    gangs = placed_pods(decision, session.snapshot)
    out = console()
    for title, columns, rows in _decision_tables(decision, gangs):
        if rows:
            out.print(_filled(title, columns, rows))
    out.print(_summary(decision, len(gangs), len(session.snapshot.nodes)))
    out.print(_account(decision))


def placed_pods(decision: Decision, snapshot: Snapshot) -> dict[str, list[tuple[str, str]]]:
    """Return the pods that a decision places, as (pod, node) pairs grouped by `namespace/name` of their PodGroup.

    A pod without a PodGroup has its own `namespace/name`.
    """
    groups = {pod.key: pod.labels.get(POD_GROUP_LABEL, "") for pod in snapshot.pods if not pod.node}
    placed: dict[str, list[tuple[str, str]]] = {}
    for assignment in decision.assignments:
        pod = f"{assignment.namespace}/{assignment.pod}"
        group = groups.get(pod, "")
        placed.setdefault(f"{assignment.namespace}/{group}" if group else pod, []).append(
            (assignment.pod, assignment.node)
        )
    return placed


_Rows = list[tuple[str, ...]]


def _decision_tables(
    decision: Decision, gangs: dict[str, list[tuple[str, str]]]
) -> Iterable[tuple[str, tuple[str, ...], _Rows]]:
    """Yield the title, the columns and the rows of each part of a decision."""
    placed: _Rows = [(group, str(len(pods)), nodes_text(pods)) for group, pods in gangs.items()]
    yield "Placed", ("PodGroup", "Pods", "Nodes"), placed
    held: _Rows = [(entry.pod_group, entry.plugin, entry.until) for entry in decision.waiting]
    yield "Waiting at Permit", ("PodGroup", "Held by", "Until"), held
    refused: _Rows = [(f"{entry.pod_group}\n{entry.reason}", _why(entry)) for entry in decision.refusals]
    yield "Refused", ("PodGroup, and reason", "Explanation, and what would help"), refused
    evicted: _Rows = [
        (f"{entry.namespace}/{entry.pod}", entry.for_, entry.reason) for entry in decision.evictions
    ]
    yield "Evicted", ("Pod", "For", "Reason"), evicted
    nominated: _Rows = [(f"{entry.namespace}/{entry.pod}", entry.node) for entry in decision.nominations]
    yield "Nominated", ("Pod", "Reserved node"), nominated
    reserved: _Rows = [(entry.pod_group, entry.start) for entry in decision.reservations]
    yield "Reserved", ("PodGroup", "Earliest start"), reserved
    aside: _Rows = [(entry.object or entry.file, entry.field, entry.message) for entry in decision.set_aside]
    yield "Set aside", ("Object", "Field", "Why"), aside


def print_timings(timings: "Timings") -> None:
    """Print the total durations of plugin calls on standard error, the longest first."""
    slowest = sorted(timings.items(), key=lambda item: -item[1][1])
    rows = [
        (plugin, point, str(calls), f"{seconds * 1e3:.2f}", f"{seconds / calls * 1e6:.0f}")
        for (plugin, point), (calls, seconds) in slowest
    ]
    columns = ("Plugin", "Point", "Calls", "ms", "µs a call")
    console(stderr=True).print(_filled("Plugins, in a tenth of the cycles", columns, rows))


def _filled(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> "Table":
    made = new_table(title, *columns)
    for row in rows[:MAX_ROWS]:
        add_row(made, *row)
    if len(rows) > MAX_ROWS:
        add_row(made, f"and {len(rows) - MAX_ROWS} more", *("" for _ in columns[1:]))
    return made


def _why(refusal: Refusal) -> str:
    parts = [refusal.message]
    if refusal.missing:
        parts.append(f"missing: {amounts_text(refusal.missing)}")
    if refusal.relaxation:
        parts.append(f"would help: {refusal.relaxation}")
    return "\n".join(parts)


def _summary(decision: Decision, gangs: int, nodes: int) -> str:
    parts = [f"{gangs} placed ({len(decision.assignments)} pods)"]
    if decision.waiting:
        parts.append(f"{len(decision.waiting)} waiting")
    parts.append(f"{len(decision.refusals)} refused")
    if decision.set_aside:
        parts.append(f"{len(decision.set_aside)} set aside")
    return f"PodGroups: {', '.join(parts)}; {nodes} nodes"


def _account(decision: Decision) -> str:
    account = decision.solver
    sentence = f"Solved in {account.seconds:.2f} s"
    if account.tiers:
        count = len(account.tiers)
        sentence += f", {count} {'tier' if count == 1 else 'tiers'}, {account.gap:.2%} from the bound"
    if account.guard:
        sentence += "; the wall-clock guard fired, the decision may not repeat"
    return sentence

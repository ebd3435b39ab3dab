"""Functions that print on standard output: data as JSON or YAML, tables, and decisions."""

import io
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, TextIO, cast

import msgspec
from typing_extensions import override

from batchsched.api.core.quantity import format_quantity, pluralize
from batchsched.api.decision import Decision, refusal_text
from batchsched.api.gang import gang_key_of_pod
from batchsched.api.snapshot import Snapshot
from batchsched.cli.options import OutputFormat
from batchsched.cli.terminal import colors_enabled, stdout_is_utf8

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from batchsched.cli.session import DecidedSession, Timings

INDENT = 2
NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
"""The cell of a table without a value, as for kubectl."""
_MAX_NODES: Final = 6
_PROVED_GAP: Final = 5e-5
"""Optimality gap that would be printed as 0.00 %."""
_WIDE_TITLES: Final = ("MISSING", "WOULD HELP")
_COLORS: Final = {
    **dict.fromkeys(("Placed", "Running", "Succeeded"), "green"),
    **dict.fromkeys(("Waiting", "Nominated", "Reserved", "Pending"), "yellow"),
    **dict.fromkeys(("Refused", "Evicted", "SetAside", "Failed"), "red"),
}
"""Colours by the result or the phase that a row contains."""
COLUMN_GAP: Final = 3
"""Spaces between two columns of a table."""
_PIPE_WIDTH: Final = 10_000
"""Characters of a line outside a terminal: no text is wrapped in a pipe."""


def print_data(data: Any, output: OutputFormat) -> None:
    """Print data on standard output as JSON, as YAML, or as the text that a JSONPath template produces.

    Args:
      data: A Struct, or plain values.
      output: JSON, YAML or JSONPath.
    """
    encoded = msgspec.json.encode(data)
    if output.template is not None:
        sys.stdout.write(output.template.render(msgspec.json.decode(encoded)) + "\n")
    elif output is OutputFormat.YAML:
        import yaml

        text = yaml.dump(
            msgspec.json.decode(encoded),
            Dumper=yaml.CSafeDumper,
            sort_keys=False,
            allow_unicode=stdout_is_utf8(),
        )
        sys.stdout.write(text)
    elif stdout_is_utf8():
        sys.stdout.write(msgspec.json.format(encoded, indent=INDENT).decode() + "\n")
    else:
        sys.stdout.write(json.dumps(msgspec.json.decode(encoded), indent=INDENT) + "\n")


class _TrimmedStream(io.TextIOBase):
    """A stream that removes the spaces at the ends of lines and writes the lines to another stream.

    The library rich pads the lines of tables with spaces.

    Args:
      stream: the other stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rest = ""

    @override
    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        self._stream.writelines(line.rstrip(" ") + "\n" for line in lines)
        return len(text)

    @override
    def flush(self) -> None:
        self._stream.flush()


def output_width() -> int | None:
    """Return the width of standard output in columns; None if lines of any width may be printed.

    The variable COLUMNS overrides the width of the terminal. The result is None if standard output is a pipe or a file
    and COLUMNS is not set.
    """
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return None


def console(*, stderr: bool = False) -> "Console":
    """Return a rich console for standard output or standard error.

    It wraps lines at the width of the terminal, or at the variable COLUMNS.
    """
    from rich.console import Console

    enabled = colors_enabled()
    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream.isatty()
    return Console(
        file=None if is_terminal else cast("IO[str]", _TrimmedStream(stream)),
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
    """Add a row of cells with plain text to a terminal table."""
    from rich.text import Text

    made.add_row(*(Text(cell) for cell in cells))


def column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return for each column the length of its longest cell in characters."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def print_aligned(
    rows: Sequence[Sequence[str]],
    indent: str = "",
    *,
    headers: bool = True,
    widths: Sequence[int] | None = None,
) -> None:
    """Print rows of cells as aligned columns with three spaces between them, one line per row, as kubectl does.

    Args:
      rows: the rows of cells; the first row contains the headings.
      indent: text before each line.
      headers: false to leave the headings out.
      widths: widths of the columns in characters; None: those of the longest cells.
    """
    widths = column_widths(rows) if widths is None else widths
    colored = colors_enabled()
    for number, row in enumerate(rows):
        if number == 0 and not headers:
            continue
        # Line breaks of a message would split the row.
        cells = [cell.replace("\n", " ").ljust(width) for cell, width in zip(row, widths, strict=True)]
        line = (indent + (" " * COLUMN_GAP).join(cells)).rstrip()
        print(_colored(line, row, is_header=number == 0) if colored else line)


def _colored(line: str, row: Sequence[str], *, is_header: bool) -> str:
    """Return a line of a table in the color for the result in the row, or in bold if it is the heading."""
    import typer

    if is_header:
        return typer.style(line, bold=True)
    color = next((_COLORS[cell] for cell in row if cell in _COLORS), None)
    return line if color is None else typer.style(line, fg=color)


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


def format_resource_amounts(amounts: Mapping[str, int]) -> str:
    """Format resource amounts as text, such as `16 nvidia.com/gpu, 64Gi memory`."""
    return ", ".join(
        f"{format_quantity(resource, amount)} {resource}" for resource, amount in amounts.items()
    )


def format_pod_counts_by_node(pods: Iterable[tuple[str, str]], most: int = _MAX_NODES) -> str:
    """Format (pod, node) pairs as the number of pods on each node, such as `n1 ×8, n2 ×4`."""
    counts = Counter(node for _, node in pods)
    shown = [node if count == 1 else f"{node} ×{count}" for node, count in list(counts.items())[:most]]
    more = len(counts) - most
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def print_decision(
    session: "DecidedSession", output: OutputFormat = OutputFormat.TABLE, *, headers: bool = True
) -> None:
    """Print one line for each gang, eviction, nomination, reservation and set-aside object of a session.

    The summary, the solver's time and the optimality gap go to standard error.

    Args:
      session: the session.
      output: table; wide: with all nodes, and with columns for what is missing and what would help; or names.
      headers: false to leave the headings out.
    """
    decision = session.decision
    gangs = placements_by_gang(decision, session.snapshot)
    if output is OutputFormat.NAME:
        groups = {group.key for group in session.snapshot.pod_groups}
        names = [*gangs, *(entry.pod_group for entry in decision.waiting)]
        names += [refusal.pod_group for refusal in decision.refusals]
        for name in names:
            print(f"{'podgroup' if name in groups else 'pod'}/{name}")
        return
    rows = list(_decision_rows(decision, gangs, wide=output is OutputFormat.WIDE))
    titles = ("NAME", "RESULT", "REASON", *(_WIDE_TITLES if output is OutputFormat.WIDE else ()), "MESSAGE")
    if rows:
        print_aligned([titles, *rows], headers=headers)
    print(_summary(decision, len(gangs), len(session.snapshot.nodes)), file=sys.stderr)
    print(_account(session), file=sys.stderr)


def placements_by_gang(decision: Decision, snapshot: Snapshot) -> dict[str, list[tuple[str, str]]]:
    """Return the pods that a decision places, as (pod, node) pairs grouped by `namespace/name` of their PodGroup.

    A pod without a PodGroup has its own `namespace/name`.
    """
    gangs = {pod.key: gang_key_of_pod(pod) for pod in snapshot.pods if not pod.node_name}
    placed: dict[str, list[tuple[str, str]]] = {}
    for assignment in decision.assignments:
        gang = gangs.get(assignment.pod_key, assignment.pod_key)
        placed.setdefault(gang, []).append((assignment.pod, assignment.node))
    return placed


def refused_gangs_with_evictions(decision: Decision) -> frozenset[str]:
    """Return the refused gangs for which the decision evicts pods.

    These gangs can start after the evicted pods have terminated.
    """
    refused = {entry.pod_group for entry in decision.refusals}
    return frozenset(entry.for_ for entry in decision.evictions) & refused


def _decision_rows(
    decision: Decision, gangs: Mapping[str, Sequence[tuple[str, str]]], *, wide: bool
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of a decision: name, result, reason and message."""
    gap = (NONE,) * len(_WIDE_TITLES) if wide else ()
    for group, pods in gangs.items():
        nodes = format_pod_counts_by_node(pods, len(pods) if wide else _MAX_NODES)
        yield (group, "Placed", NONE, *gap, f"{pluralize(len(pods), 'pod')}: {nodes}")
    for entry in decision.waiting:
        yield (entry.pod_group, "Waiting", entry.plugin, *gap, f"held at Permit until {entry.until}")
    preempting = refused_gangs_with_evictions(decision)
    for refusal in decision.refusals:
        result = "Preempting" if refusal.pod_group in preempting else "Refused"
        if wide:
            changes = (format_resource_amounts(refusal.missing) or NONE, refusal.relaxation or NONE)
            yield (refusal.pod_group, result, refusal.reason, *changes, refusal.message)
        else:
            yield (refusal.pod_group, result, refusal.reason, refusal_text(refusal))
    for eviction in decision.evictions:
        pod = eviction.pod_key
        yield (pod, "Evicted", eviction.reason, *gap, f"for {eviction.for_}")
    for nomination in decision.nominations:
        pod = nomination.pod_key
        yield (pod, "Nominated", NONE, *gap, f"waits for node {nomination.node}")
    for reservation in decision.reservations:
        yield (
            reservation.pod_group,
            "Reserved",
            NONE,
            *gap,
            f"starts at {reservation.start} at the earliest",
        )
    for record in decision.set_aside:
        kind, _, name = record.object.partition(" ")
        place = f"{kind.lower()}/{name}" if name else record.file
        yield (place, "SetAside", record.field or NONE, *gap, record.message)


def print_plugin_timings(timings: "Timings") -> None:
    """Print the total durations of the measured plugin calls on standard error, the longest first."""
    slowest = sorted(timings.items(), key=lambda item: -item[1][1])
    rows = [
        (plugin, point, str(calls), f"{seconds * 1e3:.2f}", f"{seconds / calls * 1e6:.0f}")
        for (plugin, point), (calls, seconds) in slowest
    ]
    columns = ("Plugin", "Point", "Calls", "ms", "µs a call")
    made = new_table("Plugins, in a tenth of the cycles", *columns)
    for row in rows:
        add_row(made, *row)
    console(stderr=True).print(made)


def _summary(decision: Decision, gangs: int, nodes: int) -> str:
    parts = [f"{gangs} placed ({pluralize(len(decision.assignments), 'pod')})"]
    if decision.waiting:
        parts.append(f"{len(decision.waiting)} waiting")
    preempting = refused_gangs_with_evictions(decision)
    if preempting:
        parts.append(f"{len(preempting)} starting after evictions")
    parts.append(f"{len(decision.refusals) - len(preempting)} refused")
    if decision.set_aside:
        parts.append(f"{len(decision.set_aside)} set aside")
    return f"PodGroups: {', '.join(parts)}; {pluralize(nodes, 'node')}"


def _account(session: "DecidedSession") -> str:
    account = session.decision.solver
    sentence = f"Solved in {session.seconds:.2f} s"
    if account.tiers:
        proved = account.gap < _PROVED_GAP
        sentence += "; proved optimal" if proved else f"; at most {account.gap:.2%} below the optimum"
    if account.guard:
        sentence += "; the wall-clock guard fired, the decision may not repeat"
    return sentence

"""Traces in the Standard Workload Format: rigid parallel jobs on a cluster of equal one-slot nodes.

Source: Chapin et al., Benchmarks and Standards for the Evaluation of Parallel Job Schedulers, JSSPP 1999; fields as
numbered by the Parallel Workloads Archive (1 job, 2 submit, 4 run time, 5 allocated processors, 8 requested
processors, 9 requested time).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batchsched.api.snapshot import Snapshot
from batchsched.errors import InvalidInput
from batchsched.simulator.trace_text import open_text
from batchsched.simulator.workload import GangShape, Workload, nodes, pod_spec, rigid

FIELDS: Final = 18
CPU: Final = {"cpu": "1"}


@dataclass(frozen=True, slots=True)
class SwfRow:
    """One line of a trace: seconds, and processors."""

    number: int
    submit: int
    runtime: int
    size: int
    estimate: int


@dataclass(frozen=True, slots=True)
class Swf:
    """A trace: its rows in the order of the file, and the processors that its header states, 0 when it does not."""

    rows: tuple[SwfRow, ...]
    processors: int


def read(path: Path) -> Swf:
    """Read a trace, gzipped or not. Rows that never ran (no run time, or no processors) are passed over.

    Raises:
      InvalidInput: a line that is not of the format, with its number.
    """
    rows = []
    processors = 0
    with open_text(path) as lines:
        for at, line in enumerate(lines, start=1):
            text = line.strip()
            if text.startswith(";"):
                processors = _stated(text, processors)
            elif text:
                row = _row(text, f"{path}:{at}")
                if row is not None:
                    rows.append(row)
    return Swf(tuple(rows), processors)


def _stated(comment: str, known: int) -> int:
    name, _, value = comment.lstrip("; ").partition(":")
    value = value.strip()
    if name.strip() in ("MaxProcs", "MaxNodes") and value.isdigit():
        return int(value) if name.strip() == "MaxProcs" or not known else known
    return known


def _row(text: str, place: str) -> SwfRow | None:
    try:
        fields = [float(field) for field in text.split()]
    except ValueError as error:
        raise InvalidInput("expected numbers only", file=place) from error
    if not all(map(math.isfinite, fields)):
        raise InvalidInput("expected finite numbers only", file=place)
    if len(fields) < 5:
        raise InvalidInput(f"expected the {FIELDS} fields of the format, found {len(fields)}", file=place)
    fields += [-1.0] * (FIELDS - len(fields))
    runtime, size = fields[3], fields[4] if fields[4] > 0 else fields[7]
    if runtime < 0 or size <= 0:
        return None
    requested = fields[8] if fields[8] > 0 else runtime
    return SwfRow(int(fields[0]), int(fields[1]), math.ceil(runtime), int(size), math.ceil(requested))


def workload(rows: Sequence[SwfRow], processors: int, name: str) -> Workload:
    """Make a workload of rows: each a gang of equal pods that ask for one processor.

    Args:
      rows: by submission.
      processors: one-slot nodes of the cluster.
      name: how reports call it.

    Raises:
      InvalidInput: a row that is larger than the cluster.
    """
    wide = next((row for row in rows if row.size > processors), None)
    if wide is not None:
        raise InvalidInput(
            f"asks for {wide.size} processors, the cluster has {processors}", object=f"row {wide.number}"
        )
    spec = pod_spec(CPU)
    # Jobs of one second keep the order of their numbers, since names decide between gangs of one age.
    width = len(str(max((row.number for row in rows), default=0)))
    arrivals = tuple(
        rigid(
            GangShape(f"j{row.number:0{width}d}", ((spec, row.size),), row.estimate), row.submit, row.runtime
        )
        for row in rows
    )
    cluster = Snapshot(nodes=nodes(processors, CPU, prefix="slot"))
    return Workload(name, cluster, tuple(sorted(arrivals, key=lambda one: one.at)))

"""Reads traces in the Standard Workload Format: parallel jobs on a cluster of nodes with one processor each.

Source: Chapin et al., Benchmarks and Standards for the Evaluation of Parallel Job Schedulers, JSSPP 1999; fields as
numbered by the Parallel Workloads Archive (1 job, 2 submit, 4 run time, 5 allocated processors, 8 requested
processors, 9 requested time, 11 status).
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batchsched.api.snapshot import Snapshot
from batchsched.errors import InvalidInput
from batchsched.simulator.workload import (
    TraceGang,
    Workload,
    create_nodes,
    create_pod_spec,
    create_rigid_arrival,
    open_trace_file,
)

FIELDS: Final = 18
CPU: Final = {"cpu": "1"}
PARTIAL_EXECUTIONS: Final = (2, 3, 4)
"""The statuses of rows for a part of a job between two interruptions. The job has another row, with the sum of them."""


@dataclass(frozen=True, slots=True)
class SwfJob:
    """A job of a trace in the Standard Workload Format, with times in seconds and a number of processors."""

    number: int
    submit: int
    runtime: int
    size: int
    estimate: int


@dataclass(frozen=True, slots=True)
class SwfTrace:
    """A trace in the Standard Workload Format: its jobs in file order, and the cluster's processor count.

    The number of processors is 0 if the trace does not state it.
    """

    rows: tuple[SwfJob, ...]
    processors: int


def read_trace(path: Path) -> SwfTrace:
    """Read a trace in the Standard Workload Format, optionally gzipped.

    Rows without run time or without processors are skipped, and rows of partial executions: as the format demands for
    studies of workloads, only the row of the whole job counts.

    Raises:
      InvalidInput: a line has the wrong format; the message contains its number.
    """
    rows = []
    processors = 0
    with open_trace_file(path) as lines:
        for number, line in enumerate(lines, start=1):
            text = line.strip()
            if text.startswith(";"):
                processors = _processors_of(text, processors)
            elif text:
                row = _row(text, f"{path}:{number}")
                if row is not None:
                    rows.append(row)
    return SwfTrace(tuple(rows), processors)


def _processors_of(comment: str, processors: int) -> int:
    name, _, value = comment.lstrip("; ").partition(":")
    value = value.strip()
    if name.strip() in ("MaxProcs", "MaxNodes") and value.isdigit():
        return int(value) if name.strip() == "MaxProcs" or not processors else processors
    return processors


def _row(text: str, place: str) -> SwfJob | None:
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
    if runtime < 0 or size <= 0 or fields[10] in PARTIAL_EXECUTIONS:
        return None
    requested = fields[8] if fields[8] > 0 else runtime
    return SwfJob(int(fields[0]), int(fields[1]), math.ceil(runtime), int(size), math.ceil(requested))


def create_workload(rows: Sequence[SwfJob], processors: int, name: str) -> Workload:
    """Create a workload from jobs of an SWF trace: each job is a gang of equal pods that request one processor each.

    Each row is a job of its own, also if its number repeats.

    Args:
      rows: the jobs, ordered by submission.
      processors: number of nodes, each with one processor.
      name: name of the workload in reports.

    Raises:
      InvalidInput: a job is larger than the cluster.
    """
    wide = next((row for row in rows if row.size > processors), None)
    if wide is not None:
        raise InvalidInput(
            f"asks for {wide.size} processors, the cluster has {processors}; set processors to {wide.size} or more",
            object=f"row {wide.number}",
        )
    spec = create_pod_spec(CPU)
    arrivals = tuple(
        create_rigid_arrival(TraceGang(name, ((spec, row.size),), row.estimate), row.submit, row.runtime)
        for name, row in zip(_gang_names(rows), rows, strict=True)
    )
    cluster = Snapshot(nodes=create_nodes(processors, CPU, prefix="slot"))
    return Workload(name, cluster, tuple(sorted(arrivals, key=lambda arrival: arrival.time)))


def _gang_names(rows: Sequence[SwfJob]) -> Iterator[str]:
    """Yield a name for each job: its number, with a suffix if earlier jobs have the same number."""
    # Jobs of one second keep the order of their numbers, because names break ties between gangs of equal age.
    width = len(str(max((row.number for row in rows), default=0)))
    counts: Counter[int] = Counter()
    for row in rows:
        counts[row.number] += 1
        count = counts[row.number]
        yield f"j{row.number:0{width}d}" + (f".{count}" if count > 1 else "")

"""Reads Microsoft's Philly trace: GPU jobs of deep-learning teams on nodes with eight GPUs.

Files as prepared by the Helios project: a CSV (possibly gzipped) with timestamp, duration, num_gpus and cluster (the
virtual cluster, our queue). Up to eight GPUs are one pod; more are pods of eight and one with the remainder, together
one gang.

Source: Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, ATC 2019.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from math import inf
from pathlib import Path
from typing import Final, TextIO

from batchsched.api.crd.base import CustomMeta
from batchsched.api.crd.queue import Queue
from batchsched.api.snapshot import Snapshot
from batchsched.errors import InvalidInput
from batchsched.simulator.workload import (
    TraceGang,
    Workload,
    create_nodes,
    create_pod_spec,
    create_rigid_arrival,
    open_trace_file,
    split_gpus_into_pods,
)

GPU: Final = "nvidia.com/gpu"
COLUMNS: Final = ("timestamp", "duration", "num_gpus", "cluster")


@dataclass(frozen=True, slots=True, order=True)
class PhillyJob:
    """A job of the Philly trace, with its submission time, run time, number of GPUs and virtual cluster.

    The submission is in seconds since 1970, the run time in seconds.
    """

    submit: int
    duration: int
    gpus: int
    queue: str


def read_trace(path: Path, first: float = -inf, last: float = inf) -> tuple[PhillyJob, ...]:
    """Read the Philly trace, sorted by submission, then by duration, then by size.

    The file itself is not sorted.

    Args:
      path: the CSV, optionally gzipped.
      first: the first second of arrivals to include, since 1970.
      last: the last second of arrivals to include.

    Raises:
      InvalidInput: a column is missing, or a line is invalid.
    """
    with open_trace_file(path) as text:
        rows = [row for row in _rows(text, str(path)) if first <= row.submit <= last]
    return tuple(sorted(rows))


def read_virtual_cluster_names(path: Path) -> tuple[str, ...]:
    """Read the names of virtual clusters of the Philly trace from the first column of a CSV with a header.

    Raises:
      InvalidInput: the file is empty.
    """
    with open_trace_file(path) as text:
        lines = list(csv.reader(text))
    if len(lines) < 2:
        raise InvalidInput("expected a header and a line for each virtual cluster", file=str(path))
    return tuple(line[0] for line in lines[1:] if line)


def _rows(text: TextIO, name: str) -> Iterator[PhillyJob]:
    lines = csv.DictReader(text)
    missing = [column for column in COLUMNS if column not in (lines.fieldnames or ())]
    if missing:
        raise InvalidInput(
            f"has no column {', '.join(missing)}; expected a CSV file with a header and the columns "
            f"{', '.join(COLUMNS)}",
            file=name,
        )
    for line in lines:
        if not line["timestamp"] or not line["num_gpus"]:
            continue
        place = f"{name}:{lines.line_num}"
        row = PhillyJob(
            _field(line, "timestamp", _seconds, "a time such as 2017-10-01 00:07:00", place),
            _field(line, "duration", _duration, "a number of seconds, 0 or more", place),
            _field(line, "num_gpus", int, "a whole number", place),
            line["cluster"] or "",
        )
        if row.gpus > 0:
            yield row


def _field(
    line: Mapping[str, str | None], column: str, parse: Callable[[str], int], expected: str, place: str
) -> int:
    """Return the parsed value of a column in a line of the trace.

    Raises:
      InvalidInput: the value cannot be read.
    """
    text = line[column] or ""
    try:
        return parse(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"cannot be read: expected {expected}, found {text!r}", file=place, field=column
        ) from error


def _seconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _duration(text: str) -> int:
    seconds = int(float(text))
    if seconds < 0:
        raise ValueError("negative")
    return seconds


def create_workload(
    rows: Sequence[PhillyJob], node_count: int, gpus_per_node: int, name: str, queue_of: Mapping[str, str]
) -> Workload:
    """Create a workload from jobs of the Philly trace, with a cluster of equal nodes.

    The run time of each job is also its estimate.

    Args:
      rows: the jobs, ordered by submission.
      node_count: number of nodes.
      gpus_per_node: devices per node.
      name: name of the workload in reports.
      queue_of: the queue of each virtual cluster in the rows.
    """
    spec = cache(lambda gpus: create_pod_spec({GPU: str(gpus)}))
    # Names sort like rows, because they break ties between gangs of equal age.
    digits = len(str(max(0, len(rows) - 1)))
    arrivals = []
    for number, row in enumerate(rows):
        pods = tuple((spec(gpus), count) for gpus, count in split_gpus_into_pods(row.gpus, gpus_per_node))
        shape = TraceGang(f"p{number:0{digits}d}", pods, row.duration, queue_of[row.queue])
        arrivals.append(create_rigid_arrival(shape, row.submit, row.duration))
    cluster = Snapshot(
        nodes=create_nodes(node_count, {GPU: str(gpus_per_node)}),
        queues=tuple(Queue(metadata=CustomMeta(name=queue)) for queue in sorted({*queue_of.values()})),
    )
    return Workload(name, cluster, tuple(arrivals))

"""Microsoft's Philly trace: GPU jobs of deep-learning teams on nodes of eight GPUs.

Files as prepared by the Helios project: a CSV (possibly gzipped) with timestamp, duration, num_gpus and cluster (the
virtual cluster, our queue). Up to eight GPUs are one pod; more are pods of eight and one with the remainder, together
one gang.

Source: Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, ATC 2019.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final, TextIO

from batchsched.api.core.pod import PodSpec
from batchsched.api.crd.base import CustomMeta
from batchsched.api.crd.podgroup import DEFAULT_QUEUE
from batchsched.api.crd.queue import Queue
from batchsched.api.snapshot import Snapshot
from batchsched.errors import InvalidInput
from batchsched.simulator.trace_text import open_text
from batchsched.simulator.workload import Arrival, GangShape, Workload, nodes, pod_spec, rigid

GPU: Final = "nvidia.com/gpu"
COLUMNS: Final = ("timestamp", "duration", "num_gpus", "cluster")


@dataclass(frozen=True, slots=True, order=True)
class PhillyRow:
    """One job: submission in seconds since 1970, run time in seconds, devices, and virtual cluster."""

    submit: int
    duration: int
    gpus: int
    queue: str


@dataclass(frozen=True, slots=True)
class Period:
    """The period of arrivals to include: two times in seconds since 1970, both included."""

    first: float = float("-inf")
    last: float = float("inf")


def read(path: Path, queues: Sequence[str] = (), period: Period = Period()) -> tuple[PhillyRow, ...]:
    """Read a trace, sorted by submission, then duration, then size. The file itself is not sorted.

    Args:
      path: the CSV, optionally gzipped.
      queues: virtual clusters to include; () means all.
      period: the arrivals to include.

    Raises:
      InvalidInput: a column is missing, or a line is invalid.
    """
    kept = frozenset(queues)
    with open_text(path) as text:
        return tuple(
            sorted(
                row
                for row in _rows(text, str(path))
                if (not kept or row.queue in kept) and period.first <= row.submit <= period.last
            )
        )


def read_queues(path: Path) -> tuple[str, ...]:
    """Read the names of virtual clusters from the first column of a CSV with a header.

    Raises:
      InvalidInput: the file is empty.
    """
    with open_text(path) as text:
        lines = list(csv.reader(text))
    if len(lines) < 2:
        raise InvalidInput("expected a header and a line for each virtual cluster", file=str(path))
    return tuple(line[0] for line in lines[1:] if line)


def _rows(text: TextIO, name: str) -> Iterator[PhillyRow]:
    lines = csv.DictReader(text)
    missing = [column for column in COLUMNS if column not in (lines.fieldnames or ())]
    if missing:
        raise InvalidInput(f"has no column {', '.join(missing)}", file=name)
    for line in lines:
        if not line["timestamp"] or not line["num_gpus"]:
            continue
        try:
            moment = datetime.fromisoformat(line["timestamp"])
            row = PhillyRow(
                int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()),
                int(float(line["duration"])),
                int(line["num_gpus"]),
                line["cluster"],
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidInput(f"cannot be read: {error}", file=f"{name}:{lines.line_num}") from error
        if row.gpus > 0:
            yield row


def workload(
    rows: Sequence[PhillyRow],
    node_count: int,
    gpus_per_node: int,
    name: str,
    *,
    pooled: bool = True,
    teams: Mapping[str, str] = MappingProxyType({}),
) -> Workload:
    """Create a workload of jobs on equal nodes, with the duration as estimate.

    Args:
      rows: the jobs, ordered by submission.
      node_count: number of nodes.
      gpus_per_node: devices per node.
      name: name of the workload in reports.
      pooled: put all gangs into one queue; otherwise each virtual cluster is a queue.
      teams: queue names of virtual clusters; the default is vc-NAME.
    """
    clusters = () if pooled else sorted({row.queue for row in rows})
    queues = {one: teams.get(one, f"vc-{one}") for one in clusters}
    maker = _Maker(gpus_per_node, queues, len(str(max(0, len(rows) - 1))))
    arrivals = tuple(maker.arrival(number, row) for number, row in enumerate(rows))
    cluster = Snapshot(
        nodes=nodes(node_count, {GPU: str(gpus_per_node)}),
        queues=tuple(Queue(metadata=CustomMeta(name=one)) for one in sorted({*queues.values()})),
    )
    return Workload(name, cluster, arrivals)


class _Maker:
    """Creates gangs; pods of one size share a spec. Names sort like rows, because they break ties between gangs."""

    def __init__(self, gpus_per_node: int, queues: Mapping[str, str], digits: int) -> None:
        self._whole = gpus_per_node
        self._queues = queues
        self._digits = digits
        self._specs: dict[int, PodSpec] = {}

    def arrival(self, number: int, row: PhillyRow) -> Arrival:
        whole, rest = divmod(row.gpus, self._whole)
        pods = []
        if whole:
            pods.append((self._spec(self._whole), whole))
        if rest:
            pods.append((self._spec(rest), 1))
        name = f"p{number:0{self._digits}d}"
        shape = GangShape(name, tuple(pods), row.duration, self._queues.get(row.queue, DEFAULT_QUEUE))
        return rigid(shape, row.submit, row.duration)

    def _spec(self, gpus: int) -> PodSpec:
        return self._specs.setdefault(gpus, pod_spec({GPU: str(gpus)}))

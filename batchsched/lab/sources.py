"""Workloads of scenarios, created in the process of the run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from batchsched.errors import InvalidInput
from batchsched.lab.plan import Run
from batchsched.lab.scenario import (
    EVERYONE,
    GeneratedSource,
    ManifestSource,
    PhillySource,
    SessionSource,
    SwfSource,
    Window,
)
from batchsched.lab.simulation import generated
from batchsched.manifests.reader import read as read_manifests
from batchsched.record.file import read as read_session
from batchsched.simulator import from_snapshot as given
from batchsched.simulator import philly, swf
from batchsched.simulator.comparison import window_starts
from batchsched.simulator.generator import Recipe
from batchsched.simulator.outages import draw_outages
from batchsched.simulator.workload import Workload

HOUR: Final = 3600.0
Row = TypeVar("Row")


def workload(run: Run) -> Workload:
    """Create the workload of a run, with the queues of the run.

    Raises:
      InvalidInput: A file cannot be used, or a window begins after the end of its trace.
    """
    made = _made(run)
    cluster = replace(made.cluster, queues=run.laid_out(made.cluster.queues))
    made = replace(made, name=run.workload.name, cluster=cluster)
    failures = run.cluster.failures
    if failures is None or made.outages or not made.arrivals:
        return made
    last = max(one.at + one.runtime for one in made.arrivals)
    outages = draw_outages(
        cluster.nodes,
        failures.hours_between * HOUR,
        failures.hours_to_repair * HOUR,
        (made.arrivals[0].at, last),
        run.seed,
    )
    return replace(made, outages=outages)


def _made(run: Run) -> Workload:
    makers: dict[str, Callable[[Any, Run], Workload]] = {
        "swf": _swf,
        "philly": _philly,
        "generate": _generated,
        "manifests": _manifests,
        "session": _session,
    }
    kind, source = next(
        (kind, source) for kind in makers if (source := getattr(run.workload, kind)) is not None
    )
    return makers[kind](source, run)


def _swf(source: SwfSource, run: Run) -> Workload:
    read = _read_swf(source.trace)
    size = source.processors or read.processors
    if not size:
        raise InvalidInput("the trace does not state its processors; say processors", file=str(source.trace))
    return swf.workload(rows_in_window(read.rows, source, run.seed), size, run.workload.name)


def _philly(source: PhillySource, run: Run) -> Workload:
    rows = _read_philly(
        source.trace,
        philly.Period(_moment(source.first, float("-inf")), _moment(source.last, float("inf"))),
    )
    queue_of = _queues(source.teams, sorted({row.queue for row in rows}))
    rows = tuple(row for row in rows if row.queue in queue_of)
    return philly.workload(
        rows_in_window(rows, source, run.seed),
        run.cluster.nodes,
        run.cluster.gpus_per_node,
        run.workload.name,
        pooled=False,
        teams=queue_of,
    )


def _moment(time: datetime | None, default: float) -> float:
    if time is None:
        return default
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _queues(teams: Mapping[str, tuple[str, ...]], clusters: Sequence[str]) -> dict[str, str]:
    """Return a queue for each virtual cluster in use."""
    if not teams:
        return {name: f"vc-{name}" for name in clusters}
    named = {name: queue for queue, names in teams.items() for name in names}
    rest = named.pop(EVERYONE, None)
    return {name: queue for name in clusters if (queue := named.get(name, rest)) is not None}


def _generated(source: GeneratedSource, run: Run) -> Workload:
    recipe = Recipe(
        gangs=source.gangs,
        node_count=run.cluster.nodes,
        gpus_per_node=run.cluster.gpus_per_node,
        load=source.load,
        swing=source.swing,
        overestimate=source.overestimate,
        shares=tuple(source.shares.items()),
    )
    return generated(recipe, run.seed)


def _manifests(source: ManifestSource, run: Run) -> Workload:
    reading = read_manifests(source.files, scheduler_name=run.profile.scheduler_name)
    return given.workload(reading.snapshot, source.now, source.runtime, run.workload.name)


def _session(source: SessionSource, run: Run) -> Workload:
    record = read_session(source.file)
    return given.workload(record.snapshot, record.now, source.runtime, run.workload.name)


def rows_in_window(rows: Sequence[Row], window: Window, seed: int) -> Sequence[Row]:
    """Return the rows of the trace inside the window.

    Raises:
      InvalidInput: The window begins after the last row, or the trace is too short for it.
    """
    start = window.start
    if start is None:
        start = window_starts(1, seed, len(rows) - window.jobs + 1)[0] if window.jobs is not None else 0
    kept = rows[start : None if window.jobs is None else start + window.jobs]
    if not kept:
        raise InvalidInput(f"no job is left from row {start} on, of {len(rows)}", object="window")
    return kept


@lru_cache(maxsize=4)
def _read_swf(path: Path) -> swf.Swf:
    return swf.read(path)


@lru_cache(maxsize=4)
def _read_philly(path: Path, period: philly.Period) -> tuple[philly.PhillyRow, ...]:
    return philly.read(path, (), period)

"""Executes the runs of the lab: creates the workload, simulates the scheduler, and measures the outcome.

Runs are independent. Each creates its own workload, so several runs can be executed in parallel processes.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from batchsched.api.crd.queue import Queue
from batchsched.config.schema import Profile
from batchsched.errors import BatchschedError, CommandError, InvalidInput
from batchsched.lab.fairness import measure_queue_shares
from batchsched.lab.measures import RunOutcome, measure_run
from batchsched.lab.plan import PlannedRun
from batchsched.lab.scenario import ALL_NAMES, ManifestSource, PhillySource, TraceWindow, WorkloadSpec
from batchsched.lab.workers import LabWorkers
from batchsched.record.cluster_files import SessionSettings, read_cluster_files
from batchsched.record.file import read_session_file as read_session
from batchsched.runner.auto_scheduler import SimulationSchedulerBuilder
from batchsched.scheduler.cluster_reader import read_snapshot_from_files
from batchsched.session.session import Session
from batchsched.simulator import philly, swf
from batchsched.simulator.generator import HOUR, GeneratorSettings, generate_workload
from batchsched.simulator.result import RunResult
from batchsched.simulator.run import Progress, RunSettings, simulate_workload
from batchsched.simulator.workload import Workload, sample_outages, workload_of_snapshot

_YOUNG_OBJECTS: Final = 50_000
"""Objects between two collections of the youngest generation; reference counts free most objects of a run."""
Row = TypeVar("Row")
Result = TypeVar("Result")


def map_runs(
    function: Callable[[PlannedRun], Result], runs: Sequence[PlannedRun], workers: LabWorkers
) -> Iterator[tuple[int, Result]]:
    """Let the workers call a function for each run, and yield (run index, result) whenever a call ends.

    Raises:
      BatchschedError: As raised by the function, after the results of runs that finished at the same time.
      CommandError: A worker process died.
    """
    futures: dict[Future[Result], int] = {}
    try:
        for index, run in enumerate(runs):
            futures[workers.submit(function, run)] = index
            # Workers in this process have finished at submission: yield before the next run starts.
            yield from _take_finished(futures)
        for future in as_completed(list(futures)):
            result = future.result()
            yield futures.pop(future), result
    except (BatchschedError, BrokenProcessPool) as error:
        yield from _take_finished(futures)
        if isinstance(error, BatchschedError):
            raise
        raise CommandError(
            "a process that ran a workload was killed; is there memory for as many at once? see --processes"
        ) from error


def _take_finished(futures: dict[Future[Result], int]) -> Iterator[tuple[int, Result]]:
    for future in [future for future in futures if future.done() and not future.cancelled()]:
        if future.exception() is None:
            yield futures.pop(future), future.result()


def simulate_run(run: PlannedRun) -> RunOutcome:
    """Simulate a planned run of the lab, and return its outcome.

    Raises:
      InvalidInput: A file, a queue or an argument of a policy cannot be used.
    """
    started = time.process_time()
    workload = create_workload_of_run(run)
    settings = RunSettings(run.policy, run.seed, run.interval, max_gangs_per_session(run.profile))
    with infrequent_garbage_collection():
        result = simulate_under_profile(workload, run.profile, settings)
    outcome = build_outcome(result, workload.cluster.queues, run.seed, run.resource)
    return replace(outcome, key=run.result_key, cpu_seconds=time.process_time() - started)


def build_outcome(
    result: RunResult, queues: Sequence[Queue], seed: int, resource: str | None = None
) -> RunOutcome:
    """Compute the fairness and the measures of a simulated run, and return them as its outcome.

    The key of the outcome is empty.
    """
    fairness = measure_queue_shares(result, queues, resource)
    return RunOutcome("", seed, result, fairness, measure_run(result, fairness), 0.0)


def simulate_under_profile(
    workload: Workload, profile: Profile, settings: RunSettings, progress: Progress | None = None
) -> RunResult:
    """Simulate how the scheduler places the gangs of a workload under a profile, and return the result.

    If gangs did not finish, one more session at the end states why it refuses them.

    Raises:
      InvalidInput: The profile names an unknown plugin or policy, or has invalid arguments.
    """
    schedulers = SimulationSchedulerBuilder(profile)
    result = simulate_workload(workload, schedulers.make_scheduler, settings, progress)
    result = replace(result, chosen_policies=schedulers.session_counts_by_policy)
    return _with_reasons(result, schedulers.session_of_last_scheduler, settings.seed)


def _with_reasons(result: RunResult, session: Session, seed: int) -> RunResult:
    """Return the result with the refusals of its unfinished gangs, from one more session at the end."""
    if all(gang.is_finished for gang in result.gangs):
        return result
    now = float(max((gang.submitted for gang in result.gangs), default=0))
    now = max(now, *map(float, result.series.times[-1:]))
    refusals = {refusal.pod_group: refusal for refusal in session.decide_refusals(now, seed)}
    gangs = (
        gang if gang.is_finished else replace(gang, refusal=refusals.get(gang.key)) for gang in result.gangs
    )
    return replace(result, gangs=tuple(gangs))


def max_gangs_per_session(profile: Profile) -> int | None:
    """Return how many gangs one session of a profile considers at most; None if there is no limit.

    A session in strict order considers one batch of `sessionWindow` gangs. A joint session divides the queue into such
    batches by itself.
    """
    return profile.session_window if profile.selection == "ordered" else None


@contextmanager
def infrequent_garbage_collection() -> Iterator[None]:
    """Context manager: make Python's garbage collector run less often in the `with` block, to save time."""
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


# Workloads


def create_workload_of_run(run: PlannedRun) -> Workload:
    """Create the workload of a planned run, with the changes that the run's policy makes to its queues.

    Raises:
      InvalidInput: A file cannot be used, or a window begins after the end of its trace.
    """
    made = run.prepared or _named_source(run)
    cluster = replace(made.cluster, queues=run.queues_with_policy_changes(made.cluster.queues))
    made = replace(made, name=run.workload.name, cluster=cluster)
    failures = run.cluster.failures
    if failures is None or made.outages or not made.arrivals:
        return made
    last = max(arrival.time + arrival.remaining for arrival in made.arrivals)
    between, repair = failures.hours_between * HOUR, failures.hours_to_repair * HOUR
    period = (made.arrivals[0].time, last)
    return replace(made, outages=sample_outages(cluster.nodes, between, repair, period, run.seed))


def _named_source(run: PlannedRun) -> Workload:
    """Create the workload of a run from its source; an error names the workload."""
    try:
        return _from_source(run)
    except InvalidInput as error:
        if error.file or error.object:
            raise
        place = f"workload {run.workload.name}"
        raise InvalidInput(error.message, object=place, field=error.field) from error


def _from_source(run: PlannedRun) -> Workload:
    spec, cluster, name = run.workload, run.cluster, run.workload.name
    if spec.swf is not None:
        trace = read_swf_trace(spec.swf.trace)
        size = spec.swf.processors or trace.processors
        if not size:
            raise InvalidInput(
                "the header of the trace does not state the number of processors; set swf.processors",
                file=str(spec.swf.trace),
                object=f"workload {name}",
            )
        return swf.create_workload(select_trace_rows(trace.rows, spec.swf, run.seed), size, name)
    if spec.philly is not None:
        rows, queue_of = read_philly_jobs_and_queues(spec.philly)
        window = select_trace_rows(rows, spec.philly, run.seed)
        used = {row.queue for row in window}
        queues = {name: queue for name, queue in queue_of.items() if name in used}
        return philly.create_workload(window, cluster.nodes, cluster.gpus_per_node, name, queues)
    if spec.manifests is not None:
        return _workload_of_manifests(spec.manifests, run.profile, name)
    if spec.session is not None:
        record = read_session(spec.session.file)
        # The pods of the recorded session name its scheduler, whatever name the profiles of the scenario have.
        scheduler_name = record.profile.scheduler_name
        return workload_of_snapshot(record.snapshot, scheduler_name, record.now, spec.session.runtime, name)
    return _generate(spec, run)


def _workload_of_manifests(source: ManifestSource, profile: Profile, name: str) -> Workload:
    """Create the workload of a cluster from manifests or a dump.

    Raises:
      InvalidInput: pods run already, and neither the files nor the source state the time of the cluster.
    """
    files = read_cluster_files(source.files)
    now = files.stated_time if source.now is None else source.now
    # The present time would give each run another workload, and results are kept for later sweeps.
    settings = SessionSettings(profile, 0.0 if now is None else now)
    snapshot = read_snapshot_from_files(files, settings).snapshot
    workload = workload_of_snapshot(snapshot, profile.scheduler_name, settings.now, source.runtime, name)
    running = next((pod.key for one in workload.arrivals for pod in one.pods if pod.node_name), None)
    if now is None and running is not None:
        raise InvalidInput(
            f"is missing, but pod {running} runs already, and the end of its run time depends on the time of the "
            "cluster; set manifests.now to the time at which the manifests were read, in seconds since 1970, or use a "
            "dump, which states its time",
            field="manifests.now",
        )
    return workload


def _generate(spec: WorkloadSpec, run: PlannedRun) -> Workload:
    source = spec.generate
    assert source is not None  # a workload has exactly one source
    recipe = GeneratorSettings(
        gangs=source.gangs,
        node_count=run.cluster.nodes,
        gpus_per_node=run.cluster.gpus_per_node,
        load=source.load,
        swing=source.swing,
        overestimate=source.overestimate,
        shares=tuple(source.shares.items()),
    )
    return generate_workload(recipe, run.seed)


def read_philly_jobs_and_queues(source: PhillySource) -> tuple[tuple[philly.PhillyJob, ...], dict[str, str]]:
    """Return the jobs of a Philly trace, and a map from each virtual cluster of these jobs to a queue name.

    Raises:
      InvalidInput: The trace cannot be used.
    """
    rows = _read_philly(source.trace, _seconds(source.first, -inf), _seconds(source.last, inf))
    queue_of = _queues(source.teams, sorted({row.queue for row in rows}))
    return tuple(row for row in rows if row.queue in queue_of), queue_of


def _seconds(moment: datetime | None, default: float) -> float:
    if moment is None:
        return default
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _queues(teams: Mapping[str, tuple[str, ...]], clusters: Sequence[str]) -> dict[str, str]:
    """Return the queue of each virtual cluster; virtual clusters that belong to no team are left out."""
    if not teams:
        return {name: f"vc-{name}" for name in clusters}
    queue_of = {name: queue for queue, names in teams.items() for name in names}
    rest = queue_of.pop(ALL_NAMES, None)
    return {name: queue for name in clusters if (queue := queue_of.get(name, rest)) is not None}


def select_trace_rows(rows: Sequence[Row], window: TraceWindow, seed: int) -> Sequence[Row]:
    """Return the consecutive rows of a trace that the window selects for the simulation.

    Raises:
      InvalidInput: The window begins after the last row, or the trace is too short for it.
    """
    if not rows:
        raise InvalidInput("no job of the trace is in the period and in the virtual clusters of the workload")
    start = window.start
    if start is None:
        start = (
            sample_window_start_rows(1, seed, len(rows) - window.jobs + 1)[0]
            if window.jobs is not None
            else 0
        )
    kept = rows[start : None if window.jobs is None else start + window.jobs]
    if not kept:
        raise InvalidInput(
            f"no job is left from row {start} on, of {len(rows)}; expected 0 to {len(rows) - 1}",
            field="start",
        )
    return kept


def sample_window_start_rows(count: int, seed: int, below: int) -> tuple[int, ...]:
    """Return `count` random row numbers of a trace; a simulated part of the trace begins at each of them.

    The row numbers are from 0 to `below` - 1, and they may repeat.

    Raises:
      InvalidInput: the trace is shorter than one window.
    """
    if below < 1:
        raise InvalidInput("the trace is shorter than one window; reduce the number of jobs", field="jobs")
    return tuple(np.random.default_rng(seed).integers(0, below, count).tolist())


@lru_cache(maxsize=4)
def read_swf_trace(path: Path) -> swf.SwfTrace:
    """Return a trace in the Standard Workload Format, read from its file or kept from an earlier call.

    The last four traces are kept, so that the runs of a process share them.
    """
    return swf.read_trace(path)


@lru_cache(maxsize=4)
def _read_philly(path: Path, first: float, last: float) -> tuple[philly.PhillyJob, ...]:
    return philly.read_trace(path, first, last)

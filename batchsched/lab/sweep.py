"""A sweep: execute the runs of a plan that have no result yet."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

from batchsched.errors import BatchschedError, UnusableInput
from batchsched.lab.fairness import measure
from batchsched.lab.measures import measure_run
from batchsched.lab.plan import Run
from batchsched.lab.results import Outcome, encode, place_of, put
from batchsched.lab.simulation import rare_collections, simulate, window_of
from batchsched.lab.sources import workload
from batchsched.lab.workers import Workers
from batchsched.simulator.result import QueueSeries
from batchsched.simulator.run import Progress, RunSettings


def missing(runs: Sequence[Run], folder: Path) -> tuple[Run, ...]:
    """Return the runs without a result; of runs with equal keys only the first."""
    first_by_key = {run.key: run for run in reversed(runs)}
    return tuple(
        run for run in runs if first_by_key[run.key] is run and not place_of(folder, run.key).exists()
    )


def sweep(runs: Sequence[Run], folder: Path, workers: Workers, progress: Progress | None = None) -> int:
    """Execute the runs that have no result yet; each result is written as soon as its run ends.

    Returns:
      The number of executed runs.

    Raises:
      InvalidInput: As for `play`, for the first run that fails; finished results stay.
      UnusableInput: A worker process died.
    """
    left = missing(runs, folder)
    done = len(runs) - len(left)
    if progress is not None:
        progress(done, len(runs))
    futures: dict[Future[bytes], str] = {workers.submit(play, run): run.key for run in left}
    try:
        for future in as_completed(futures):
            put(place_of(folder, futures[future]), future.result())
            done += 1
            if progress is not None:
                progress(done, len(runs))
    except (BatchschedError, BrokenProcessPool) as error:
        # Write the results of all runs that finished at the same time, before an error is raised.
        for future, key in futures.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                put(place_of(folder, key), future.result())
        if isinstance(error, BatchschedError):
            raise
        raise UnusableInput(
            "a process that ran a workload was killed; is there memory for as many at once? see --processes"
        ) from error
    return len(left)


def play(run: Run) -> bytes:
    """Execute a run, and return its outcome as the content of a Parquet file.

    Raises:
      InvalidInput: A file, a queue or an argument of a policy cannot be used.
    """
    return encode(outcome_of(run))


def outcome_of(run: Run) -> Outcome:
    """Execute a run.

    Raises:
      InvalidInput: As for `play`.
    """
    begun = time.process_time()
    made = workload(run)
    settings = RunSettings(run.policy, run.seed, run.interval, window_of(run.profile))
    with rare_collections():
        result = simulate(made, run.profile, settings)
    fairness = measure(result, made.cluster.queues, run.resource)
    measures = measure_run(result, fairness)
    gangs = tuple(replace(one, placements=()) for one in result.gangs)
    small = replace(result, gangs=gangs, queues=QueueSeries())
    return Outcome(run.key, run.seed, small, fairness, measures, time.process_time() - begun)

"""A sweep: execute the runs of a plan that have no result yet."""

from collections.abc import Sequence
from pathlib import Path

from batchsched.lab.plan import Run
from batchsched.lab.results import encode, result_path, write_atomically
from batchsched.lab.simulation import execute, outcome_of
from batchsched.lab.workers import Workers
from batchsched.simulator.run import Progress


def missing_runs(runs: Sequence[Run], folder: Path) -> tuple[Run, ...]:
    """Return the runs without a result; of runs with equal keys only the first."""
    first_by_key = {run.key: run for run in reversed(runs)}
    return tuple(
        run for run in runs if first_by_key[run.key] is run and not result_path(folder, run.key).exists()
    )


def sweep(runs: Sequence[Run], folder: Path, workers: Workers, progress: Progress | None = None) -> int:
    """Execute the runs that have no result yet; each result is written as soon as its run ends.

    Returns:
      The number of executed runs.

    Raises:
      InvalidInput: As for `outcome_of`, for the first run that fails; finished results stay.
      UnusableInput: A worker process died.
    """
    missing = missing_runs(runs, folder)
    done = len(runs) - len(missing)
    if progress is not None:
        progress(done, len(runs))
    for index, content in execute(encoded_outcome, missing, workers):
        write_atomically(result_path(folder, missing[index].key), content)
        done += 1
        if progress is not None:
            progress(done, len(runs))
    return len(missing)


def encoded_outcome(run: Run) -> bytes:
    """Execute a run, and return its outcome as the content of a Parquet file.

    Raises:
      InvalidInput: As for `outcome_of`.
    """
    return encode(outcome_of(run))

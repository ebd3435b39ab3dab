"""The result files of `lab tune`, apart from those of `lab run`: one for each tried setting, workload and seed.

    FOLDER/trials/NUMBER-STAGE-KEY.parquet

Each file has the columns of a result file, and in addition `trial` (0: the stated policy; from 1: the tried settings),
`stage` (search or held-out), and one column for each tuned parameter, named by its path. The folder contains the files
of the last search only: `SELECT trial, stage, avg(meanWait) FROM 'FOLDER/trials/*.parquet' GROUP BY trial, stage`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from batchsched.lab.measures import Outcome
from batchsched.lab.plan import Run
from batchsched.lab.results import (
    EARLIER,
    TRIALS,
    execute_run,
    find_result,
    read_outcome,
    relabel_result,
    write_atomically,
)
from batchsched.lab.scenario import TuningParameter
from batchsched.lab.simulation import map_runs
from batchsched.lab.workers import Workers

SEARCH: Final = "search"
HELD_OUT: Final = "held-out"


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A run of a search for parameters.

    Args:
      run: The run.
      number: The number of the tried setting, from 1; 0: the policy as the scenario states it.
      stage: `SEARCH` or `HELD_OUT`.
      parameters: The columns of the tuned parameters, by path.
    """

    run: Run
    number: int
    stage: str
    parameters: Mapping[str, pa.Array]

    def path(self, folder: Path) -> Path:
        """Return the path of the result file, whether the file exists or not."""
        return folder / TRIALS / f"{self.number:04}-{self.stage}-{self.run.key}.parquet"

    def write(self, folder: Path, source: Path | BytesIO) -> None:
        """Write the result file from a result of the same run, which may have other labels.

        Raises:
          OSError: The file cannot be written.
        """
        labels = {
            "trial": pa.array([self.number], pa.int64()),
            "stage": pa.array([self.stage]),
            **self.parameters,
        }
        write_atomically(self.path(folder), relabel_result(source, self.run, labels))


def parameter_column(parameter: TuningParameter, value: Any) -> pa.Array:
    """Return the value of a tuned parameter as a column with one row: a number, a Boolean or text, as its values are.

    The row is null if the policy does not state the parameter, or states a value of another type.
    """
    kinds = {type(choice) for choice in parameter.choices}
    if parameter.choices and kinds <= {bool}:
        kind, fits = pa.bool_(), isinstance(value, bool)
    elif kinds <= {int, float}:
        whole = parameter.whole and not parameter.choices
        kind = pa.int64() if whole else pa.float64()
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    else:
        kind, fits, value = pa.string(), value is not None, str(value)
    return pa.array([value if fits else None], kind)


def clear_trials(folder: Path) -> None:
    """Move the trials of an earlier search away, to where `find_result` finds those that this search needs again."""
    for path in sorted((folder / TRIALS).glob("*.parquet")):
        earlier = folder / EARLIER / path.name.rpartition("-")[2]
        earlier.parent.mkdir(parents=True, exist_ok=True)
        path.replace(earlier)


def execute_trial_runs(
    trial_runs: Sequence[TrialRun], folder: Path, workers: Workers, progress: Callable[[int], None]
) -> tuple[Outcome, ...]:
    """Execute the runs of a search that have no result yet, write the result files, and return the outcomes in order.

    Args:
      trial_runs: The runs. Runs with equal keys are executed once.
      folder: The result folder.
      workers: The workers.
      progress: Receives the number of finished runs.

    Raises:
      InvalidInput: As for `simulate_run`.
      UnusableInput: A worker process died.
    """
    by_key: dict[str, list[TrialRun]] = {}
    for trial_run in trial_runs:
        by_key.setdefault(trial_run.run.key, []).append(trial_run)
    finished = 0

    def write_all(key: str, source: Path | BytesIO) -> None:
        nonlocal finished
        for trial_run in by_key[key]:
            if not trial_run.path(folder).exists():
                trial_run.write(folder, source)
        finished += len(by_key[key])
        progress(finished)

    missing_runs = []
    for key, equal_runs in by_key.items():
        result = find_result(folder, key)
        if result is None:
            missing_runs.append(equal_runs[0].run)
        else:
            write_all(key, result)
    for index, content in map_runs(execute_run, missing_runs, workers):
        write_all(missing_runs[index].key, BytesIO(content))
    return tuple(
        read_outcome(trial_run.path(folder)).with_names(trial_run.run.workload.name, trial_run.run.policy)
        for trial_run in trial_runs
    )

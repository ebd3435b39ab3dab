"""The result files of `lab tune`: one for each tried setting, workload and seed, in the folder `trials/`.

    FOLDER/trials/NUMBER-STAGE-KEY.parquet

Each file has the columns of a result file, and in addition `trial` (0: the stated policy; from 1: the tried settings),
`stage` (search or held-out), and one column for each tuned parameter, named by its path. The folder contains the files
of the last search only: `SELECT trial, stage, avg(meanWait) FROM 'FOLDER/trials/*.parquet' GROUP BY trial, stage`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from batchsched.lab.plan import PlannedRun
from batchsched.lab.results import EARLIER, TRIALS, ResultFile
from batchsched.lab.scenario import TuningParameter

SEARCH: Final = "search"
HELD_OUT: Final = "held-out"


def tuning_result_file(
    folder: Path, run: PlannedRun, number: int, stage: str, parameters: Mapping[str, pa.Array]
) -> ResultFile:
    """Return the result file for one run of a search by `lab tune`.

    Args:
      folder: The result folder.
      run: The run.
      number: The number of the tried setting, from 1; 0: the policy as the scenario states it.
      stage: `SEARCH` or `HELD_OUT`.
      parameters: The columns of the tuned parameters, by path.
    """
    labels = {"trial": pa.array([number], pa.int64()), "stage": pa.array([stage]), **parameters}
    return ResultFile(run, folder / TRIALS / f"{number:04}-{stage}-{run.result_key}.parquet", labels)


def parameter_column(parameter: TuningParameter, value: Any) -> pa.Array:
    """Return the value of a tuned parameter as a Parquet column with one row.

    The type of the column follows from the values that the parameter may take. The row is null if the policy does not
    state the parameter, or states a value of another type.
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


def move_earlier_results_away(folder: Path) -> None:
    """Move the result files of an earlier search to `earlier/`, where later searches can still reuse them."""
    for path in sorted((folder / TRIALS).glob("*.parquet")):
        earlier = folder / EARLIER / path.name.rpartition("-")[2]
        earlier.parent.mkdir(parents=True, exist_ok=True)
        path.replace(earlier)

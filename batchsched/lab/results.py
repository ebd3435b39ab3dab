"""The result folder of `lab run` and `lab tune`: a plan, and a Parquet file for each finished run.

    FOLDER/plan.json            the scenario, and the file of each run
    FOLDER/runs/KEY.parquet     one row: names, measures, and nested columns for gangs, utilization and fairness
    FOLDER/runs/KEY-2.parquet   the same run with the name of a second policy, if policies have equal settings
    FOLDER/trials/              the runs of the last search by `lab tune` (`lab.tuning_result_files`)
    FOLDER/earlier/KEY.parquet  runs of earlier scenarios and searches, for reuse

Files are written atomically, so each existing file is complete and an interrupted sweep can be resumed. `runs/` has the
files of the plan and no others, so any Parquet reader can query them:
`SELECT policy, avg(meanWait) FROM 'FOLDER/runs/*.parquet' GROUP BY policy`.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchsched import __version__
from batchsched.errors import InvalidInput
from batchsched.lab.fairness import QueueShareSeries
from batchsched.lab.measures import MEASURES, RunOutcome
from batchsched.lab.plan import PlannedRun
from batchsched.lab.scenario import Scenario
from batchsched.lab.simulation import map_runs, simulate_run
from batchsched.lab.workers import LabWorkers
from batchsched.simulator.result import ClusterSeries, GangRecord, RunResult
from batchsched.simulator.run import Progress

PLAN: Final = "plan.json"
RUNS: Final = "runs"
TRIALS: Final = "trials"
EARLIER: Final = "earlier"
_LABELS: Final = b"labels"
"""Key of the schema metadata that lists the columns which are no result: those that a search adds."""
MAX_FAIRNESS_ROWS: Final = 200_000
"""Maximum rows of fairness in a file; longer series are thinned to every second row, every third row and so on."""


# Nested columns: the name of each field and its type.
_GANGS: Final = {
    "key": pa.string(),
    "queue": pa.string(),
    "size": pa.int64(),
    "gpus": pa.int64(),
    "submitted": pa.int64(),
    "started": pa.int64(),
    "ended": pa.int64(),
    "runtime": pa.int64(),
    "estimate": pa.int64(),
    "restarts": pa.int64(),
    "lost": pa.int64(),
    "evicted": pa.int64(),
}
_MOMENTS: Final = {"time": pa.int64(), "waiting": pa.int64(), "running": pa.int64()}
_USE: Final = {"time": pa.int64(), "resource": pa.string(), "used": pa.int64(), "total": pa.int64()}
_FAIRNESS: Final = {
    "time": pa.int64(),
    "queue": pa.string(),
    "held": pa.float32(),
    "wanted": pa.float32(),
    "fair": pa.float32(),
}


def encode_outcome_as_parquet(outcome: RunOutcome) -> bytes:
    """Return the outcome of a run as the content of a Parquet file."""
    result, series = outcome.result, outcome.result.series
    moments = {"time": series.times, "waiting": series.waiting, "running": series.running}
    row = {
        "key": [outcome.key],
        "workload": [result.workload],
        "policy": [result.policy],
        "seed": [outcome.seed],
        **{measure.key: [float(outcome.measures[measure.key])] for measure in MEASURES},
        "gangCount": [len(result.gangs)],
        "sessions": [result.sessions],
        "guards": [result.guards],
        "failures": [result.failures],
        "cpuSeconds": [outcome.cpu_seconds],
        "resource": [outcome.fairness.resource],
        "gangs": _nested({name: [getattr(gang, name) for gang in result.gangs] for name in _GANGS}, _GANGS),
        "moments": _nested(moments, _MOMENTS),
        "use": _nested(_use(series), _USE),
        "fairness": _nested(_rows(outcome.fairness), _FAIRNESS),
    }
    return _parquet(pa.table(row).replace_schema_metadata({"batchsched": __version__}))


def copy_result_for_run(source: Path | BytesIO, run: PlannedRun, labels: Mapping[str, Any]) -> bytes:
    """Return a copy of a result file with the workload name, policy name and labels of another run.

    Args:
      source: The result file of a run with the same key. The labels in this file are removed.
      run: The other run.
      labels: Further columns of the file, by name.
    """
    table = pq.read_table(source)
    metadata = table.schema.metadata or {}
    table = table.drop_columns(json.loads(metadata.get(_LABELS, b"[]")))
    for name, value in (("workload", run.workload.name), ("policy", run.policy)):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array([value]))
    for name, column in labels.items():
        table = table.append_column(name, column)
    return _parquet(table.replace_schema_metadata({**metadata, _LABELS: json.dumps(list(labels)).encode()}))


def _parquet(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_outcome(path: Path) -> RunOutcome:
    """Read the result file of a run, and return the outcome in it.

    Raises:
      InvalidInput: The file is not a result file.
    """
    try:
        table = pq.read_table(path)
        row = {name: table.column(name)[0] for name in table.column_names}
        values = {name: cell.as_py() for name, cell in row.items() if not pa.types.is_list(cell.type)}
        result = RunResult(
            workload=values["workload"],
            policy=values["policy"],
            gangs=tuple(GangRecord(**gang) for gang in row["gangs"].as_py()),
            series=_series(_fields(row["moments"]), _fields(row["use"])),
            sessions=values["sessions"],
            mean_gap=values["meanGap"],
            worst_gap=values["worstGap"],
            guards=values["guards"],
            failures=values["failures"],
        )
        return RunOutcome(
            values["key"],
            values["seed"],
            result,
            _fairness(_fields(row["fairness"]), values["resource"]),
            {measure.key: values[measure.key] for measure in MEASURES},
            values["cpuSeconds"],
        )
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise InvalidInput(
            f"is no result of the lab: {error}; delete the file, and run `lab run` again", file=str(path)
        ) from error


@dataclass(frozen=True, slots=True)
class ResultFile:
    """The result file of a planned run; the file exists as soon as the run has finished.

    Args:
      run: The run.
      path: The path of the file.
      labels: Further columns of the file, by name, each with one row.
    """

    run: PlannedRun
    path: Path
    labels: Mapping[str, pa.Array] = field(default_factory=dict)

    def write_copy_of_result(self, source: Path | BytesIO) -> None:
        """Write this file as a copy of an existing result of the same key, with this run's names and labels.

        Raises:
          OSError: The file cannot be written.
        """
        write_atomically(self.path, copy_result_for_run(source, self.run, self.labels))


def result_file_names(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the name of the result file for each of the given run keys, such as `KEY.parquet`.

    If a key occurs twice, the second file is `KEY-2.parquet`.

    Policies with equal settings have runs with equal keys. Each run has a file of its own, so that queries over the
    folder find every policy.
    """
    counts: Counter[str] = Counter()
    names = []
    for key in keys:
        counts[key] += 1
        names.append(f"{key}.parquet" if counts[key] == 1 else f"{key}-{counts[key]}.parquet")
    return tuple(names)


def planned_result_files(folder: Path, runs: Sequence[PlannedRun]) -> tuple[ResultFile, ...]:
    """Return the result file of each run of a plan, in the order of the plan."""
    names = result_file_names([run.result_key for run in runs])
    return tuple(ResultFile(run, folder / RUNS / name) for run, name in zip(runs, names, strict=True))


def planned_result_paths(folder: Path, plan: Mapping[str, Any]) -> tuple[Path, ...]:
    """Return the result file path of each run that the plan of a folder lists, in the order of the plan."""
    return tuple(
        folder / RUNS / name for name in result_file_names([str(run["key"]) for run in plan["runs"]])
    )


def result_path(folder: Path, key: str) -> Path:
    """Return the path of the result file in `runs/` for the key of a run; the file may not exist."""
    return folder / RUNS / result_file_names([key])[0]


def find_result_path(folder: Path, key: str) -> Path | None:
    """Return the path of an existing result with the key of a run, or None if the folder has no such result.

    The result may be in `runs/`, in `earlier/`, or in `trials/`, where `lab tune` writes results.
    """
    paths = (result_path(folder, key), _earlier_path(folder, key))
    result = next((path for path in paths if path.exists()), None)
    return result or next((folder / TRIALS).glob(f"*-{key}.parquet"), None)


def sync_result_files_with_plan(folder: Path, runs: Sequence[PlannedRun]) -> None:
    """Move unplanned results from `runs/` to `earlier/`, and copy existing planned results to `runs/`.

    Therefore queries over `runs/` read only the runs of the plan.

    Raises:
      OSError: A file cannot be moved or written.
    """
    files = planned_result_files(folder, runs)
    planned = {file.path for file in files}
    for path in sorted((folder / RUNS).glob("*.parquet")):
        if path not in planned:
            earlier = _earlier_path(folder, path.stem.partition("-")[0])
            earlier.parent.mkdir(exist_ok=True)
            path.replace(earlier)
    for file in files:
        source = file.path if file.path.exists() else find_result_path(folder, file.run.result_key)
        if source is not None and not (source == file.path and _has_names(source, file.run)):
            file.write_copy_of_result(source)
    for file in files:
        if file.path.exists():
            _earlier_path(folder, file.run.result_key).unlink(missing_ok=True)


def _earlier_path(folder: Path, key: str) -> Path:
    return folder / EARLIER / f"{key}.parquet"


def _has_names(path: Path, run: PlannedRun) -> bool:
    try:
        names = pq.read_table(path, columns=["workload", "policy"]).to_pylist()
    except (pa.ArrowException, KeyError):
        return True  # Reading the outcome reports the file.
    return bool(names == [{"workload": run.workload.name, "policy": run.policy}])


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: readers see the whole file or none.

    Raises:
      OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Readers of Parquet folders ignore names that begin with a dot.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_run_plan(folder: Path, scenario: Scenario, runs: Sequence[PlannedRun], command: str = "") -> None:
    """Write the plan of a result folder: the scenario, its planned runs, and the command that repeats them.

    Result files of other scenarios leave `runs/`, as described for `sync_result_files_with_plan`.

    Raises:
      OSError: The file cannot be written.
    """
    plan = {
        "batchsched": __version__,
        "command": command,
        "scenario": scenario.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "runs": [
            {"workload": run.workload.name, "policy": run.policy, "seed": run.seed, "key": run.result_key}
            for run in runs
        ],
    }
    write_atomically(folder / PLAN, json.dumps(plan, indent=1).encode() + b"\n")
    sync_result_files_with_plan(folder, runs)


def read_plan(folder: Path) -> dict[str, Any]:
    """Read the plan from a result folder: the scenario and the list of its planned runs.

    Raises:
      InvalidInput: The folder is not a result folder.
    """
    path = folder / PLAN
    try:
        plan = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"cannot be read: {error.strerror}; expected a folder that `lab run` wrote", file=str(path)
        ) from error
    except ValueError as error:
        raise InvalidInput(_NO_PLAN, file=str(path)) from error
    if not _is_plan(plan):
        raise InvalidInput(_NO_PLAN, file=str(path))
    return dict(plan)


_NO_PLAN: Final = "is no plan of the lab; expected a folder that `lab run` wrote, or run `lab run` again"
_RUN_FIELDS: Final = {"workload": str, "policy": str, "seed": int, "key": str}


def _is_plan(plan: Any) -> bool:
    """Return whether a document has the fields of a plan."""
    if not isinstance(plan, dict) or not isinstance(plan.get("scenario"), dict):
        return False
    runs = plan.get("runs")
    return isinstance(runs, list) and all(
        isinstance(run, dict) and all(isinstance(run.get(name), kind) for name, kind in _RUN_FIELDS.items())
        for run in runs
    )


def planned_seeds(folder: Path) -> frozenset[int]:
    """Return the seeds of the runs that the plan in a result folder lists, finished or not.

    Raises:
      InvalidInput: The folder is not a result folder.
    """
    return frozenset(run["seed"] for run in read_plan(folder)["runs"])


def read_outcomes(folder: Path) -> tuple[RunOutcome, ...]:
    """Return the outcomes of all finished runs in a result folder, in the order of the folder's plan.

    Raises:
      InvalidInput: The folder is not a result folder, or a file in it is not a result file.
    """
    return read_outcomes_with_planned_names(folder, read_plan(folder), read_outcome)


def read_outcomes_with_planned_names(
    folder: Path, plan: Mapping[str, Any], read: Callable[[Path], RunOutcome]
) -> tuple[RunOutcome, ...]:
    """Return the outcomes of a plan's finished runs, with the workload and policy names that the plan states.

    `read` reads a result file.
    """
    return tuple(
        read(path).with_workload_and_policy_names(run["workload"], run["policy"])
        for run, path in zip(plan["runs"], planned_result_paths(folder, plan), strict=True)
        if path.exists()
    )


def _nested(columns: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
    arrays = [pa.array(columns[name], kind) for name, kind in fields.items()]
    struct = pa.StructArray.from_arrays(arrays, names=list(fields))
    return pa.ListArray.from_arrays(pa.array([0, len(struct)], pa.int32()), struct)


def _fields(cell: Any) -> dict[str, Any]:
    values = cell.values
    return {field.name: values.field(field.name) for field in values.type}


def _use(series: ClusterSeries) -> dict[str, Any]:
    names = list(series.used)
    return {
        "time": [time for _ in names for time in series.times],
        "resource": [name for name in names for _ in series.times],
        "used": [amount for name in names for amount in series.used[name]],
        "total": [amount for name in names for amount in series.total[name]],
    }


def _series(moments: Mapping[str, Any], use: Mapping[str, Any]) -> ClusterSeries:
    times = tuple(moments["time"].to_pylist())
    names = use["resource"].to_pylist()[:: max(1, len(times))]
    used, total = use["used"].to_pylist(), use["total"].to_pylist()
    size = len(times)
    part = {name: slice(index * size, (index + 1) * size) for index, name in enumerate(names)}
    return ClusterSeries(
        times=times,
        used={name: tuple(used[rows]) for name, rows in part.items()},
        total={name: tuple(total[rows]) for name, rows in part.items()},
        waiting=tuple(moments["waiting"].to_pylist()),
        running=tuple(moments["running"].to_pylist()),
    )


def _rows(fairness: QueueShareSeries) -> dict[str, Any]:
    size = len(fairness.times) * len(fairness.queues)
    kept = slice(None, None, max(1, -(-size // MAX_FAIRNESS_ROWS)))
    times = fairness.times[kept]
    return {
        "time": np.repeat(times.astype(np.int64), len(fairness.queues)),
        "queue": list(fairness.queues) * len(times),
        "held": fairness.held[kept].astype(np.float32).ravel(),
        "wanted": fairness.requested[kept].astype(np.float32).ravel(),
        "fair": fairness.fair[kept].astype(np.float32).ravel(),
    }


def _fairness(rows: Mapping[str, Any], resource: str) -> QueueShareSeries:
    queues = tuple(dict.fromkeys(rows["queue"].to_pylist()))
    shape = (-1, max(1, len(queues)))
    held, requested, fair = (
        np.asarray(rows[name].to_numpy(zero_copy_only=False), np.float64).reshape(shape)
        for name in ("held", "wanted", "fair")
    )
    times = np.asarray(rows["time"].to_numpy(zero_copy_only=False), np.float64)[:: shape[1]]
    return QueueShareSeries(resource, queues, times, held, requested, fair)


def missing_runs(runs: Sequence[PlannedRun], folder: Path) -> tuple[PlannedRun, ...]:
    """Return the runs of a plan that have no result file yet."""
    return tuple(file.run for file in planned_result_files(folder, runs) if not file.path.exists())


def sort_result_files_by_seed(files: Sequence[ResultFile]) -> tuple[ResultFile, ...]:
    """Sort result files by seed, so that the runs of the first seed finish early under all policies."""
    rank_of_seed = {seed: rank for rank, seed in enumerate(dict.fromkeys(file.run.seed for file in files))}
    return tuple(sorted(files, key=lambda file: rank_of_seed[file.run.seed]))


def execute_missing_runs(
    runs: Sequence[PlannedRun], folder: Path, workers: LabWorkers, progress: Progress | None = None
) -> int:
    """Execute those runs of a plan that have no result file yet; write each result as soon as its run ends.

    Args:
      runs: All runs of the plan.
      folder: The result folder.
      workers: The workers.
      progress: Receives the number of finished runs and the number of runs.

    Returns:
      The number of executed runs.

    Raises:
      InvalidInput: As for `execute_and_encode_run`, for the first run that fails; finished results stay.
      CommandError: A worker process died.
    """

    def report_finished_runs(finished: int) -> None:
        if progress is not None:
            progress(finished, len(runs))

    report_finished_runs(len(runs) - len(missing_runs(runs, folder)))
    return copy_or_execute_missing_runs(
        sort_result_files_by_seed(planned_result_files(folder, runs)), folder, workers, report_finished_runs
    )


def copy_or_execute_missing_runs(
    files: Sequence[ResultFile], folder: Path, workers: LabWorkers, progress: Callable[[int], None]
) -> int:
    """Write each missing result file: copy an existing result with the same key, or execute the run.

    Args:
      files: The files. Runs with equal keys are executed once.
      folder: The result folder.
      workers: The workers.
      progress: Receives the number of existing files after each run.

    Returns:
      The number of executed runs.

    Raises:
      InvalidInput: As for `execute_and_encode_run`, for the first run that fails; finished results stay.
      CommandError: A worker process died.
    """
    missing_by_key: dict[str, list[ResultFile]] = {}
    for file in files:
        if not file.path.exists():
            missing_by_key.setdefault(file.run.result_key, []).append(file)
    finished = len(files) - sum(map(len, missing_by_key.values()))

    def write_missing_results_of_key(key: str, source: Path | BytesIO) -> None:
        nonlocal finished
        for file in missing_by_key[key]:
            file.write_copy_of_result(source)
        finished += len(missing_by_key[key])
        progress(finished)

    unknown_runs = []
    for key, equal_files in missing_by_key.items():
        result = find_result_path(folder, key)
        if result is None:
            unknown_runs.append(equal_files[0].run)
        else:
            write_missing_results_of_key(key, result)
    for index, content in map_runs(execute_and_encode_run, unknown_runs, workers):
        write_missing_results_of_key(unknown_runs[index].result_key, BytesIO(content))
    return len(unknown_runs)


def execute_and_encode_run(run: PlannedRun) -> bytes:
    """Execute a planned run, and return its outcome as the content of a Parquet file.

    Raises:
      InvalidInput: As for `simulate_run`.
    """
    return encode_outcome_as_parquet(simulate_run(run))

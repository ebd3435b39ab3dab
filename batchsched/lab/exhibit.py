"""The pages of a result folder: the report and the list of runs, rendered again after more runs have finished."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined, Template

from batchsched import __version__
from batchsched.errors import InvalidInput
from batchsched.lab.measures import MEASURES, Outcome
from batchsched.lab.report import render_sweep
from batchsched.lab.results import PLAN, RUNS, decode, read_plan, result_path

TEMPLATE: Final = "runs.html.j2"
LINKS: Final = (("All runs and their files", f"/{RUNS}"),)
Stamp = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Row:
    """A run in the list of runs.

    Args:
      workload: The name of the workload.
      policy: The name of the policy.
      seed: The seed of the run.
      file: The name of its result file, "" until it has finished.
      size: The size of the file in bytes.
      cells: The values of its measures, one for each column.
    """

    workload: str
    policy: str
    seed: int
    file: str = ""
    size: int = 0
    cells: tuple[str, ...] = ()


class ResultPages:
    """Renders the pages of a folder that `lab run` wrote or is still writing.

    Each result file is read once. A page is rendered on request if a run has finished since the last time.

    Args:
      folder: The result folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._outcomes: dict[str, tuple[Stamp, Outcome]] = {}
        self._report: tuple[Any, str] = (None, "")

    def report(self) -> str:
        """Return the HTML of the report.

        Raises:
          InvalidInput: The folder has no finished run, or a file in it is not a result file.
        """
        plan = read_plan(self._folder)
        outcomes = self._finished(plan)
        stamp = (_stamp(self._folder / PLAN), {key: of for key, (of, _) in self._outcomes.items()})
        if self._report[0] != stamp:
            self._report = (stamp, render_sweep(_name(plan), outcomes, LINKS))
        return self._report[1]

    def runs(self) -> str:
        """Return the HTML of the list of runs with their measures.

        Raises:
          InvalidInput: As for `report`.
        """
        plan = read_plan(self._folder)
        outcomes = self._finished(plan)
        shown = [one for one in MEASURES if any(outcome.measures[one.key] for outcome in outcomes)]
        rows = []
        for one in plan["runs"]:
            row = Row(one["workload"], one["policy"], one["seed"])
            if finished := self._outcomes.get(one["key"]):
                (_, size), outcome = finished
                figures = tuple(measure.show(outcome.measures[measure.key]) for measure in shown)
                cells = (f"{len(outcome.result.gangs):,}", *figures, f"{outcome.cpu_seconds:,.1f} s")
                row = Row(row.workload, row.policy, row.seed, f"{one['key']}.parquet", size, cells)
            rows.append(row)
        return _template().render(
            name=_name(plan),
            version=__version__,
            columns=("Gangs", *(one.title for one in shown), "Processor time"),
            rows=rows,
            finished=sum(bool(row.file) for row in rows),
        )

    def file(self, name: str) -> Path | None:
        """Return the file of a finished run; None if the plan has no finished run of this name.

        Raises:
          InvalidInput: The folder is not a result folder.
        """
        key = name.removesuffix(".parquet")
        path = result_path(self._folder, key)
        in_plan = any(run["key"] == key for run in read_plan(self._folder)["runs"])
        # Only names in the plan are served, and only inside the folder: a forged plan gives no access to other files.
        inside = path.resolve().parent == (self._folder / RUNS).resolve()
        return path if path.name == name and in_plan and inside and path.is_file() else None

    def _finished(self, plan: dict[str, Any]) -> tuple[Outcome, ...]:
        """Read newly finished runs; return all finished runs in the order and with the names of the plan.

        Raises:
          InvalidInput: No run has finished, or a file is not a result file.
        """
        kept: dict[str, tuple[Stamp, Outcome]] = {}
        outcomes = []
        for run in plan["runs"]:
            path = result_path(self._folder, run["key"])
            stamp = _stamp(path)
            if stamp is None:
                continue
            read_before = self._outcomes.get(run["key"])
            outcome = read_before[1] if read_before is not None and read_before[0] == stamp else decode(path)
            kept[run["key"]] = (stamp, outcome)
            outcomes.append(outcome.rename(run["workload"], run["policy"]))
        self._outcomes = kept
        if not outcomes:
            count = len(plan["runs"])
            raise InvalidInput(
                f"holds no result: none of its {count} runs has finished; `lab run` makes them",
                file=str(self._folder),
            )
        return tuple(outcomes)


def _name(plan: dict[str, Any]) -> str:
    return str(plan["scenario"]["name"])


def _stamp(path: Path) -> Stamp | None:
    """Return what identifies a version of a file, None if the file does not exist."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8"))

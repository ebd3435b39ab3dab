"""The HTML pages of a result folder, which are rendered again after more runs have finished."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined, Template

from batchsched import __version__
from batchsched.errors import InvalidInput
from batchsched.lab.definitions import reported_run_input_of_scenario
from batchsched.lab.measures import MEASURES, RunOutcome
from batchsched.lab.report import render_sweep_report
from batchsched.lab.results import (
    RUNS,
    planned_result_paths,
    read_outcome,
    read_outcomes_with_planned_names,
    read_plan,
)
from batchsched.lab.scenario import Scenario
from batchsched.observability.http.html_page import template_values_of_table_pages

TEMPLATE: Final = "runs.html.j2"
LINKS: Final = (("All runs and their files", f"/{RUNS}"),)
Stamp = tuple[int, int]


class ResultPages:
    """The HTML pages of a result folder that `lab run` wrote or is still writing.

    Each result file is read once. A page is rendered on request if a run has finished since the last time.

    Args:
      folder: The result folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._outcomes: dict[Path, tuple[Stamp, RunOutcome]] = {}
        self._report: tuple[Any, str] = (None, "")

    def report_html(self) -> str:
        """Return the HTML report on the finished runs of the result folder.

        Raises:
          InvalidInput: The folder has no finished run, or a file in it is not a result file.
        """
        plan = read_plan(self._folder)
        outcomes = self._finished(plan)
        if self._report[0] != (plan, outcomes):
            settings = reported_run_input_of_scenario(
                Scenario.model_validate(plan["scenario"]), plan.get("command", "")
            )
            name, planned = plan["scenario"]["name"], len(plan["runs"])
            self._report = ((plan, outcomes), render_sweep_report(name, outcomes, settings, LINKS, planned))
        return self._report[1]

    def runs_html(self) -> str:
        """Return the HTML page that lists the runs of the result folder with their measures.

        Raises:
          InvalidInput: As for `report_html`.
        """
        plan = read_plan(self._folder)
        outcomes = self._finished(plan)
        shown = [
            measure for measure in MEASURES if any(outcome.measures[measure.key] for outcome in outcomes)
        ]
        rows = []
        for run, path in zip(plan["runs"], planned_result_paths(self._folder, plan), strict=True):
            row = {**run, "file": "", "size": 0, "cells": ()}
            if path in self._outcomes and path.exists():
                (_, size), outcome = self._outcomes[path]
                figures = (measure.show(outcome.measures[measure.key]) for measure in shown)
                cells = (f"{len(outcome.result.gangs):,}", *figures, f"{outcome.cpu_seconds:,.1f} s")
                row |= {"file": path.name, "size": size, "cells": cells}
            rows.append(row)
        return _template().render(
            name=plan["scenario"]["name"],
            version=__version__,
            columns=("Gangs", *(measure.title for measure in shown), "Processor time"),
            rows=rows,
            finished=sum(bool(row["file"]) for row in rows),
            **template_values_of_table_pages(),
        )

    def result_file_path(self, name: str) -> Path | None:
        """Return the path of the result file with this name; None if no finished run of the folder has such a file.

        Raises:
          InvalidInput: The folder is not a result folder.
        """
        path = self._folder / RUNS / name
        in_plan = path in planned_result_paths(self._folder, read_plan(self._folder))
        # Only names in the plan are served, and only inside the folder: a forged plan gives no access to other files.
        inside = path.resolve().parent == (self._folder / RUNS).resolve()
        return path if path.name == name and in_plan and inside and path.is_file() else None

    def _finished(self, plan: dict[str, Any]) -> tuple[RunOutcome, ...]:
        """Read newly finished runs; return all finished runs of the plan.

        Raises:
          InvalidInput: No run has finished, or a file is not a result file.
        """
        outcomes = read_outcomes_with_planned_names(self._folder, plan, self._read)
        if not outcomes:
            count = len(plan["runs"])
            raise InvalidInput(
                f"holds no result: none of its {count} runs has finished; `lab run` makes them",
                file=str(self._folder),
            )
        return outcomes

    def _read(self, path: Path) -> RunOutcome:
        """Read a result file, or return its outcome if it has not changed since it was read."""
        stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        cached = self._outcomes.get(path)
        if cached is None or cached[0] != stamp:
            cached = self._outcomes[path] = (stamp, read_outcome(path))
        return cached[1]


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8"))

"""What the commands of the lab share: sweeps with a progress bar, and results as tables and data."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchsched.cli.options import Output
from batchsched.errors import InvalidInput

if TYPE_CHECKING:
    from batchsched.lab.pairs import Mean, PairedComparison
    from batchsched.lab.results import Outcome
    from batchsched.lab.scenario import Scenario
    from batchsched.lab.tuning import TuningResult


def need_parquet() -> None:
    """Check that what the lab needs is installed.

    Raises:
      InvalidInput: it is not.
    """
    if find_spec("pyarrow") is None:
        raise InvalidInput("the lab needs pyarrow and optuna; pip install 'batchsched[lab]'")


def swept(scenario: "Scenario", folder: Path, processes: int, address: str | None) -> None:
    """Make what is missing of a scenario's runs."""
    need_parquet()
    from batchsched.cli.stopwatch import Stopwatch
    from batchsched.lab.plan import plan
    from batchsched.lab.results import write_plan
    from batchsched.lab.sweep import missing, sweep
    from batchsched.lab.workers import workers

    runs = plan(scenario)
    write_plan(folder, scenario, runs)
    left = len(missing(runs, folder))
    if not left:
        print(f"{folder}: all {len(runs)} runs are finished", file=sys.stderr)
        return
    stopwatch = Stopwatch()
    try:
        with workers(address, min(processes, left)) as crew, stopwatch.stage("sweep"):
            made = sweep(runs, folder, crew, lambda done, total: stopwatch.progress(done, total, "runs"))
    finally:
        stopwatch.close()
    kept = len(runs) - made
    found = f", {kept} were there" if kept else ""
    print(f"{folder}: {made} runs in {stopwatch.seconds('sweep'):.0f} s{found}", file=sys.stderr)


def tuned(scenario: "Scenario", folder: Path, processes: int, address: str | None) -> "TuningResult":
    """Search a scenario's parameters, and write the report of the check."""
    need_parquet()
    from batchsched.cli.stopwatch import Stopwatch
    from batchsched.lab.tuning import TuningEnvironment, tune
    from batchsched.lab.workers import workers

    stopwatch = Stopwatch()
    try:
        with workers(address, processes) as crew:
            bench = TuningEnvironment(
                folder, crew, lambda done, total: stopwatch.progress(done, total, "settings")
            )
            found = tune(scenario, bench)
    finally:
        stopwatch.close()
    write_report(folder / "tuning.html", f"{scenario.name}, {found.policy} tuned", found.outcomes)
    return found


def write_report(path: Path, name: str, found: Sequence["Outcome"]) -> None:
    """Write the HTML report, and say on standard error where it is.

    Raises:
      OSError: the file cannot be written.
    """
    from batchsched.lab.findings import write

    write(path, name, found)
    print(f"report: {path}", file=sys.stderr)


def print_outcomes(name: str, found: Sequence["Outcome"], output: Output) -> None:
    """Print the means of each policy, workload by workload, and how each differs from the first."""
    from batchsched.lab.pairs import by_policy, compare_pairs

    workloads = list(dict.fromkeys(one.workload for one in found))
    parts = [
        (workload, by_policy([one for one in found if one.workload == workload])) for workload in workloads
    ]
    if output is Output.TABLE:
        for workload, policies in parts:
            _print_policies(f"{name}: {workload}", policies)
        return
    from batchsched.cli.printing import print_data

    told = []
    for workload, policies in parts:
        base = next(iter(policies))
        for policy, mine in policies.items():
            differences = compare_pairs(policies[base], mine) if policy != base else ()
            told.append(
                {
                    "workload": workload,
                    "policy": policy,
                    "runs": [_as_data(one) for one in mine],
                    "measures": {one.measure.key: mean_data(one.other) for one in compare_pairs(mine, mine)},
                    "against": base,
                    "differences": {one.measure.key: difference_data(one) for one in differences},
                }
            )
    print_data({"scenario": name, "policies": told}, output)


def _as_data(outcome: "Outcome") -> dict[str, Any]:
    return {
        "key": outcome.key,
        "seed": outcome.seed,
        "gangs": len(outcome.result.gangs),
        "sessions": outcome.result.sessions,
        "guards": outcome.result.guards,
        "resource": outcome.fairness.resource,
        **outcome.measures,
        "cpuSeconds": outcome.cpu_seconds,
    }


def mean_data(mean: "Mean") -> dict[str, Any]:
    """Return a mean as plain data; null where one value says nothing of its spread."""
    width = None if isnan(mean.half_width) else mean.half_width
    return {"mean": mean.value, "halfWidth": width, "count": mean.count}


def difference_data(one: "PairedComparison") -> dict[str, Any]:
    """Return a difference as plain data."""
    return {**mean_data(one.difference), "verdict": one.verdict}


def _print_policies(title: str, policies: dict[str, tuple["Outcome", ...]]) -> None:
    from batchsched.cli.printing import add_row, console, table
    from batchsched.cli.trials import blocks
    from batchsched.lab.pairs import compare_pairs, difference_text, of_interest

    names = list(policies)
    base = policies[names[0]]
    columns = [compare_pairs(base, policies[name]) for name in names]
    cells = [
        [
            one.measure.show(one.other.value) + ("" if name == names[0] else f"\n{difference_text(one)}")
            for one in column
        ]
        for name, column in zip(names, columns, strict=True)
    ]
    shown = {measure.title for measure in of_interest(columns)}
    out = console()
    titles = [one.measure.title for one in columns[0]]
    widths = [
        3 + max(len(line) for text in (name, *mine) for line in text.splitlines())
        for name, mine in zip(names, cells, strict=True)
    ]
    count = len(base)
    heading = f"{title}, means over {count} seeds" if count > 1 else title
    for block in blocks(widths, out.width - max(map(len, titles))):
        made = table(heading, "", *(names[at] for at in block))
        for row, text in enumerate(titles):
            if text in shown:
                add_row(made, text, *(cells[at][row] for at in block))
        out.print(made)
        heading = ""
    if len(names) > 1:
        out.print(f"Below each figure: how it differs from {names[0]}, seed by seed, with its 95 % interval.")

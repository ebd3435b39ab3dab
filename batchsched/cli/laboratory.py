"""Functions that the lab's commands share: sweeps with a progress bar, and results as tables and data."""

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


def check_lab_installed() -> None:
    """Check that pyarrow is installed, which the lab requires.

    Raises:
      InvalidInput: pyarrow is not installed.
    """
    if find_spec("pyarrow") is None:
        raise InvalidInput("the lab needs pyarrow and optuna; run pip install 'batchsched[lab]'")


def run_sweep(scenario: "Scenario", folder: Path, processes: int, address: str | None) -> None:
    """Run those runs of a scenario that have no result in the folder yet."""
    check_lab_installed()
    from batchsched.cli.session import Stopwatch
    from batchsched.lab.plan import plan
    from batchsched.lab.results import write_plan
    from batchsched.lab.sweep import missing, sweep
    from batchsched.lab.workers import workers

    runs = plan(scenario)
    write_plan(folder, scenario, runs)
    missing_count = len(missing(runs, folder))
    if not missing_count:
        print(f"{folder}: all {len(runs)} runs are finished", file=sys.stderr)
        return
    stopwatch = Stopwatch()
    try:
        with workers(address, min(processes, missing_count)) as crew, stopwatch.stage("sweep"):
            made = sweep(runs, folder, crew, lambda done, total: stopwatch.progress(done, total, "runs"))
    finally:
        stopwatch.close()
    kept = len(runs) - made
    kept_text = f", {kept} were finished before" if kept else ""
    print(f"{folder}: {made} runs in {stopwatch.seconds('sweep'):.0f} s{kept_text}", file=sys.stderr)


def run_tuning(scenario: "Scenario", folder: Path, processes: int, address: str | None) -> "TuningResult":
    """Search a scenario's parameters, write the report of the check, and return the result of the search."""
    check_lab_installed()
    from batchsched.cli.session import Stopwatch
    from batchsched.lab.tuning import TuningEnvironment, tune
    from batchsched.lab.workers import workers

    stopwatch = Stopwatch()
    try:
        with workers(address, processes) as crew:
            bench = TuningEnvironment(
                folder, crew, lambda done, total: stopwatch.progress(done, total, "settings")
            )
            result = tune(scenario, bench)
    finally:
        stopwatch.close()
    write_report(folder / "tuning.html", f"{scenario.name}, {result.policy} tuned", result.outcomes)
    return result


def write_report(path: Path, name: str, outcomes: Sequence["Outcome"]) -> None:
    """Write the HTML report, and print its path on standard error.

    Raises:
      OSError: the file cannot be written.
    """
    from batchsched.lab.findings import write

    write(path, name, outcomes)
    print(f"report: {path}", file=sys.stderr)


def print_outcomes(name: str, outcomes: Sequence["Outcome"], output: Output) -> None:
    """Print the means of each policy per workload, and the differences from the first policy."""
    from batchsched.lab.pairs import by_policy, compare_pairs

    workloads = list(dict.fromkeys(outcome.workload for outcome in outcomes))
    parts = [
        (workload, by_policy([outcome for outcome in outcomes if outcome.workload == workload]))
        for workload in workloads
    ]
    if output is Output.TABLE:
        for workload, policies in parts:
            _print_policies(f"{name}: {workload}", policies)
        return
    from batchsched.cli.printing import print_data

    records = []
    for workload, policies in parts:
        base = next(iter(policies))
        for policy, policy_outcomes in policies.items():
            differences = compare_pairs(policies[base], policy_outcomes) if policy != base else ()
            records.append(
                {
                    "workload": workload,
                    "policy": policy,
                    "runs": [_as_data(outcome) for outcome in policy_outcomes],
                    "measures": {
                        outcome.measure.key: mean_data(outcome.other)
                        for outcome in compare_pairs(policy_outcomes, policy_outcomes)
                    },
                    "against": base,
                    "differences": {
                        difference.measure.key: difference_data(difference) for difference in differences
                    },
                }
            )
    print_data({"scenario": name, "policies": records}, output)


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
    """Return a mean as plain data; the half width is null if there is only one value."""
    width = None if isnan(mean.half_width) else mean.half_width
    return {"mean": mean.value, "halfWidth": width, "count": mean.count}


def difference_data(compared: "PairedComparison") -> dict[str, Any]:
    """Return a difference as plain data."""
    return {**mean_data(compared.difference), "verdict": compared.verdict}


def _print_policies(title: str, policies: dict[str, tuple["Outcome", ...]]) -> None:
    from batchsched.cli.printing import add_row, console, table
    from batchsched.cli.trials import split_columns
    from batchsched.lab.pairs import compare_pairs, difference_text, of_interest

    names = list(policies)
    base = policies[names[0]]
    columns = [compare_pairs(base, policies[name]) for name in names]
    cells = [
        [
            comparison.measure.show(comparison.other.value)
            + ("" if name == names[0] else f"\n{difference_text(comparison)}")
            for comparison in column
        ]
        for name, column in zip(names, columns, strict=True)
    ]
    shown = {measure.title for measure in of_interest(columns)}
    out = console()
    titles = [comparison.measure.title for comparison in columns[0]]
    widths = [
        3 + max(len(line) for text in (name, *texts) for line in text.splitlines())
        for name, texts in zip(names, cells, strict=True)
    ]
    count = len(base)
    heading = f"{title}, means over {count} seeds" if count > 1 else title
    for block in split_columns(widths, out.width - max(map(len, titles))):
        made = table(heading, "", *(names[index] for index in block))
        for row, text in enumerate(titles):
            if text in shown:
                add_row(made, text, *(cells[index][row] for index in block))
        out.print(made)
        heading = ""
    if len(names) > 1:
        out.print(
            f"Below each figure: the difference from {names[0]}, paired by seed, with its 95 % interval."
        )

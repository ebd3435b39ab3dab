"""Simulated runs of policies under a profile, and their figures."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import yaml

from batchsched.cli.options import Output
from batchsched.config.schema import PolicySettings, Profile

if TYPE_CHECKING:
    from batchsched.simulator.comparison import PairedDifference
    from batchsched.simulator.result import Metrics, RunResult
    from batchsched.simulator.workload import Workload


_GAP = 3
"""Characters between two columns of a table."""


@dataclass(frozen=True, slots=True)
class NamedProfile:
    """A policy to run: its name in tables, and the profile that uses it."""

    name: str
    profile: Profile


def profiles_of_policies(
    policies: Sequence[str], base: Profile, changes: dict[str, Any]
) -> tuple[NamedProfile, ...]:
    """Return a profile for each policy.

    Args:
      policies: names, with optional arguments: `headroom:share=0.25,patience=3`. Empty: the profile's own policy.
      base: the profile that supplies all other settings.
      changes: settings that replace those of the profile.

    Raises:
      BadParameter: an argument does not have the form NAME=VALUE.
    """
    made = []
    for text in policies or [base.policy.name]:
        name, _, arguments = text.partition(":")
        args = dict(_argument(argument) for argument in arguments.split(",")) if arguments else {}
        policy = (
            base.policy
            if not arguments and name == base.policy.name
            else PolicySettings(name=name, args=args)
        )
        made.append(NamedProfile(text, base.model_copy(update={**changes, "policy": policy})))
    return tuple(made)


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter(f"{text!r} is not an argument of a policy; expected NAME=VALUE")
    return name.strip(), yaml.safe_load(value)


def base_profile(config: Path | None, name: str | None, default: Profile) -> Profile:
    """Return the profile of a configuration file, or the default if no file is given.

    Raises:
      InvalidInput: the file cannot be used, or there is no profile of that name.
    """
    if config is None and name in (None, default.scheduler_name):
        return default
    from batchsched.cli.session import profile_of

    profile = profile_of(config, name)
    if profile.extenders:
        print(
            "warning: a simulation does not call extenders, because they do not know the simulated cluster",
            file=sys.stderr,
        )
    return profile.model_copy(update={"extenders": ()})


@dataclass(frozen=True, slots=True)
class PolicyRuns:
    """All runs of one policy: one run, or one for each sequence of a trace."""

    name: str
    runs: tuple["RunResult", ...]

    @property
    def metrics(self) -> tuple["Metrics", ...]:
        """The figures of each run."""
        return tuple(run.metrics() for run in self.runs)


def mean_of(tried: PolicyRuns, figure: str) -> float:
    """Return the mean of one figure over the runs of a policy."""
    values = [float(getattr(metrics, figure)) for metrics in tried.metrics]
    return sum(values) / len(values) if values else 0.0


def print_trials(trials: Sequence[PolicyRuns], output: Output, workload: str) -> None:
    """Print the figures of each policy, and the differences from the first policy."""
    differences = _differences(trials)
    if output is Output.TABLE:
        _print_tables(trials, differences, workload)
        return
    from batchsched.cli.printing import print_data

    print_data(
        {
            "workload": workload,
            "policies": [_as_data(runs) for runs in trials],
            "differences": [
                {"base": trials[0].name, "policy": name, "meanSlowdown": difference}
                for name, difference in differences
            ],
        },
        output,
    )


def _differences(trials: Sequence[PolicyRuns]) -> list[tuple[str, "PairedDifference"]]:
    from batchsched.simulator.comparison import paired

    if len(trials) < 2 or len(trials[0].runs) < 2:
        return []
    first = [trial.mean_slowdown for trial in trials[0].metrics]
    return [(trial.name, paired(first, [run.mean_slowdown for run in trial.metrics])) for trial in trials[1:]]


_FIGURES = {
    "gangs": "gangs",
    "unfinished": "unfinished",
    "meanWait": "mean_wait",
    "worstWait": "worst_wait",
    "meanSlowdown": "mean_slowdown",
    "worstSlowdown": "worst_slowdown",
    "makespan": "makespan",
}


def _as_data(tried: PolicyRuns) -> dict[str, Any]:
    metrics = tried.metrics
    record: dict[str, Any] = {
        "policy": tried.name,
        **{key: mean_of(tried, field) for key, field in _FIGURES.items()},
        "sessions": sum(run.sessions for run in tried.runs),
        "meanGap": sum(run.mean_gap for run in tried.runs) / max(1, len(tried.runs)),
        "worstGap": max((run.worst_gap for run in tried.runs), default=0.0),
        "failures": sum(run.failures for run in tried.runs),
    }
    if len(metrics) == 1:
        return record | {"utilisation": metrics[0].utilisation}
    runs = [
        {"workload": run.workload, **{key: getattr(run_metrics, field) for key, field in _FIGURES.items()}}
        for run, run_metrics in zip(tried.runs, metrics, strict=True)
    ]
    return record | {"runs": runs}


def _print_tables(
    trials: Sequence[PolicyRuns], differences: Sequence[tuple[str, "PairedDifference"]], workload: str
) -> None:
    from batchsched.cli.printing import console

    out = console()
    many = len(trials[0].runs)
    print_side_by_side(trials, f"{workload}: means over {many} sequences" if many > 1 else workload)
    for name, difference in differences:
        out.print(
            f"{name} against {trials[0].name}, mean slowdown, paired: {difference.mean:+.2f} "
            f"± {difference.half_width:.2f} ({difference.relative:+.1%}), "
            f"lower in {difference.better:.0%} of the sequences"
        )


def print_side_by_side(trials: Sequence[PolicyRuns], title: str) -> None:
    """Print figures as rows and policies as columns; columns beyond the terminal width go to further tables."""
    from batchsched.cli.printing import add_row, console, table
    from batchsched.lab.summary import FOOTNOTE, averages

    out = console()
    metrics, averaged = averages([average.runs for average in trials])
    heads = [average.policy.replace(":", ":\n").replace(",", ",\n") for average in averaged]
    widths = [
        _GAP + max(len(line) for line in (*head.splitlines(), *average.texts))
        for head, average in zip(heads, averaged, strict=True)
    ]
    room = out.width - max(len(metric.title) for metric in metrics)
    for block in split_columns(widths, room):
        made = table(title, "", *(heads[index] for index in block))
        for row, metric in enumerate(metrics):
            add_row(made, metric.title, *(averaged[index].texts[row] for index in block))
        out.print(made)
        title = ""
    if any(metric.title.endswith("*") for metric in metrics):
        out.print(FOOTNOTE)


def split_columns(widths: Sequence[int], room: int) -> list[list[int]]:
    """Distribute columns over tables of at most `room` characters, in order, with at least one column each."""
    made: list[list[int]] = []
    remaining = 0
    for index, width in enumerate(widths):
        if not made or width > remaining:
            made.append([])
            remaining = room
        made[-1].append(index)
        remaining -= width
    return made


def write_report(path: Path, trials: Sequence[PolicyRuns], workload: "Workload", seed: int) -> None:
    """Write the HTML report of the first run of each policy.

    Raises:
      OSError: the file cannot be written.
    """
    from batchsched.lab.report import ReportFacts, write

    count = len(trials[0].runs)
    facts = (("Sequences", f"the first of {count}"),) if count > 1 else ()
    write(
        path,
        [trial.runs[0] for trial in trials],
        ReportFacts(workload.name, seed, workload.cluster.nodes, facts),
    )

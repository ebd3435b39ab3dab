"""Simulated runs as the command line states them: which policies, under which profile, and what came out."""

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
class Choice:
    """A policy to be tried: how it is shown, and the profile that has it."""

    name: str
    profile: Profile


def choices(policies: Sequence[str], base: Profile, changes: dict[str, Any]) -> tuple[Choice, ...]:
    """Make a profile for each policy.

    Args:
      policies: names, with arguments where wanted: `headroom:share=0.25,patience=3`. None: the profile's own policy.
      base: the profile that everything else comes from.
      changes: settings of the profile that options replace.

    Raises:
      BadParameter: arguments that are not of the form.
    """
    made = []
    for text in policies or [base.policy.name]:
        name, _, arguments = text.partition(":")
        args = dict(_argument(one) for one in arguments.split(",")) if arguments else {}
        policy = (
            base.policy
            if not arguments and name == base.policy.name
            else PolicySettings(name=name, args=args)
        )
        made.append(Choice(text, base.model_copy(update={**changes, "policy": policy})))
    return tuple(made)


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter(f"{text!r} is no argument of a policy; expected NAME=VALUE")
    return name.strip(), yaml.safe_load(value)


def base_profile(config: Path | None, name: str | None, default: Profile) -> Profile:
    """Return the profile of a configuration file, or a default where no file is given.

    Raises:
      InvalidInput: the file cannot be used, or has no profile of that name, as has none at all.
    """
    if config is None and name in (None, default.scheduler_name):
        return default
    from batchsched.cli.session import profile_of

    profile = profile_of(config, name)
    if profile.extenders:
        print("warning: extenders are not asked: a simulation's cluster is not theirs", file=sys.stderr)
    return profile.model_copy(update={"extenders": ()})


@dataclass(frozen=True, slots=True)
class Tried:
    """All runs of one policy: one, or one for each sequence of a trace."""

    name: str
    runs: tuple["RunResult", ...]

    @property
    def metrics(self) -> tuple["Metrics", ...]:
        """The figures of each run."""
        return tuple(run.metrics() for run in self.runs)


def mean_of(tried: Tried, figure: str) -> float:
    """Return the mean of one figure over the runs of a policy."""
    values = [float(getattr(one, figure)) for one in tried.metrics]
    return sum(values) / len(values) if values else 0.0


def print_trials(trials: Sequence[Tried], output: Output, workload: str) -> None:
    """Print what came out, policy by policy, and how each differs from the first."""
    differences = _differences(trials)
    if output is Output.TABLE:
        _print_tables(trials, differences, workload)
        return
    from batchsched.cli.printing import print_data

    print_data(
        {
            "workload": workload,
            "policies": [_as_data(one) for one in trials],
            "differences": [
                {"base": trials[0].name, "policy": name, "meanSlowdown": difference}
                for name, difference in differences
            ],
        },
        output,
    )


def _differences(trials: Sequence[Tried]) -> list[tuple[str, "PairedDifference"]]:
    from batchsched.simulator.comparison import paired

    if len(trials) < 2 or len(trials[0].runs) < 2:
        return []
    first = [one.mean_slowdown for one in trials[0].metrics]
    return [(one.name, paired(first, [run.mean_slowdown for run in one.metrics])) for one in trials[1:]]


_FIGURES = {
    "gangs": "gangs",
    "unfinished": "unfinished",
    "meanWait": "mean_wait",
    "worstWait": "worst_wait",
    "meanSlowdown": "mean_slowdown",
    "worstSlowdown": "worst_slowdown",
    "makespan": "makespan",
}


def _as_data(tried: Tried) -> dict[str, Any]:
    metrics = tried.metrics
    told: dict[str, Any] = {
        "policy": tried.name,
        **{key: mean_of(tried, field) for key, field in _FIGURES.items()},
        "sessions": sum(run.sessions for run in tried.runs),
        "meanGap": sum(run.mean_gap for run in tried.runs) / max(1, len(tried.runs)),
        "worstGap": max((run.worst_gap for run in tried.runs), default=0.0),
        "failures": sum(run.failures for run in tried.runs),
    }
    if len(metrics) == 1:
        return told | {"utilisation": metrics[0].utilisation}
    runs = [
        {"workload": run.workload, **{key: getattr(one, field) for key, field in _FIGURES.items()}}
        for run, one in zip(tried.runs, metrics, strict=True)
    ]
    return told | {"runs": runs}


def _print_tables(
    trials: Sequence[Tried], differences: Sequence[tuple[str, "PairedDifference"]], workload: str
) -> None:
    from batchsched.cli.printing import console

    out = console()
    many = len(trials[0].runs)
    print_side_by_side(trials, f"{workload}: means over {many} sequences" if many > 1 else workload)
    for name, difference in differences:
        out.print(
            f"{name} against {trials[0].name}, mean slowdown, in pairs: {difference.mean:+.2f} "
            f"± {difference.half_width:.2f} ({difference.relative:+.1%}), "
            f"lower in {difference.better:.0%} of the sequences"
        )


def print_side_by_side(trials: Sequence[Tried], title: str) -> None:
    """Print figures as rows and policies as columns; what is too wide for the terminal goes on below."""
    from batchsched.cli.printing import add_row, console, table
    from batchsched.lab.summary import FOOTNOTE, averages

    out = console()
    metrics, found = averages([one.runs for one in trials])
    heads = [one.policy.replace(":", ":\n").replace(",", ",\n") for one in found]
    widths = [
        _GAP + max(len(line) for line in (*head.splitlines(), *one.texts))
        for head, one in zip(heads, found, strict=True)
    ]
    room = out.width - max(len(metric.title) for metric in metrics)
    for block in blocks(widths, room):
        made = table(title, "", *(heads[at] for at in block))
        for row, metric in enumerate(metrics):
            add_row(made, metric.title, *(found[at].texts[row] for at in block))
        out.print(made)
        title = ""
    if any(metric.title.endswith("*") for metric in metrics):
        out.print(FOOTNOTE)


def blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Share columns out over tables that are no wider than `room`, at least one to each, in their order."""
    made: list[list[int]] = []
    left = 0
    for at, width in enumerate(widths):
        if not made or width > left:
            made.append([])
            left = room
        made[-1].append(at)
        left -= width
    return made


def write_report(path: Path, trials: Sequence[Tried], workload: "Workload", seed: int) -> None:
    """Write the HTML report of the first run of each policy.

    Raises:
      OSError: the file cannot be written.
    """
    from batchsched.lab.report import ReportFacts, write

    count = len(trials[0].runs)
    facts = (("Sequences", f"the first of {count}"),) if count > 1 else ()
    write(
        path, [one.runs[0] for one in trials], ReportFacts(workload.name, seed, workload.cluster.nodes, facts)
    )

"""Prints the results of simulations, sweeps, comparisons and searches of the lab, as tables or as data."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchsched.api.core.quantity import pluralize
from batchsched.api.crd.validation import suggest_name
from batchsched.cli.options import OutputFormat
from batchsched.cli.printing import (
    NONE,
    add_row,
    console,
    new_table,
    print_aligned,
    print_data,
)
from batchsched.cli.terminal import command_line_text
from batchsched.errors import InvalidInput

if TYPE_CHECKING:
    from batchsched.lab.measures import RunOutcome
    from batchsched.lab.pairs import MeanInterval, PairedComparison
    from batchsched.lab.plan import PlannedRun
    from batchsched.lab.tuning import TuningResult

_GAP = 3
"""Characters between two columns of a table."""
_MAX_UNFINISHED = 20
"""Maximum number of unfinished gangs in a table."""
_FIGURES = {
    "gangs": "gangs",
    "unfinished": "unfinished",
    "meanWait": "mean_wait",
    "worstWait": "worst_wait",
    "meanSlowdown": "mean_slowdown",
    "worstSlowdown": "worst_slowdown",
    "makespan": "makespan",
}
"""Figures of a simulation as data, and the fields of `RunMetrics` that contain them."""


# A simulation


def print_simulation_result(
    name: str, policies: Sequence[Sequence["RunOutcome"]], output: OutputFormat
) -> None:
    """Print the result of `batchsched simulate`: measures of each policy, and the gangs that did not finish.

    For several sequences of a trace, it also prints how much the mean slowdown of each policy differs from that of
    the first policy.

    Args:
      name: the name of the workloads.
      policies: the outcomes of each policy: one run, or one for each sequence of a trace.
      output: the format.
    """
    base = policies[0]
    differences = (
        {runs[0].policy: _slowdown_difference(base, runs) for runs in policies[1:]} if len(base) > 1 else {}
    )
    if output is not OutputFormat.TABLE:
        records = [
            {
                "base": base[0].policy,
                "policy": policy,
                "meanSlowdown": {
                    "base": slowdown.base.value,
                    "other": slowdown.other.value,
                    "mean": slowdown.difference.value,
                    "half_width": slowdown.difference.half_width,
                    "better": slowdown.lower,
                },
            }
            for policy, slowdown in differences.items()
        ]
        print_data(
            {
                "workload": name,
                "policies": [_summary_data(runs) for runs in policies],
                "differences": records,
            },
            output,
        )
        return
    from batchsched.lab.figure import format_signed

    print_simulation_summary(policies, f"{name}: means over {len(base)} sequences" if len(base) > 1 else name)
    _print_chosen_policies(policies)
    _print_unfinished(policies)
    for policy, slowdown in differences.items():
        difference = slowdown.difference
        relative = difference.value / slowdown.base.value if slowdown.base.value else 0.0
        value = format_signed(f"{abs(difference.value):.2f}", difference.value)
        percentage = format_signed(f"{abs(relative):.1%}", relative)
        console().print(
            f"{policy} against {base[0].policy}, mean slowdown, paired: {value} "
            f"± {difference.half_width:.2f} ({percentage}), lower in {slowdown.lower:.0%} of the sequences"
        )


def write_simulation_report(
    path: Path, runs: Sequence["PlannedRun"], outcomes: Sequence["RunOutcome"], sequences: int
) -> None:
    """Write the HTML report of a simulation.

    Args:
      path: the path of the report.
      runs: a run of the same workload under each policy.
      outcomes: the outcomes of these runs.
      sequences: the number of simulated sequences of a trace, of which the report draws the first.
    """
    from batchsched.lab.definitions import ReportedRunInput, describe_load
    from batchsched.lab.report import render_simulation_report
    from batchsched.lab.simulation import create_workload_of_run

    facts = [("Load", describe_load(runs[0].workload))]
    if sequences > 1:
        facts.append(("Sequences", f"the first of {sequences}"))
    workload = create_workload_of_run(runs[0])
    settings = ReportedRunInput(
        command=command_line_text(),
        facts=tuple(facts),
        profiles={run.policy: run.profile for run in runs},
        queues=workload.cluster.queues,
    )
    html = render_simulation_report(workload.name, outcomes, workload.cluster.nodes, settings)
    path.write_text(html, encoding="utf-8")


def _slowdown_difference(base: Sequence["RunOutcome"], other: Sequence["RunOutcome"]) -> "PairedComparison":
    from batchsched.lab.pairs import compare_pairs

    return next(compared for compared in compare_pairs(base, other) if compared.measure.key == "meanSlowdown")


def _summary_data(runs: Sequence["RunOutcome"]) -> dict[str, Any]:
    from batchsched.lab.measures import list_unfinished_gangs

    results = [outcome.result for outcome in runs]
    metrics = [result.metrics() for result in results]
    record: dict[str, Any] = {
        "policy": runs[0].policy,
        **{key: _mean([getattr(figures, field) for figures in metrics]) for key, field in _FIGURES.items()},
        "sessions": sum(result.sessions for result in results),
        "meanGap": _mean([result.mean_gap for result in results]),
        "worstGap": max(result.worst_gap for result in results),
        "failures": sum(result.failures for result in results),
        "utilisation": _mean_utilisation([figures.utilisation for figures in metrics]),
    }
    chosen_policies = _sessions_by_chosen_policy(runs)
    if chosen_policies:
        record["chosenPolicies"] = chosen_policies
    record["unfinishedGangs"] = [
        {"podGroup": gang.key, "reason": gang.reason, "message": gang.message}
        for gang in list_unfinished_gangs(results)
    ]
    if len(runs) == 1:
        first, last = results[0].measured_period
        return record | {"utilisationSeconds": last - first}
    figures_by_run = [
        {
            "workload": result.workload,
            **{key: getattr(figures, field) for key, field in _FIGURES.items()},
            "utilisation": figures.utilisation,
        }
        for result, figures in zip(results, metrics, strict=True)
    ]
    return record | {"runs": figures_by_run}


def _mean_utilisation(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the utilization of each resource, as the mean over the given runs."""
    resources = dict.fromkeys(resource for run in runs for resource in run)
    return {resource: _mean([run.get(resource, 0.0) for run in runs]) for resource in resources}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def print_simulation_summary(policies: Sequence[Sequence["RunOutcome"]], title: str) -> None:
    """Print the summary of a simulation as a table with measures as rows and policies as columns."""
    from batchsched.lab.measures import summarize_run_outcomes, utilisation_footnote

    rows = {row.measure.title: row.formatted_means for row in summarize_run_outcomes(policies)}
    heads = [runs[0].policy.replace(":", ":\n").replace(",", ",\n") for runs in policies]
    _print_columns(title, heads, rows, rows)
    if any(row.endswith("*") for row in rows):
        console().print(utilisation_footnote([outcome.result for runs in policies for outcome in runs]))


def _print_chosen_policies(policies: Sequence[Sequence["RunOutcome"]]) -> None:
    """Print in which share of the sessions the policy `auto` used each candidate gang order."""
    for runs in policies:
        sessions = _sessions_by_chosen_policy(runs)
        total = sum(sessions.values())
        shares = (
            f"{label} in {count / total:.0%}"
            for label, count in sorted(sessions.items(), key=lambda item: -item[1])
        )
        if total:
            console().print(f"{runs[0].policy} chose {', '.join(shares)} of the sessions", soft_wrap=True)


def _sessions_by_chosen_policy(runs: Sequence["RunOutcome"]) -> dict[str, int]:
    """Return how many sessions of the runs used each candidate gang order of the policy `auto`."""
    sessions: Counter[str] = Counter()
    for outcome in runs:
        sessions.update(outcome.result.chosen_policies)
    return dict(sessions)


def _print_unfinished(policies: Sequence[Sequence["RunOutcome"]]) -> None:
    """Print a line for each gang that did not finish, with the reason."""
    from batchsched.lab.measures import list_unfinished_gangs

    gangs = list_unfinished_gangs([outcome.result for runs in policies for outcome in runs])
    if not gangs:
        return
    several = len(policies) > 1
    rows = [
        (
            gang.key,
            gang.reason or NONE,
            *((", ".join(gang.policies) if len(gang.policies) < len(policies) else "all",) * several),
            gang.message or "waits, and no session refused it",
        )
        for gang in gangs[:_MAX_UNFINISHED]
    ]
    console().print(f"\n{pluralize(len({gang.key for gang in gangs}), 'gang')} did not finish:")
    print_aligned([("NAME", "REASON", *(("POLICY",) * several), "MESSAGE"), *rows])
    if len(gangs) > len(rows):
        console().print(f"and {len(gangs) - len(rows)} more; -o json lists all")


def _print_columns(
    title: str, heads: Sequence[str], rows: Mapping[str, Sequence[str]], shown: Container[str]
) -> None:
    """Print the shown rows as a table; columns that do not fit the terminal follow in further tables."""
    out = console()
    columns = zip(heads, zip(*rows.values(), strict=True), strict=True)
    widths = [
        _GAP + max(len(line) for text in (head, *texts) for line in text.splitlines())
        for head, texts in columns
    ]
    for block in divide_columns_among_tables(widths, out.width - max(map(len, rows))):
        made = new_table(title, "", *(heads[index] for index in block))
        for row, texts in rows.items():
            if row in shown:
                add_row(made, row, *(texts[index] for index in block))
        out.print(made)
        title = ""


def divide_columns_among_tables(widths: Sequence[int], room: int) -> list[list[int]]:
    """Divide columns among several tables, so that each table is at most `room` characters wide if possible.

    Returns:
      The indices of the columns of each table.
    """
    made: list[list[int]] = []
    remaining = 0
    for index, width in enumerate(widths):
        if not made or width > remaining:
            made.append([])
            remaining = room
        made[-1].append(index)
        remaining -= width
    return made


# A sweep


def print_sweep_result(name: str, outcomes: Sequence["RunOutcome"], output: OutputFormat) -> None:
    """Print, for each workload, the mean measures of each policy and their differences from the first policy."""
    from batchsched.lab.pairs import compare_pairs, group_by_workload

    parts = group_by_workload(outcomes)
    if output is OutputFormat.TABLE:
        for workload, policies in parts.items():
            _print_policies(f"{name}: {workload}", policies)
        return
    records = []
    for workload, policies in parts.items():
        base = next(iter(policies))
        for policy, policy_outcomes in policies.items():
            differences = compare_pairs(policies[base], policy_outcomes) if policy != base else ()
            records.append(
                {
                    "workload": workload,
                    "policy": policy,
                    "runs": [_run_data(outcome) for outcome in policy_outcomes],
                    "measures": {
                        outcome.measure.key: _mean_data(outcome.other)
                        for outcome in compare_pairs(policy_outcomes, policy_outcomes)
                    },
                    "against": base,
                    "differences": {
                        difference.measure.key: _difference_data(difference) for difference in differences
                    },
                }
            )
    print_data({"scenario": name, "policies": records}, output)


def _run_data(outcome: "RunOutcome") -> dict[str, Any]:
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


def _mean_data(mean: "MeanInterval") -> dict[str, Any]:
    # JSON has no nan, which is the half width if there is only one value.
    width = None if isnan(mean.half_width) else mean.half_width
    return {"mean": mean.value, "halfWidth": width, "count": mean.sample_count}


def _difference_data(compared: "PairedComparison") -> dict[str, Any]:
    return {**_mean_data(compared.difference), "verdict": compared.outcome}


def _print_policies(title: str, policies: Mapping[str, Sequence["RunOutcome"]]) -> None:
    from batchsched.lab.pairs import compare_pairs, format_comparison_outcome, nonzero_measures

    base_name, base = next(iter(policies.items()))
    columns = {policy: compare_pairs(base, outcomes) for policy, outcomes in policies.items()}
    rows: dict[str, list[str]] = {comparison.measure.title: [] for comparison in columns[base_name]}
    for policy, comparisons in columns.items():
        for comparison in comparisons:
            difference = "" if policy == base_name else f"\n{format_comparison_outcome(comparison)}"
            rows[comparison.measure.title].append(
                comparison.measure.show(comparison.other.value) + difference
            )
    shown = {measure.title for measure in nonzero_measures(columns.values())}
    heading = f"{title}, means over {len(base)} seeds" if len(base) > 1 else title
    _print_columns(heading, list(policies), rows, shown)
    if len(policies) > 1:
        console().print(
            f"Below each figure: the verdict, and the difference from {base_name}, paired by seed, with its 95 % "
            "interval. A policy is better or worse only if the interval excludes 0."
        )


# A comparison


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """The comparison of two policies on one workload, with an entry for each measure.

    Args:
      workload: the name of the workload.
      base, other: the names of the two policies.
      measures: the comparison by each measure, over the seeds that both policies have finished.
      seeds: the number of planned seeds.
    """

    workload: str
    base: str
    other: str
    measures: tuple["PairedComparison", ...]
    seeds: int


def compare_policies_in_result_folders(base: str, other: str) -> tuple[PolicyComparison, ...]:
    """Compare the results of two policies, or of each policy that two result folders have in common.

    Each argument has the form DIR or DIR:POLICY. The form :POLICY, only for `other`, means a policy in the folder of
    `base`. If only one argument names a policy, this policy is compared in both folders. If no argument names a policy,
    each policy of `base` is compared with the policy of the same name of `other`.

    Raises:
      BadParameter: a folder or a policy does not exist.
      InvalidInput: the two sides have no policy in common.
    """
    from batchsched.lab.pairs import check_same_gangs, compare_pairs, group_by_policy
    from batchsched.lab.results import planned_seeds, read_outcomes

    base_folder, base_policy = _split_argument(base)
    other_folder, other_policy = _split_argument(other)
    if base_folder is None:
        raise typer.BadParameter(
            f"{base!r} is not a folder of results; expected DIR or DIR:POLICY", param_hint="A"
        )
    for folder, hint in ((base_folder, "A"), (other_folder, "B")):
        if folder is not None and not folder.is_dir():
            raise typer.BadParameter(f"there is no folder {str(folder)!r}", param_hint=hint)
    base_outcomes = group_by_policy(read_outcomes(base_folder))
    other_outcomes = (
        group_by_policy(read_outcomes(other_folder)) if other_folder is not None else base_outcomes
    )
    if base_policy or other_policy:
        names = [
            (
                _check_policy(base_policy or other_policy, base_outcomes, base),
                _check_policy(other_policy or base_policy, other_outcomes, other),
            )
        ]
    else:
        names = [(base_name, base_name) for base_name in base_outcomes if base_name in other_outcomes]
    planned = len(planned_seeds(base_folder) & planned_seeds(other_folder or base_folder))
    comparisons = []
    for base_name, other_name in names:
        check_same_gangs(base_outcomes[base_name], other_outcomes[other_name])
        for workload in dict.fromkeys(outcome.workload for outcome in base_outcomes[base_name]):
            measures = compare_pairs(
                _outcomes_of_workload(workload, base_outcomes[base_name]),
                _outcomes_of_workload(workload, other_outcomes[other_name]),
            )
            sides = f"A: {base_name}", f"B: {other_name}"
            comparisons.append(PolicyComparison(workload, *sides, measures, planned))
    comparisons = [comparison for comparison in comparisons if comparison.measures]
    if not comparisons:
        raise InvalidInput("no policy was run on the same workload with the same seed in both", object=other)
    return tuple(comparisons)


def _split_argument(argument: str) -> tuple[Path | None, str]:
    """Split an argument into a folder and a policy.

    The folder is None if the argument is `:POLICY`; the policy is "" if the argument names a folder only. If a folder
    of that name exists, a colon in the argument belongs to the name.
    """
    if Path(argument).is_dir():
        return Path(argument), ""
    folder, _, policy = argument.partition(":")
    return Path(folder) if folder else None, policy


def _check_policy(name: str, policies: Mapping[str, tuple["RunOutcome", ...]], argument: str) -> str:
    if name not in policies:
        raise typer.BadParameter(
            f"{argument}: there is no policy {name!r}; {suggest_name(name, list(policies))}"
        )
    return name


def _outcomes_of_workload(workload: str, outcomes: Sequence["RunOutcome"]) -> list["RunOutcome"]:
    return [outcome for outcome in outcomes if outcome.workload == workload]


def print_comparisons(comparisons: Sequence[PolicyComparison], output: OutputFormat) -> None:
    """Print comparisons of policies, with one table for each workload and pair of policies."""
    if output is not OutputFormat.TABLE:
        print_data(
            [
                {
                    "workload": comparison.workload,
                    "a": comparison.base,
                    "b": comparison.other,
                    "seeds": comparison.measures[0].difference.sample_count,
                    "plannedSeeds": comparison.seeds,
                    "measures": _measures_data(comparison.measures),
                }
                for comparison in comparisons
            ],
            output,
        )
        return
    for comparison in comparisons:
        count = comparison.measures[0].difference.sample_count
        title = f"{comparison.workload}: {pluralize(count, 'seed')}"
        if count < comparison.seeds:
            title = f"{comparison.workload}: partial, {count} of {pluralize(comparison.seeds, 'seed')}"
        _print_measures(title, comparison)


def print_tuning_result(tuned: "TuningResult", output: OutputFormat) -> None:
    """Print the best settings that `lab tune` found, and compare them with the settings of the scenario.

    The comparison is on held-out seeds, and states which measures became worse.
    """
    from batchsched.lab.tuning_report import tuning_conclusion_text

    if output is not OutputFormat.TABLE:
        print_data(_tuned_data(tuned), output)
        return
    out = console()
    show = tuned.measure.show
    for place, value in tuned.best.settings.items():
        out.print(
            f"{place}: {value:.6g}" if isinstance(value, float) else f"{place}: {value}", soft_wrap=True
        )
    out.print(
        f"\n{tuned.measure.title} on the seeds of the search: {show(tuned.base)} with the stated settings, "
        f"{show(tuned.best.value)} with the best of {len(tuned.tried)} settings.",
        soft_wrap=True,
    )
    title = f"On {len(tuned.held_out)} seeds that the search did not see"
    _print_measures(title, PolicyComparison("", "As stated", "Tuned", tuned.check, len(tuned.held_out)))
    out.print(tuning_conclusion_text(tuned), soft_wrap=True)


def _tuned_data(tuned: "TuningResult") -> dict[str, Any]:
    return {
        "policy": tuned.policy,
        "objective": tuned.measure.key,
        "best": dict(tuned.best.settings),
        "search": {"base": tuned.base, "best": tuned.best.value},
        "heldOut": {
            "seeds": tuned.held_out,
            "improved": tuned.is_better_on_held_out_seeds,
            "seedsToTell": tuned.seed_count_to_detect_gain,
        },
        "measures": _measures_data(tuned.check),
        "tried": [{"settings": dict(trial.settings), "value": trial.value} for trial in tuned.tried],
    }


def _measures_data(measures: Sequence["PairedComparison"]) -> dict[str, Any]:
    return {
        measure.measure.key: {
            "a": _mean_data(measure.base),
            "b": _mean_data(measure.other),
            "difference": _difference_data(measure),
        }
        for measure in measures
    }


def _print_measures(title: str, contest: PolicyComparison) -> None:
    from batchsched.lab.pairs import format_difference

    made = new_table(title, "", contest.base, contest.other, "Difference", "")
    for compared in contest.measures:
        if compared.base.value or compared.other.value:
            show = compared.measure.show
            outcome = "" if compared.outcome == "same" else compared.outcome
            texts = (
                show(compared.base.value),
                show(compared.other.value),
                format_difference(compared),
                outcome,
            )
            add_row(made, compared.measure.title, *texts)
    console().print(made)

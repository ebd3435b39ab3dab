"""Differences between results of the lab: two policies, two folders, or a policy before and after tuning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchsched.api.crd.validation import nearest
from batchsched.cli.options import Output
from batchsched.errors import InvalidInput

if TYPE_CHECKING:
    from batchsched.lab.pairs import PairedComparison
    from batchsched.lab.results import Outcome
    from batchsched.lab.tuning import TuningResult


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """The comparison of two policies on one workload, measure by measure."""

    workload: str
    base: str
    other: str
    measures: tuple["PairedComparison", ...]


def compare_results(base: str, other: str) -> tuple[PolicyComparison, ...]:
    """Compare two folders of results or two policies, given as on the command line: DIR, DIR:POLICY or :POLICY.

    Raises:
      InvalidInput: a folder or a policy does not exist, or the two sides have no policy in common.
    """
    from batchsched.lab.pairs import by_policy, check_same, compare_pairs
    from batchsched.lab.results import outcomes

    base_folder, base_policy = _split_argument(base)
    other_folder, other_policy = _split_argument(other)
    if base_folder is None:
        raise InvalidInput("expected a folder of results, DIR or DIR:POLICY", object=base)
    base_outcomes = by_policy(outcomes(base_folder))
    other_outcomes = by_policy(outcomes(other_folder)) if other_folder is not None else base_outcomes
    if base_policy or other_policy:
        names = [
            (
                _check_policy(base_policy or other_policy, base_outcomes, base),
                _check_policy(other_policy or base_policy, other_outcomes, other),
            )
        ]
    else:
        names = [(base_name, base_name) for base_name in base_outcomes if base_name in other_outcomes]
    comparisons = []
    for base_name, other_name in names:
        check_same(base_outcomes[base_name], other_outcomes[other_name])
        for workload in dict.fromkeys(outcome.workload for outcome in base_outcomes[base_name]):
            measures = compare_pairs(
                _outcomes_of_workload(workload, base_outcomes[base_name]),
                _outcomes_of_workload(workload, other_outcomes[other_name]),
            )
            comparisons.append(PolicyComparison(workload, f"A: {base_name}", f"B: {other_name}", measures))
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


def _check_policy(name: str, policies: Mapping[str, tuple["Outcome", ...]], argument: str) -> str:
    if name not in policies:
        raise InvalidInput(f"there is no policy {name!r}; {nearest(name, list(policies))}", object=argument)
    return name


def _outcomes_of_workload(workload: str, outcomes: Sequence["Outcome"]) -> list["Outcome"]:
    return [outcome for outcome in outcomes if outcome.workload == workload]


def print_compared(comparisons: Sequence[PolicyComparison], output: Output) -> None:
    """Print the comparisons, one table per workload and policy."""
    if output is not Output.TABLE:
        from batchsched.cli.printing import print_data

        print_data(
            [
                {
                    "workload": comparison.workload,
                    "a": comparison.base,
                    "b": comparison.other,
                    "measures": _as_data(comparison.measures),
                }
                for comparison in comparisons
            ],
            output,
        )
        return
    for comparison in comparisons:
        count = comparison.measures[0].difference.count
        _print_measures(f"{comparison.workload}: {count} {'seed' if count == 1 else 'seeds'}", comparison)


def print_tuned(tuned: "TuningResult", output: Output) -> None:
    """Print the best settings of a search, the check on held-out seeds, and the measures that became worse."""
    if output is not Output.TABLE:
        from batchsched.cli.printing import print_data

        print_data(_tuned_data(tuned), output)
        return
    from batchsched.cli.printing import console

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
    _print_measures(title, PolicyComparison("", "As stated", "Tuned", tuned.check))
    out.print(_verdict(tuned), soft_wrap=True)


def _tuned_data(tuned: "TuningResult") -> dict[str, Any]:
    return {
        "policy": tuned.policy,
        "objective": tuned.measure.key,
        "best": dict(tuned.best.settings),
        "search": {"base": tuned.base, "best": tuned.best.value},
        "heldOut": {
            "seeds": tuned.held_out,
            "improved": tuned.improved,
            "seedsToTell": tuned.seeds_to_tell,
        },
        "measures": _as_data(tuned.check),
        "tried": [{"settings": dict(trial.settings), "value": trial.value} for trial in tuned.tried],
    }


def _verdict(tuned: "TuningResult") -> str:
    from batchsched.lab.pairs import difference_text

    name, difference = tuned.measure.title.lower(), difference_text(tuned.objective)
    if tuned.improved:
        text = f"Improved: {name} differs by {difference} on these seeds."
    else:
        text = f"Not improved: {name} differs by {difference} on these seeds. Keep the present settings."
        if not tuned.promised:
            text += " No setting was better on the seeds of the search either."
        if tuned.seeds_to_tell is not None:
            text += (
                f" About {tuned.seeds_to_tell} seeds are needed to confirm a gain this small (tune.heldOut)."
            )
    costs = ", ".join(f"{cost.measure.title.lower()} {difference_text(cost)}" for cost in tuned.costs)
    return f"{text} Worse: {costs}." if costs else f"{text} No other measure is significantly worse."


def _as_data(measures: Sequence["PairedComparison"]) -> dict[str, Any]:
    from batchsched.cli.laboratory import difference_data, mean_data

    return {
        measure.measure.key: {
            "a": mean_data(measure.base),
            "b": mean_data(measure.other),
            "difference": difference_data(measure),
        }
        for measure in measures
    }


def _print_measures(title: str, contest: PolicyComparison) -> None:
    from batchsched.cli.printing import add_row, console, table
    from batchsched.lab.pairs import difference_text

    made = table(title, "", contest.base, contest.other, "Difference", "")
    for compared in contest.measures:
        if compared.base.value or compared.other.value:
            show = compared.measure.show
            verdict = "" if compared.verdict == "same" else compared.verdict
            texts = (
                show(compared.base.value),
                show(compared.other.value),
                difference_text(compared),
                verdict,
            )
            add_row(made, compared.measure.title, *texts)
    console().print(made)

"""How results of the lab differ: two policies or two folders, and what tuning changed."""

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
class Contest:
    """Two policies on one workload, measure by measure."""

    workload: str
    base: str
    other: str
    measures: tuple["PairedComparison", ...]


def sides(base: str, other: str) -> tuple[Contest, ...]:
    """Return what is compared, of folders or policies as the command line states them.

    Raises:
      InvalidInput: a folder or a policy that there is not, or nothing that both have.
    """
    from batchsched.lab.pairs import by_policy, check_same, compare_pairs
    from batchsched.lab.results import outcomes

    folder, chosen = _side(base)
    second, rival = _side(other)
    if folder is None:
        raise InvalidInput("expected a folder of results", object=base)
    mine = by_policy(outcomes(folder))
    theirs = by_policy(outcomes(second)) if second is not None else mine
    if chosen or rival:
        names = [(_there(chosen or rival, mine, base), _there(rival or chosen, theirs, other))]
    else:
        names = [(name, name) for name in mine if name in theirs]
    found = []
    for name, another in names:
        check_same(mine[name], theirs[another])
        for workload in dict.fromkeys(one.workload for one in mine[name]):
            measures = compare_pairs(_of(workload, mine[name]), _of(workload, theirs[another]))
            found.append(Contest(workload, f"A: {name}", f"B: {another}", measures))
    found = [one for one in found if one.measures]
    if not found:
        raise InvalidInput("no policy was run on the same workload with the same seed in both", object=other)
    return tuple(found)


def _side(stated: str) -> tuple[Path | None, str]:
    """Return the folder, None for A's, and the policy or "": a folder whose name has a colon is a folder."""
    if Path(stated).is_dir():
        return Path(stated), ""
    folder, _, policy = stated.partition(":")
    return Path(folder) if folder else None, policy


def _there(name: str, policies: Mapping[str, tuple["Outcome", ...]], stated: str) -> str:
    if name not in policies:
        raise InvalidInput(f"there is no policy {name!r}; {nearest(name, list(policies))}", object=stated)
    return name


def _of(workload: str, outcomes: Sequence["Outcome"]) -> list["Outcome"]:
    return [one for one in outcomes if one.workload == workload]


def print_compared(found: Sequence[Contest], output: Output) -> None:
    """Print how results differ, measure by measure."""
    if output is not Output.TABLE:
        from batchsched.cli.printing import print_data

        print_data(
            [
                {"workload": one.workload, "a": one.base, "b": one.other, "measures": _as_data(one.measures)}
                for one in found
            ],
            output,
        )
        return
    for one in found:
        count = one.measures[0].difference.count
        _print_measures(f"{one.workload}: {count} {'seed' if count == 1 else 'seeds'}", one)


def print_tuned(found: "TuningResult", output: Output) -> None:
    """Print what a search found, whether it is better on seeds that it did not see, and what it cost."""
    if output is not Output.TABLE:
        from batchsched.cli.printing import print_data

        print_data(_tuned_data(found), output)
        return
    from batchsched.cli.printing import console

    out = console()
    show = found.measure.show
    for place, value in found.best.settings.items():
        out.print(
            f"{place}: {value:.6g}" if isinstance(value, float) else f"{place}: {value}", soft_wrap=True
        )
    out.print(
        f"\n{found.measure.title} on the seeds of the search: {show(found.base)} as stated, "
        f"{show(found.best.value)} with the best of {len(found.tried)} settings.",
        soft_wrap=True,
    )
    title = f"On {len(found.held_out)} seeds that the search did not see"
    _print_measures(title, Contest("", "As stated", "Tuned", found.check))
    out.print(_verdict(found), soft_wrap=True)


def _tuned_data(found: "TuningResult") -> dict[str, Any]:
    return {
        "policy": found.policy,
        "objective": found.measure.key,
        "best": dict(found.best.settings),
        "search": {"base": found.base, "best": found.best.value},
        "heldOut": {
            "seeds": found.held_out,
            "improved": found.improved,
            "seedsToTell": found.seeds_to_tell,
        },
        "measures": _as_data(found.check),
        "tried": [{"settings": dict(one.settings), "value": one.value} for one in found.tried],
    }


def _verdict(found: "TuningResult") -> str:
    from batchsched.lab.pairs import difference_text

    name, difference = found.measure.title.lower(), difference_text(found.objective)
    if found.improved:
        text = f"Improved: {name} differs by {difference} on these seeds."
    else:
        text = f"Not improved: {name} differs by {difference} on these seeds. Keep what you have."
        if not found.promised:
            text += " On the seeds of the search no setting was better, either."
        if found.seeds_to_tell is not None:
            text += f" About {found.seeds_to_tell} seeds would tell a gain as small as this (tune.heldOut)."
    costs = ", ".join(f"{one.measure.title.lower()} {difference_text(one)}" for one in found.costs)
    return f"{text} It cost: {costs}." if costs else f"{text} No other measure is worse for certain."


def _as_data(measures: Sequence["PairedComparison"]) -> dict[str, Any]:
    from batchsched.cli.laboratory import difference_data, mean_data

    return {
        one.measure.key: {
            "a": mean_data(one.base),
            "b": mean_data(one.other),
            "difference": difference_data(one),
        }
        for one in measures
    }


def _print_measures(title: str, contest: Contest) -> None:
    from batchsched.cli.printing import add_row, console, table
    from batchsched.lab.pairs import difference_text

    made = table(title, "", contest.base, contest.other, "Difference", "")
    for one in contest.measures:
        if one.base.value or one.other.value:
            show = one.measure.show
            verdict = "" if one.verdict == "same" else one.verdict
            texts = (show(one.base.value), show(one.other.value), difference_text(one), verdict)
            add_row(made, one.measure.title, *texts)
    console().print(made)

"""The report of a sweep: fairness, speed and cost of each policy, in one HTML file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Final

from batchsched.lab.distributions import slowdown_by_queue, slowdown_by_size, wait_by_queue, wait_by_size
from batchsched.lab.document import Cell, Document, Line, Section, Table, nonempty_sections
from batchsched.lab.figure import Figure, duration
from batchsched.lab.measures import Measure
from batchsched.lab.pairs import (
    Mean,
    PairedComparison,
    by_policy,
    compare_pairs,
    difference_text,
    of_interest,
)
from batchsched.lab.results import Outcome, put
from batchsched.lab.sharing import arrivals_end, error_over_time, jain_over_time, shares
from batchsched.lab.summary import bar_chart
from batchsched.lab.theme import SERIES
from batchsched.lab.timelines import queue_length, utilisation
from batchsched.lab.trial import Trial, eventful, resources, trials

_NOTE: Final = (
    "The best mean of a column is bold. Below each figure stands how it differs from {base}, seed by seed, with "
    "Student's 95 % interval; below those of {base} their own interval. Fairness error, Jain's index and use are means "
    "from the first to the last arrival."
)
_MOST_RESOURCES: Final = 2


def write(path: Path, name: str, outcomes: Sequence[Outcome]) -> None:
    """Write the report.

    Raises:
      OSError: the file cannot be written.
    """
    put(path, render(name, outcomes).encode())


def render(name: str, outcomes: Sequence[Outcome], links: tuple[tuple[str, str], ...] = ()) -> str:
    """Return the HTML of the report, with links to other pages; equal outcomes give equal bytes."""
    workloads = list(dict.fromkeys(outcome.workload for outcome in outcomes))
    parts = [
        (workload, by_policy([outcome for outcome in outcomes if outcome.workload == workload]))
        for workload in workloads
    ]
    several = len(parts) > 1
    return Document(
        title=f"batchsched lab: {name}",
        facts=tuple(_facts(outcomes, parts)),
        tables=tuple(_table(f"{workload}" if several else "", mine) for workload, mine in parts),
        bars=Section(
            "Policies side by side", tuple(bar for part in enumerate(parts) for bar in _bars(*part, several))
        ),
        sections=tuple(
            section for part in enumerate(parts) for section in _sections(part[0], *part[1], several)
        ),
        links=links,
    ).render()


def _facts(
    outcomes: Sequence[Outcome], parts: Sequence[tuple[str, Mapping[str, Sequence[Outcome]]]]
) -> Iterator[tuple[str, str]]:
    for workload, policies in parts:
        runs = next(iter(policies.values()), ())
        gangs = sorted({len(outcome.result.gangs) for outcome in runs})
        span = duration(sum(map(arrivals_end, runs)) / max(1, len(runs)))
        count = f"{gangs[0]:,}" if len(gangs) == 1 else f"{gangs[0]:,} to {gangs[-1]:,}"
        yield "Workload", f"{workload}: {count} gangs arriving over {span} in the mean"
    policies_there = dict.fromkeys(outcome.policy for outcome in outcomes)
    yield "Policies", ", ".join(policies_there)
    yield "Seeds", ", ".join(str(seed) for seed in sorted({outcome.seed for outcome in outcomes}))
    yield "Fairness", f"measured in {', '.join(sorted({outcome.fairness.resource for outcome in outcomes}))}"
    guards = sum(outcome.result.guards for outcome in outcomes)
    if guards:
        yield "Wall-clock guard", f"fired in {guards} sessions: these runs may not repeat"


def _table(title: str, policies: Mapping[str, Sequence[Outcome]]) -> Table:
    base = next(iter(policies))
    comparisons = {policy: compare_pairs(policies[base], runs) for policy, runs in policies.items()}
    shown = of_interest(list(comparisons.values()))
    best = {
        measure.key: _best(measure, [_comparison_by(runs, measure) for runs in comparisons.values()])
        for measure in shown
    }
    lines = [
        Line(
            policy,
            tuple(
                _cell(_comparison_by(runs, measure), policy == base, best[measure.key]) for measure in shown
            ),
        )
        for policy, runs in comparisons.items()
    ]
    return Table(
        title, "Policy", tuple(measure.title for measure in shown), tuple(lines), _NOTE.format(base=base)
    )


def _cell(comparison: PairedComparison, is_base: bool, best: float | None) -> Cell:
    show = comparison.measure.show
    note = _interval(comparison.measure, comparison.other) if is_base else difference_text(comparison)
    return Cell(show(comparison.other.value), note, comparison.other.value == best)


def _comparison_by(comparisons: Sequence[PairedComparison], measure: Measure) -> PairedComparison:
    return next(comparison for comparison in comparisons if comparison.measure is measure)


def _best(measure: Measure, comparisons: Sequence[PairedComparison]) -> float | None:
    values = [comparison.other.value for comparison in comparisons]
    if len(set(values)) < 2:
        return None
    return min(values) if measure.better == "lower" else max(values)


def _interval(measure: Measure, mean: Mean) -> str:
    return "" if isnan(mean.half_width) else f"± {measure.show(mean.half_width)}"


def _bars(at: int, part: tuple[str, Mapping[str, Sequence[Outcome]]], several: bool) -> Iterator[Figure]:
    workload, policies = part
    found = {policy: compare_pairs(mine, mine) for policy, mine in policies.items()}
    for measure in of_interest(list(found.values())):
        means = [_comparison_by(mine, measure).other for mine in found.values()]
        widths = [0.0 if isnan(mean.half_width) else mean.half_width for mean in means]
        title = f"{measure.title}, {workload}" if several else measure.title
        yield bar_chart(
            Figure(f"bars-{measure.key.lower()}-{at}", title, f"{measure.better} is better", (), {}),
            list(found),
            [mean.value for mean in means],
            [measure.show(mean.value) for mean in means],
            widths if any(widths) else (),
        )


def _sections(
    at: int, workload: str, policies: Mapping[str, Sequence[Outcome]], several: bool
) -> tuple[Section, ...]:
    firsts = [mine[0] for mine in policies.values()]
    drawn = trials([one.result for one in firsts])
    pooled = [_pooled(policy, mine) for policy, mine in policies.items()]
    span = max((arrivals_end(one) for one in firsts), default=0.0) or 1.0
    stacks = tuple(
        shares(policy, mine[0], span, f"shares-{number}")
        for number, (policy, mine) in enumerate(list(policies.items())[:SERIES])
    )
    seed = firsts[0].seed
    prefix = f"{workload}: " if several else ""
    of_seed = f" (seed {seed})" if any(len(mine) > 1 for mine in policies.values()) else ""
    sections = (
        Section(f"{prefix}Fairness over time", (error_over_time(policies), jain_over_time(policies))),
        Section(f"{prefix}Share against entitlement{of_seed}", stacks),
        Section(f"{prefix}Waits and slowdowns by queue", (wait_by_queue(pooled), slowdown_by_queue(pooled))),
        Section(f"{prefix}Waits and slowdowns by size", (wait_by_size(pooled), slowdown_by_size(pooled))),
        Section(f"{prefix}Use over time{of_seed}", _over_time(drawn)),
    )
    return nonempty_sections([_renamed(section, at) for section in sections])


def _over_time(drawn: Sequence[Trial]) -> tuple[Figure, ...]:
    if not eventful(drawn):
        return ()
    used = resources(drawn)[:_MOST_RESOURCES]
    return (*(utilisation(drawn, resource) for resource in used), queue_length(drawn))


def _pooled(policy: str, outcomes: Sequence[Outcome]) -> Trial:
    """Return the gangs of all runs of a policy as one trial, for distributions; its times do not share a clock."""
    gangs = tuple(gang for outcome in outcomes for gang in outcome.result.gangs)
    (made,) = trials([replace(outcomes[0].result, policy=policy, gangs=gangs)])
    return made


def _renamed(section: Section, suffix: int) -> Section:
    """Return figures with keys that are unique to a workload."""
    return replace(
        section, figures=tuple(replace(figure, key=f"{figure.key}-{suffix}") for figure in section.figures)
    )

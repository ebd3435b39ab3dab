"""Reports: policies on one workload in a simulation, or over workloads and seeds in a sweep, in one HTML file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import Final

from batchsched.api.core.node import Node
from batchsched.api.core.quantity import format_quantity
from batchsched.lab.distributions import waits_and_slowdowns_by_queue, waits_and_slowdowns_by_size
from batchsched.lab.document import Document, Section, Table, TableCell, TableRow, nonempty_sections
from batchsched.lab.figure import SERIES, Figure, axis, format_duration, series_color
from batchsched.lab.gantt import draw_gantt_charts
from batchsched.lab.measures import FOOTNOTE, Measure, Outcome, best_of, summarize
from batchsched.lab.pairs import (
    MeanInterval,
    PairedComparison,
    compare_pairs,
    difference_text,
    group_by_workload,
    nonzero_measures,
)
from batchsched.lab.timelines import (
    arrival_span_seconds,
    draw_fairness_error,
    draw_jain_index,
    draw_queue_length,
    draw_shares,
    draw_utilisation,
)
from batchsched.lab.trial import Trial, build_trials, resource_label, resources_in_use

_SIMULATION_NOTE: Final = (
    "The best of a column is bold. Waits, slowdowns and makespan are of gangs that ended; the makespan ends with the "
    f"last of them. {FOOTNOTE}"
)
_SWEEP_NOTE: Final = (
    "The best mean of a column is bold. Below each figure stands how it differs from {base}, seed by seed, with "
    "Student's 95 % interval; below those of {base} their own interval. Fairness error, Jain's index and use are means "
    "from the first to the last arrival."
)
_BARS: Final = "Policies side by side"
_MOST_RESOURCES: Final = 2
Policies = Mapping[str, Sequence[Outcome]]


# One simulation


def render_simulation(
    name: str, outcomes: Sequence[Outcome], nodes: Sequence[Node], facts: Sequence[tuple[str, str]] = ()
) -> str:
    """Return the HTML report of a simulation: several policies on one workload.

    Equal outcomes give equal bytes.

    Args:
      name: The name of the workload.
      outcomes: A run of the workload under each policy, with placements.
      nodes: The nodes of the cluster.
      facts: Other facts about the runs, as (label, text).
    """
    policies = [outcome.policy for outcome in outcomes]
    runs = build_trials([outcome.result for outcome in outcomes])
    rows = summarize([(outcome,) for outcome in outcomes])
    best = [best_of(row.measure, row.means) for row in rows]
    lines = [
        TableRow(
            policy,
            tuple(
                TableCell(row.formatted_means[index], "", row.means[index] == top)
                for row, top in zip(rows, best, strict=True)
            ),
        )
        for index, policy in enumerate(policies)
    ]
    gangs = max((len(trial.gangs) for trial in runs), default=0)
    arrivals = max((float(trial.submitted.max()) for trial in runs if len(trial.gangs)), default=0.0)
    return Document(
        title=f"batchsched: {name}",
        facts=(
            ("Workload", f"{name}: {gangs:,} gangs arriving over {format_duration(arrivals)}"),
            ("Cluster", describe_cluster(nodes)),
            ("Policies", ", ".join(policies)),
            ("Sessions", ", ".join(f"{outcome.result.sessions:,}" for outcome in outcomes)),
            *facts,
            ("Seed", str(outcomes[0].seed)),
        ),
        tables=(
            Table("", "Policy", tuple(row.measure.title for row in rows), tuple(lines), _SIMULATION_NOTE),
        ),
        bars=Section(
            _BARS,
            tuple(
                _bar_chart(
                    f"bars-{row.measure.key.lower()}", row.measure.title, row.measure, policies, row.means
                )
                for row in rows
            ),
        ),
        sections=nonempty_sections(
            (
                Section("Over time", _over_time(runs)),
                Section("By gang size", waits_and_slowdowns_by_size(runs)),
                Section("Gangs on nodes", draw_gantt_charts(runs, nodes)),
            )
        ),
    ).render()


def describe_cluster(nodes: Sequence[Node]) -> str:
    """Describe a cluster in one line, such as: 64 nodes, 512 GPUs, 6144 CPUs, 64Ti memory."""
    totals: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.allocatable().items():
            totals[resource] = totals.get(resource, 0) + amount
    named = sorted(totals, key=lambda name: (not name.endswith("/gpu"), name))
    parts = [
        f"{format_quantity(name, totals[name])} {resource_label(name, plural=True)}"
        for name in named
        if totals[name] and (name in ("cpu", "memory") or name.endswith("/gpu"))
    ]
    return ", ".join([f"{len(nodes):,} {'node' if len(nodes) == 1 else 'nodes'}", *parts])


# A sweep


def render_sweep(name: str, outcomes: Sequence[Outcome], links: tuple[tuple[str, str], ...] = ()) -> str:
    """Return the HTML report of a sweep: several policies over workloads and seeds, with links to other pages.

    Equal outcomes give equal bytes.
    """
    parts = group_by_workload(outcomes)
    several = len(parts) > 1
    bars: list[Figure] = []
    sections: list[Section] = []
    for number, (workload, policies) in enumerate(parts.items()):
        bars.extend(_mean_bars(number, workload if several else "", policies))
        sections.extend(_sections(number, workload if several else "", policies))
    return Document(
        title=f"batchsched lab: {name}",
        facts=tuple(_facts(outcomes, parts)),
        tables=tuple(_table(workload if several else "", policies) for workload, policies in parts.items()),
        bars=Section(_BARS, tuple(bars)),
        sections=tuple(sections),
        links=links,
    ).render()


def _facts(outcomes: Sequence[Outcome], parts: Mapping[str, Policies]) -> Iterator[tuple[str, str]]:
    for workload, policies in parts.items():
        runs = next(iter(policies.values()), ())
        gangs = sorted({len(outcome.result.gangs) for outcome in runs})
        span = format_duration(sum(map(arrival_span_seconds, runs)) / max(1, len(runs)))
        count = f"{gangs[0]:,}" if len(gangs) == 1 else f"{gangs[0]:,} to {gangs[-1]:,}"
        yield "Workload", f"{workload}: {count} gangs arriving over {span} in the mean"
    yield "Policies", ", ".join(dict.fromkeys(outcome.policy for outcome in outcomes))
    yield "Seeds", ", ".join(str(seed) for seed in sorted({outcome.seed for outcome in outcomes}))
    yield "Fairness", f"measured in {', '.join(sorted({outcome.fairness.resource for outcome in outcomes}))}"
    guards = sum(outcome.result.guards for outcome in outcomes)
    if guards:
        yield "Wall-clock guard", f"fired in {guards} sessions: these runs may not repeat"


def _table(title: str, policies: Policies) -> Table:
    base = next(iter(policies))
    comparisons = {policy: compare_pairs(policies[base], runs) for policy, runs in policies.items()}
    shown = nonzero_measures(comparisons.values())
    columns = [[_comparison_by(runs, measure) for runs in comparisons.values()] for measure in shown]
    best = [
        best_of(measure, [comparison.other.value for comparison in column])
        for measure, column in zip(shown, columns, strict=True)
    ]
    lines = [
        TableRow(
            policy,
            tuple(_cell(column[row], row == 0, top) for column, top in zip(columns, best, strict=True)),
        )
        for row, policy in enumerate(comparisons)
    ]
    titles = tuple(measure.title for measure in shown)
    return Table(title, "Policy", titles, tuple(lines), _SWEEP_NOTE.format(base=base))


def _cell(comparison: PairedComparison, is_base: bool, best: float | None) -> TableCell:
    measure = comparison.measure
    note = _interval(measure, comparison.other) if is_base else difference_text(comparison)
    return TableCell(measure.show(comparison.other.value), note, comparison.other.value == best)


def _comparison_by(comparisons: Sequence[PairedComparison], measure: Measure) -> PairedComparison:
    return next(comparison for comparison in comparisons if comparison.measure is measure)


def _interval(measure: Measure, mean: MeanInterval) -> str:
    return "" if isnan(mean.half_width) else f"± {measure.show(mean.half_width)}"


def _mean_bars(number: int, workload: str, policies: Policies) -> Iterator[Figure]:
    comparisons = {policy: compare_pairs(runs, runs) for policy, runs in policies.items()}
    for measure in nonzero_measures(comparisons.values()):
        means = [_comparison_by(comparison, measure).other for comparison in comparisons.values()]
        widths = [0.0 if isnan(mean.half_width) else mean.half_width for mean in means]
        title = f"{measure.title}, {workload}" if workload else measure.title
        key = f"bars-{measure.key.lower()}-{number}"
        yield _bar_chart(key, title, measure, list(comparisons), [mean.value for mean in means], widths)


def _sections(number: int, workload: str, policies: Policies) -> tuple[Section, ...]:
    firsts = [runs[0] for runs in policies.values()]
    drawn = build_trials([outcome.result for outcome in firsts])
    pooled = [_pool(policy, runs) for policy, runs in policies.items()]
    span = max((arrival_span_seconds(outcome) for outcome in firsts), default=0.0) or 1.0
    stacks = tuple(
        draw_shares(policy, runs[0], span, f"shares-{index}")
        for index, (policy, runs) in enumerate(list(policies.items())[:SERIES])
    )
    prefix = f"{workload}: " if workload else ""
    of_seed = f" (seed {firsts[0].seed})" if any(len(runs) > 1 for runs in policies.values()) else ""
    sections = (
        Section(f"{prefix}Fairness over time", (draw_fairness_error(policies), draw_jain_index(policies))),
        Section(f"{prefix}Share against entitlement{of_seed}", stacks),
        Section(f"{prefix}Waits and slowdowns by queue", waits_and_slowdowns_by_queue(pooled)),
        Section(f"{prefix}Waits and slowdowns by size", waits_and_slowdowns_by_size(pooled)),
        Section(f"{prefix}Use over time{of_seed}", _over_time(drawn)),
    )
    return nonempty_sections([_with_suffix(section, number) for section in sections])


def _pool(policy: str, outcomes: Sequence[Outcome]) -> Trial:
    """Return the gangs of all runs of a policy as one trial, for distributions; its times do not share a clock."""
    gangs = tuple(gang for outcome in outcomes for gang in outcome.result.gangs)
    (trial,) = build_trials([replace(outcomes[0].result, policy=policy, gangs=gangs)])
    return trial


def _with_suffix(section: Section, suffix: int) -> Section:
    """Return figures with keys that are unique to a workload."""
    figures = tuple(replace(figure, key=f"{figure.key}-{suffix}") for figure in section.figures)
    return replace(section, figures=figures)


# Figures of both


def _over_time(drawn: Sequence[Trial]) -> tuple[Figure, ...]:
    used = resources_in_use(drawn)[:_MOST_RESOURCES]
    return (*(draw_utilisation(drawn, resource) for resource in used), draw_queue_length(drawn))


def _bar_chart(
    key: str,
    title: str,
    measure: Measure,
    policies: Sequence[str],
    values: Sequence[float],
    widths: Sequence[float] = (),
) -> Figure:
    """Draw a measure with a bar for each policy, and half widths of intervals around the values."""
    texts = [measure.show(value) for value in values]
    errors = list(widths) if any(widths) else []
    top = max(values, default=0.0)
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": list(policies),
        "x": list(values),
        "text": texts,
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [series_color(index) for index in range(len(policies))]},
        "hovertemplate": "%{y}: %{text}<extra></extra>",
    }
    if errors:
        bar["error_x"] = {
            "type": "data",
            "array": errors,
            "color": "$muted",
            "thickness": 1,
            "width": 3,
        }
        # A label next to the bar would overlap the interval.
        bar |= {"textposition": "none"}
        top = max(value + error for value, error in zip(values, errors, strict=True))
    layout = {
        "xaxis": axis(
            "", showticklabels=False, showgrid=False, range=[0, top * 1.6 or 1], ticks="", fixedrange=True
        ),
        "yaxis": axis(
            "",
            autorange="reversed",
            tickvals=list(policies),
            # The arguments of a policy are on a second line, to leave room for the bars.
            ticktext=[name.replace(":", ":<br>") for name in policies],
            ticksuffix=" ",
            fixedrange=True,
            showgrid=False,
            ticks="",
        ),
        "showlegend": False,
        "bargap": 0.35,
        "margin": {"l": 8, "r": 8, "t": 6, "b": 6},
    }
    if errors:
        layout["annotations"] = [
            {
                "x": value + error,
                "y": name,
                "text": f" {text}",
                "xanchor": "left",
                "showarrow": False,
                "font": {"color": "$ink"},
            }
            for name, value, error, text in zip(policies, values, errors, texts, strict=True)
        ]
    caption = f"{measure.better} is better"
    return Figure(key, title, caption, (bar,), layout, height=30 + 34 * len(policies))

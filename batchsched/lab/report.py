"""HTML reports that compare policies in a simulation of one workload, or in a sweep with several seeds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import Final

from batchsched.api.core.node import Node
from batchsched.api.core.quantity import format_quantity, pluralize
from batchsched.lab.conclusion import Conclusion, conclude_simulation, conclude_sweep
from batchsched.lab.definitions import NO_SETTINGS, NO_VALUE, ReportedRunInput
from batchsched.lab.distributions import box_plots_by_queue, box_plots_by_size
from batchsched.lab.document import (
    LegendSection,
    ReportDocument,
    Section,
    Table,
    TableCell,
    TableRow,
    nonempty_sections,
)
from batchsched.lab.figure import Figure, axis, format_duration, format_signed, policy_color
from batchsched.lab.gantt import GangColorGroups, draw_gantt_charts
from batchsched.lab.measures import (
    Measure,
    RunOutcome,
    SummaryRow,
    list_unfinished_gangs,
    summarize_run_outcomes,
    utilisation_footnote,
)
from batchsched.lab.pairs import (
    PairedComparison,
    compare_pairs,
    format_difference,
    group_by_workload,
    nonzero_measures,
)
from batchsched.lab.run_columns import RunColumns, build_run_columns, resources_in_use, short_resource_name
from batchsched.lab.timelines import (
    arrival_span_seconds,
    draw_fairness_error,
    draw_jain_index,
    draw_pending_gang_count,
    draw_used_and_fair_shares,
    draw_utilisation,
    queue_legend_names,
)

_SIMULATION_NOTE: Final = (
    "Below each figure: the difference from {base}. Waits, slowdowns and makespan are of gangs that ended; the "
    "makespan ends with the last of them. {footnote}"
)
_SWEEP_NOTE: Final = (
    "Means over the seeds. Below each figure: how it differs from {base}, seed by seed, with Student's 95 % interval; "
    "below those of {base}: their own interval. Only differences that the interval confirms are marked better or "
    "worse. Fairness error, Jain's index and use are means from the first to the last arrival."
)
_BARS: Final = "Policies side by side"
_MOST_RESOURCES: Final = 2
MAX_UNFINISHED: Final = 30
"""Maximum number of unfinished gangs in a report."""
Policies = Mapping[str, Sequence[RunOutcome]]


# One simulation


def render_simulation_report(
    name: str,
    outcomes: Sequence[RunOutcome],
    nodes: Sequence[Node],
    settings: ReportedRunInput = NO_SETTINGS,
) -> str:
    """Return the HTML report of a simulation: several policies on one workload.

    Equal outcomes give equal bytes.

    Args:
      name: The name of the workload.
      outcomes: A run of the workload under each policy, with placements.
      nodes: The nodes of the cluster.
      settings: The input of the runs.
    """
    policies = [outcome.policy for outcome in outcomes]
    runs = build_run_columns([outcome.result for outcome in outcomes])
    rows = summarize_run_outcomes([(outcome,) for outcome in outcomes])
    gangs = max((len(run.gangs) for run in runs), default=0)
    arrivals = max((float(run.submitted.max()) for run in runs if len(run.gangs)), default=0.0)
    groups = GangColorGroups.from_runs(runs)
    has_footnote = any(row.measure.title.endswith("*") for row in rows)
    footnote = utilisation_footnote([outcome.result for outcome in outcomes]) if has_footnote else ""
    return ReportDocument(
        title=f"batchsched: {name}",
        conclusion=(
            Conclusion(settings.conclusion) if settings.conclusion else conclude_simulation(policies, rows)
        ),
        tables=(_summary_table(policies, rows, footnote), *_unfinished_tables(outcomes)),
        facts=(
            ("Workload", f"{name}: {gangs:,} gangs arriving over {format_duration(arrivals)}"),
            ("Cluster", describe_cluster(nodes)),
            *settings.facts,
            *settings.facts_listing_queue_names(),
            ("Sessions", _by_policy({outcome.policy: outcome.result.sessions for outcome in outcomes})),
            ("Seed", str(outcomes[0].seed)),
            *_command_facts(settings),
        ),
        definitions=settings.policy_and_queue_tables(),
        legends=(
            LegendSection("Policies", tuple(policies), "policy"),
            LegendSection("Queues" if groups.by_queue else "Gang size", groups.names, "queue"),
        ),
        bars=_bars(
            [_bar_chart(f"bars-{row.measure.key.lower()}", row.measure, policies, row.means) for row in rows]
        ),
        sections=nonempty_sections(
            (
                Section("Over time", _over_time(runs)),
                Section("By gang size", box_plots_by_size(runs)),
                Section("Gangs on nodes", draw_gantt_charts(runs, nodes, groups), one_at_a_time=True),
            )
        ),
    ).render()


def _summary_table(policies: Sequence[str], rows: Sequence[SummaryRow], footnote: str) -> Table:
    lines = []
    for row in rows:
        texts = row.measure.format_values(row.means)
        notes = [_change_text(row.measure, row.means[0], value) for value in row.means]
        lines.append(TableRow(row.measure.title, tuple(map(TableCell, texts, notes))))
    note = _SIMULATION_NOTE.format(base=policies[0], footnote=footnote)
    return Table("", "Measure", tuple(policies), tuple(lines), note)


def _change_text(measure: Measure, base: float, value: float) -> str:
    """Return how a value differs from the baseline's, such as -91 % or +4.8 pp; "" if both are equal."""
    if value == base:
        return ""
    if measure.is_percentage:
        return format_signed(f"{100 * abs(value - base):.1f} pp", value - base)
    if not base:
        return ""
    change = (value - base) / base
    # A small change is not +0%, and a decrease is never whole.
    decimals = 1 if abs(change) < 0.01 or -1 < change < -0.99 else 0
    return format_signed(f"{abs(change):.{decimals}%}", change)


def _unfinished_tables(outcomes: Sequence[RunOutcome]) -> Iterator[Table]:
    gangs = list_unfinished_gangs([outcome.result for outcome in outcomes])
    if not gangs:
        return
    lines = tuple(
        TableRow(
            gang.key,
            (
                TableCell(gang.reason or NO_VALUE),
                TableCell(", ".join(gang.policies) if len(gang.policies) < len(outcomes) else "all"),
                TableCell(gang.message or "It is pending, and the last session did not refuse it."),
            ),
        )
        for gang in gangs[:MAX_UNFINISHED]
    )
    note = f"and {len(gangs) - len(lines):,} more" if len(gangs) > len(lines) else ""
    columns = ("Reason", "Policies", "Message")
    yield Table("Gangs that did not finish", "Gang", columns, lines, note, is_text=True)


def _by_policy(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{policy}: {count:,}" for policy, count in counts.items())


def _command_facts(settings: ReportedRunInput) -> tuple[tuple[str, str], ...]:
    return (("Command", settings.command),) if settings.command else ()


def describe_cluster(nodes: Sequence[Node]) -> str:
    """Describe a cluster in one line, such as: 64 nodes, 512 GPUs, 6,144 CPUs, 64 TiB memory."""
    totals: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.parse_allocatable_in_base_units().items():
            totals[resource] = totals.get(resource, 0) + amount
    named = sorted(totals, key=lambda name: (not name.endswith("/gpu"), name))
    parts = [
        f"{_amount(name, totals[name])} {short_resource_name(name, plural=True)}"
        for name in named
        if totals[name] and (name in ("cpu", "memory") or name.endswith("/gpu"))
    ]
    return ", ".join([pluralize(len(nodes), "node"), *parts])


def _amount(resource: str, amount: int) -> str:
    if resource == "memory":
        tebibytes = amount / 2**40
        return f"{tebibytes:,.4g} TiB" if tebibytes >= 1 else f"{amount / 2**30:,.4g} GiB"
    text = format_quantity(resource, amount)
    return f"{int(text):,}" if text.isdigit() else text


# A sweep


def render_sweep_report(
    name: str,
    outcomes: Sequence[RunOutcome],
    settings: ReportedRunInput = NO_SETTINGS,
    links: tuple[tuple[str, str], ...] = (),
    planned: int | None = None,
) -> str:
    """Return the HTML report of a sweep: several policies over workloads and seeds.

    Equal outcomes give equal bytes.

    Args:
      name: The name of the scenario.
      outcomes: The finished runs.
      settings: The input of the runs.
      links: Links to other pages, as (text, address).
      planned: The number of planned runs; None if all have finished.
    """
    document = sweep_document(f"batchsched lab: {name}", outcomes, settings)
    if planned is not None and planned > len(outcomes):
        sentences = (_partial_text(len(outcomes), planned), *document.conclusion.sentences)
        document = replace(document, conclusion=replace(document.conclusion, sentences=sentences))
    return replace(document, links=links).render()


def _partial_text(finished: int, planned: int) -> str:
    return (
        f"This report is partial: {finished} of {planned} runs have finished. Policies are compared only by the "
        "workloads and seeds that all shown policies have finished."
    )


def sweep_document(title: str, outcomes: Sequence[RunOutcome], settings: ReportedRunInput) -> ReportDocument:
    """Return the content of a sweep's report: tables, conclusions and figures."""
    parts = {
        workload: runs_of_common_seeds(policies) for workload, policies in group_by_workload(outcomes).items()
    }
    several = len(parts) > 1
    queues = _largest_queues(outcomes)
    bars: list[Figure] = []
    sections: list[Section] = []
    for number, (workload, policies) in enumerate(parts.items()):
        bars.extend(_mean_bars(number, workload if several else "", policies))
        sections.extend(_sections(number, workload if several else "", policies, queues))
    policy_names = tuple(dict.fromkeys(outcome.policy for outcome in outcomes))
    return ReportDocument(
        title=title,
        conclusion=_conclude_workloads(parts),
        tables=tuple(_table(workload if several else "", policies) for workload, policies in parts.items()),
        facts=(
            *_facts(outcomes, parts),
            *settings.facts,
            *settings.facts_listing_queue_names(),
            *_command_facts(settings),
        ),
        definitions=settings.policy_and_queue_tables(),
        legends=(
            LegendSection("Policies", policy_names, "policy"),
            *([LegendSection("Queues", queues, "queue")] if queues else []),
        ),
        bars=_bars(bars),
        sections=tuple(sections),
    )


def _conclude_workloads(parts: Mapping[str, Policies]) -> Conclusion:
    """Return the conclusions of several workloads as one; each sentence names its workload."""
    conclusions = {workload: conclude_sweep(policies) for workload, policies in parts.items()}
    if len(conclusions) == 1:
        return next(iter(conclusions.values()))
    notes = dict.fromkeys(conclusion.note for conclusion in conclusions.values() if conclusion.note)
    return Conclusion(
        tuple(
            f"{workload}: {sentence}"
            for workload, conclusion in conclusions.items()
            for sentence in conclusion.sentences
        ),
        " ".join(notes),
    )


def runs_of_common_seeds(policies: Policies) -> dict[str, tuple[RunOutcome, ...]]:
    """Return for each policy only the runs with seeds for which every policy has a finished run.

    Means over different seeds cannot be compared. If the policies have no common seed, only the first policy is left.
    """
    seeds = [{outcome.seed for outcome in runs} for runs in policies.values()]
    common = set.intersection(*seeds) or seeds[0]
    kept = {
        policy: tuple(outcome for outcome in runs if outcome.seed in common)
        for policy, runs in policies.items()
    }
    return {policy: runs for policy, runs in kept.items() if runs}


def _largest_queues(outcomes: Sequence[RunOutcome]) -> tuple[str, ...]:
    """Return the queues that have colors of their own in a sweep: those that used the most resources."""
    sizes: dict[str, float] = {}
    for outcome in outcomes:
        held = outcome.fairness.held
        for column, queue in enumerate(outcome.fairness.queues):
            mean = float(held[:, column].mean()) if len(held) else 0.0
            sizes[queue] = sizes.get(queue, 0.0) + mean
    return queue_legend_names(sizes)


def _facts(outcomes: Sequence[RunOutcome], parts: Mapping[str, Policies]) -> Iterator[tuple[str, str]]:
    for workload, policies in parts.items():
        runs = next(iter(policies.values()), ())
        gangs = sorted({len(outcome.result.gangs) for outcome in runs})
        span = format_duration(sum(map(arrival_span_seconds, runs)) / max(1, len(runs)))
        count = f"{gangs[0]:,}" if len(gangs) == 1 else f"{gangs[0]:,} to {gangs[-1]:,}"
        yield "Workload", f"{workload}: {count} gangs arriving over {span} on average"
    yield "Seeds", ", ".join(str(seed) for seed in sorted({outcome.seed for outcome in outcomes}))
    yield "Fairness", f"measured in {', '.join(sorted({outcome.fairness.resource for outcome in outcomes}))}"
    guards = sum(outcome.result.guards for outcome in outcomes)
    if guards:
        yield "Wall-clock guard", f"fired in {guards:,} sessions: these runs may not repeat"


def _table(title: str, policies: Policies) -> Table:
    base = next(iter(policies))
    comparisons = {policy: compare_pairs(policies[base], runs) for policy, runs in policies.items()}
    lines = []
    for measure in nonzero_measures(comparisons.values()):
        row = [_comparison_by(runs, measure) for runs in comparisons.values() if runs]
        # The interval of the baseline has the unit of the means.
        half_width = row[0].other.half_width
        has_interval = not isnan(half_width)
        values = [comparison.other.value for comparison in row]
        *texts, interval = measure.format_values([*values, half_width if has_interval else 0.0])
        first = TableCell(texts[0], f"± {interval}" if has_interval else "")
        cells = [first, *map(_cell, texts[1:], row[1:])]
        lines.append(TableRow(measure.title, tuple(cells)))
    columns = tuple(policy for policy, runs in comparisons.items() if runs)
    return Table(title, "Measure", columns, tuple(lines), _SWEEP_NOTE.format(base=base))


def _cell(text: str, comparison: PairedComparison) -> TableCell:
    outcome = comparison.outcome
    return TableCell(
        text,
        format_difference(comparison),
        "better" if outcome == "better" else "worse" if outcome == "worse" else "",
    )


def _comparison_by(comparisons: Sequence[PairedComparison], measure: Measure) -> PairedComparison:
    return next(comparison for comparison in comparisons if comparison.measure is measure)


def _mean_bars(number: int, workload: str, policies: Policies) -> Iterator[Figure]:
    comparisons = {policy: compare_pairs(runs, runs) for policy, runs in policies.items()}
    for measure in nonzero_measures(comparisons.values()):
        means = [_comparison_by(comparison, measure).other for comparison in comparisons.values()]
        widths = [0.0 if isnan(mean.half_width) else mean.half_width for mean in means]
        key = f"bars-{measure.key.lower()}-{number}"
        figure = _bar_chart(key, measure, list(comparisons), [mean.value for mean in means], widths)
        yield replace(figure, title=f"{figure.title}, {workload}") if workload else figure


def _sections(number: int, workload: str, policies: Policies, queues: Sequence[str]) -> tuple[Section, ...]:
    firsts = [runs[0] for runs in policies.values()]
    drawn = build_run_columns([outcome.result for outcome in firsts])
    pooled = [_pool(policy, runs) for policy, runs in policies.items()]
    span = max((arrival_span_seconds(outcome) for outcome in firsts), default=0.0) or 1.0
    stacks = tuple(
        draw_used_and_fair_shares(policy, runs[0], span, queues, f"shares-{index}")
        for index, (policy, runs) in enumerate(policies.items())
    )
    prefix = f"{workload}: " if workload else ""
    of_seed = f" (seed {firsts[0].seed})" if any(len(runs) > 1 for runs in policies.values()) else ""
    fairness = (draw_fairness_error(policies), draw_jain_index(policies))
    sections = (
        Section(f"{prefix}Fairness over time", fairness if len(queues) > 1 else ()),
        Section(f"{prefix}Share against entitlement{of_seed}", stacks, one_at_a_time=True),
        Section(f"{prefix}Waits and slowdowns by queue", box_plots_by_queue(pooled)),
        Section(f"{prefix}Waits and slowdowns by size", box_plots_by_size(pooled)),
        Section(f"{prefix}Use over time{of_seed}", _over_time(drawn)),
    )
    return nonempty_sections([_with_suffix(section, number) for section in sections])


def _pool(policy: str, outcomes: Sequence[RunOutcome]) -> RunColumns:
    """Return the gangs of all runs of a policy as if they were one run, for box plots.

    Times of different runs cannot be compared.
    """
    gangs = tuple(gang for outcome in outcomes for gang in outcome.result.gangs)
    (run,) = build_run_columns([replace(outcomes[0].result, policy=policy, gangs=gangs)])
    return run


def _with_suffix(section: Section, suffix: int) -> Section:
    """Return the section with a number at the end of each figure's key, so that keys are unique."""
    figures = tuple(replace(figure, key=f"{figure.key}-{suffix}") for figure in section.figures)
    return replace(section, figures=figures)


# Figures of both


def _over_time(drawn: Sequence[RunColumns]) -> tuple[Figure, ...]:
    used = resources_in_use(drawn)[:_MOST_RESOURCES]
    return (*(draw_utilisation(drawn, resource) for resource in used), draw_pending_gang_count(drawn))


def _bars(figures: Sequence[Figure]) -> Section:
    """Return the bar charts with different bars; a chart with one bar or with equal bars is left out."""
    lengths = {
        figure.key: [trace["x"][0] for trace in figure.data if trace["type"] == "bar"] for figure in figures
    }
    return Section(_BARS, tuple(figure for figure in figures if len(set(lengths[figure.key])) > 1))


def _bar_chart(
    key: str, measure: Measure, policies: Sequence[str], values: Sequence[float], widths: Sequence[float] = ()
) -> Figure:
    """Draw a bar chart of one measure with a bar for each policy, and with its confidence interval."""
    errors = list(widths) if any(widths) else [0.0] * len(policies)
    top = max((value + error for value, error in zip(values, errors, strict=True)), default=0.0)
    data = [
        trace
        for index, (policy, value, error, text) in enumerate(
            zip(policies, values, errors, measure.format_values(values), strict=True)
        )
        for trace in _bar(policy, index, value, error, text)
    ]
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
        "barmode": "overlay",
        "bargap": 0.35,
        "margin": {"l": 8, "r": 8, "t": 6, "b": 6},
    }
    caption = f"{measure.better} is better"
    return Figure(key, measure.title, caption, tuple(data), layout, height=30 + 34 * len(policies))


def _bar(policy: str, index: int, value: float, error: float, text: str) -> Iterator[dict[str, object]]:
    """Yield the bar of a policy, and its text to the right of the bar and of its interval."""
    yield {
        "type": "bar",
        "orientation": "h",
        "meta": {"policy": policy},
        "y": [policy],
        "x": [value],
        "error_x": {
            "type": "data",
            "array": [error],
            "visible": bool(error),
            "color": "$ink",
            "thickness": 1.2,
            "width": 4,
        },
        "marker": {"color": policy_color(index)},
        "hovertemplate": f"%{{y}}: {text}<extra></extra>",
    }
    yield {
        "type": "scatter",
        "mode": "text",
        "meta": {"policy": policy},
        "y": [policy],
        "x": [value + error],
        "text": [f" {text}"],
        "textposition": "middle right",
        "cliponaxis": False,
        "hoverinfo": "skip",
    }

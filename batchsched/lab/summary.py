"""The metrics that compare policies, as a table and as bar charts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from batchsched.lab.figure import Figure, axis, duration
from batchsched.lab.theme import series
from batchsched.lab.timelines import resource_label
from batchsched.lab.trial import Trial, resources, trials
from batchsched.simulator.result import RunResult


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that compares policies.

    Args:
      key: The identifier in the page.
      title: The title.
      better: "lower" or "higher".
      value: Computes the metric.
      show: Formats a value.
    """

    key: str
    title: str
    better: str
    value: Callable[[Trial], float]
    show: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Row:
    """The row of a policy: texts, and whether each is the best of its column."""

    policy: str
    texts: tuple[str, ...]
    best: tuple[bool, ...]


FOOTNOTE: Final = "* Mean from the first to the last arrival."


def metrics(resource: str) -> tuple[Metric, ...]:
    """Return the metrics; `resource` is the resource for which utilization is compared."""
    label = f"{resource_label(resource, plural=True)} used*"
    return (
        Metric("mean-wait", "Mean wait", "lower", lambda trial: trial.metrics.mean_wait, duration),
        Metric("worst-wait", "Worst wait", "lower", lambda trial: trial.metrics.worst_wait, duration),
        Metric(
            "mean-slowdown",
            "Mean bounded slowdown",
            "lower",
            lambda trial: trial.metrics.mean_slowdown,
            _times,
        ),
        Metric(
            "worst-slowdown",
            "Worst bounded slowdown",
            "lower",
            lambda trial: trial.metrics.worst_slowdown,
            _times,
        ),
        Metric("utilisation", label, "higher", lambda trial: trial.busy.get(resource, 0.0), _percent),
        Metric("makespan", "Makespan", "lower", lambda trial: trial.metrics.makespan, duration),
        Metric(
            "done",
            "Gangs done",
            "higher",
            lambda trial: trial.metrics.gangs - trial.metrics.unfinished,
            _count,
        ),
    )


def table(runs: Sequence[Trial], columns: Sequence[Metric]) -> tuple[Row, ...]:
    """Return a row for each policy."""
    return _rows([trial.policy for trial in runs], [(trial,) for trial in runs], columns)


def averages(policies: Sequence[Sequence[RunResult]]) -> tuple[tuple[Metric, ...], tuple[Row, ...]]:
    """Return columns and rows of the comparison; each value is the mean over the runs of a policy.

    Utilization is left out if a run has no series.
    """
    drawn = [trials(runs) for runs in policies]
    every = [trial for runs in drawn for trial in runs]
    used = resources(every)
    columns = tuple(
        metric
        for metric in metrics(used[0] if used else "cpu")
        if metric.key != "utilisation" or all(trial.busy for trial in every)
    )
    return columns, _rows([runs[0].policy for runs in drawn], drawn, columns)


def _rows(
    names: Sequence[str], policies: Sequence[Sequence[Trial]], columns: Sequence[Metric]
) -> tuple[Row, ...]:
    values = [[fmean(metric.value(trial) for trial in runs) for metric in columns] for runs in policies]
    return tuple(
        Row(
            name,
            tuple(metric.show(value) for metric, value in zip(columns, mine, strict=True)),
            tuple(
                len(values) > 1 and _is_best(metric, value, [row[at] for row in values])
                for at, (metric, value) in enumerate(zip(columns, mine, strict=True))
            ),
        )
        for name, mine in zip(names, values, strict=True)
    )


def bars(trials: Sequence[Trial], metric: Metric) -> Figure:
    """Draw one metric with a bar for each policy."""
    values = [metric.value(trial) for trial in trials]
    return bar_chart(
        Figure(f"bars-{metric.key}", metric.title, f"{metric.better} is better", (), {}),
        [trial.policy for trial in trials],
        values,
        [metric.show(value) for value in values],
    )


def bar_chart(
    figure: Figure,
    policies: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    errors: Sequence[float] = (),
) -> Figure:
    """Add a bar for each policy to a figure.

    Args:
      figure: The figure.
      policies: The names of the policies.
      values: The lengths of the bars.
      texts: The labels of the bars.
      errors: Half widths of the intervals around the values; () for none.
    """
    top = max(values, default=0.0)
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": list(policies),
        "x": list(values),
        "text": list(texts),
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [series(index) for index in range(len(policies))]},
        "hovertemplate": "%{y}: %{text}<extra></extra>",
    }
    if errors:
        bar["error_x"] = {
            "type": "data",
            "array": list(errors),
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
    return replace(figure, data=(bar,), layout=layout, height=30 + 34 * len(policies))


def _is_best(metric: Metric, value: float, rivals: Sequence[float]) -> bool:
    if len(set(rivals)) < 2:
        return False
    return value == (min(rivals) if metric.better == "lower" else max(rivals))


def _times(value: float) -> str:
    return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _count(value: float) -> str:
    return f"{value:,.0f}"

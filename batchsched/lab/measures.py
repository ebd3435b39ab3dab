"""The measures of a simulated run, such as its mean wait, and the outcome of a run with all its measures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

import numpy as np

from batchsched.api.crd.validation import suggest_name
from batchsched.api.decision import refusal_text
from batchsched.errors import InvalidInput
from batchsched.lab.fairness import QueueShareSeries
from batchsched.lab.figure import DAY, HOUR, MINUTE, format_duration, format_durations
from batchsched.lab.run_columns import (
    build_run_columns,
    resources_in_use,
    short_resource_name,
    time_weighted_mean,
)
from batchsched.simulator.result import RunResult


def _times(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _index(value: float) -> str:
    return f"{value:.3f}"


def _points(values: Sequence[float]) -> tuple[str, ...]:
    """Format differences of percentages as percentage points."""
    return tuple(f"{100 * value:.1f} pp" for value in values)


def _duration_differences(values: Sequence[float]) -> tuple[str, ...]:
    """Format a difference of durations and the half width of its interval, with one decimal: 8.5 h and 0.8 h.

    More decimals would state more than an interval confirms, unlike those of `format_durations`.
    """
    longest = max(map(abs, values), default=0.0)
    units = (("d", DAY, 2 * DAY), ("h", HOUR, HOUR), ("min", MINUTE, MINUTE))
    name, size = next(((name, size) for name, size, least in units if longest >= least), ("s", 1.0))
    texts = (
        f"{value / size:.1f}" if abs(value) >= size or not value else f"{value / size:.2g}"
        for value in values
    )
    return tuple(f"{text} {name}" for text in texts)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number by which policies are compared, such as the mean wait of gangs.

    Args:
      key: The name in results and scenarios.
      title: The name in reports.
      better: "lower" or "higher".
      show: Formats a value.
    """

    key: str
    title: str
    better: str
    show: Callable[[float], str]

    @property
    def is_duration(self) -> bool:
        """Whether the values of the measure are durations in seconds."""
        return self.show is format_duration

    @property
    def is_percentage(self) -> bool:
        """Whether the values of the measure are shown as percentages."""
        return self.show is _percent

    @property
    def title_in_sentence(self) -> str:
        """The title for use in a sentence: its first letter is lowercase, except in words such as GPUs."""
        title = self.title.rstrip("*")
        return title if title[:2].isupper() else title[:1].lower() + title[1:]

    def format_values(self, values: Sequence[float]) -> tuple[str, ...]:
        """Format values of the measure as texts for comparison, in which all durations have the same unit."""
        return format_durations(values) if self.is_duration else tuple(map(self.show, values))

    def format_differences(self, *differences: float) -> tuple[str, ...]:
        """Format differences between values, or half widths of confidence intervals, in one common unit.

        Differences of percentages are in percentage points (pp).
        """
        if self.is_percentage:
            return _points(differences)
        if self.is_duration:
            return _duration_differences(differences)
        return tuple(map(self.show, differences))


MEASURES: Final = (
    Measure("fairnessError", "Fairness error", "lower", _percent),
    Measure("jain", "Jain's index", "higher", _index),
    Measure("meanWait", "Mean wait", "lower", format_duration),
    Measure("medianWait", "Median wait", "lower", format_duration),
    Measure("worstWait", "Worst wait", "lower", format_duration),
    Measure("meanSlowdown", "Mean bounded slowdown", "lower", _times),
    Measure("worstSlowdown", "Worst bounded slowdown", "lower", _times),
    Measure("utilisation", "Used", "higher", _percent),
    Measure("makespan", "Makespan", "lower", format_duration),
    Measure("unfinished", "Gangs not finished", "lower", _count),
    Measure("evictions", "Pods evicted", "lower", _count),
    Measure("lostHours", "Hours of work lost", "lower", _count),
    Measure("meanGap", "Mean solver gap", "lower", _percent),
    Measure("worstGap", "Worst solver gap", "lower", _percent),
)
BY_KEY: Final = {measure.key: measure for measure in MEASURES}


def measure_by_name(key: str, field: str) -> Measure:
    """Return the measure that has this name, such as meanWait.

    Raises:
      InvalidInput: No measure has this name.
    """
    measure = BY_KEY.get(key)
    if measure is None:
        raise InvalidInput(f"there is no measure {key!r}; {suggest_name(key, list(BY_KEY))}", field=field)
    return measure


def measure_run(result: RunResult, fairness: QueueShareSeries) -> dict[str, float]:
    """Return the values of all measures for one run of the simulator.

    Fairness and utilization are means over the measured period of the run.
    """
    (run,) = build_run_columns((result,))
    metrics = run.metrics
    first, last = result.measured_period
    times, period = fairness.times - first, float(last - first)
    used = resources_in_use((run,))
    return {
        "fairnessError": time_weighted_mean(times, fairness.fairness_error_over_time, period),
        "jain": time_weighted_mean(times, fairness.jain_index_over_time, period)
        if len(times) and period > 0
        else 1.0,
        "meanWait": metrics.mean_wait,
        "medianWait": metrics.median_wait,
        "worstWait": float(metrics.worst_wait),
        "meanSlowdown": metrics.mean_slowdown,
        "worstSlowdown": metrics.worst_slowdown,
        "utilisation": run.busy.get(used[0], 0.0) if used else 0.0,
        "makespan": float(metrics.makespan),
        "unfinished": float(metrics.unfinished),
        "evictions": float(sum(gang.evicted for gang in result.gangs)),
        "lostHours": float(np.dot([gang.lost for gang in result.gangs], run.units)) / HOUR,
        "meanGap": result.mean_gap,
        "worstGap": result.worst_gap,
    }


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of one finished run of the simulator: its gang records, its fairness over time, and its measures.

    Args:
      key: The key of the run.
      seed: The seed of the run.
      result: Records of gangs and series over time.
      fairness: The shares of the queues.
      measures: The measures by name.
      cpu_seconds: The CPU time of the run.
    """

    key: str
    seed: int
    result: RunResult
    fairness: QueueShareSeries
    measures: Mapping[str, float]
    cpu_seconds: float

    @property
    def policy(self) -> str:
        """The name of the policy of this run."""
        return self.result.policy

    @property
    def workload(self) -> str:
        """The name of the workload of this run."""
        return self.result.workload

    def with_workload_and_policy_names(self, workload: str, policy: str) -> "RunOutcome":
        """Return a copy of the outcome with this workload name and this policy name."""
        return replace(self, result=replace(self.result, workload=workload, policy=policy))

    def without_placements_and_series(self) -> "RunOutcome":
        """Return a copy without placements and time series, so that hundreds of outcomes fit in memory."""
        return replace(self, result=self.result.without_placements_and_series())


FOOTNOTE: Final = "* Mean from the first to the last arrival."
BACKLOG_FOOTNOTE: Final = (
    "* Mean from the first arrival to the last end, since most gangs are there from the start."
)
_SUMMARY: Final = ("meanWait", "worstWait", "meanSlowdown", "worstSlowdown")


def utilisation_footnote(results: Sequence[RunResult]) -> str:
    """Return the footnote that states over which period the utilization of simulations is averaged."""
    return BACKLOG_FOOTNOTE if any(result.starts_with_backlog for result in results) else FOOTNOTE


@dataclass(frozen=True, slots=True)
class UnfinishedGang:
    """An unfinished gang of a simulation, with the reason and the policies under which it did not finish.

    Args:
      key: `namespace/name`.
      reason: The reason of its last refusal; "" if the last session did not refuse it.
      message: The sentence of that refusal.
      policies: The policies under which it did not finish for this reason.
    """

    key: str
    reason: str
    message: str
    policies: tuple[str, ...]


def list_unfinished_gangs(results: Sequence[RunResult]) -> tuple[UnfinishedGang, ...]:
    """Return the gangs that did not finish in the given runs, and why the last session refused each of them.

    The gangs are in the order of the runs and, inside a run, in the order of their arrival.
    """
    policies_of: dict[tuple[str, str, str], dict[str, None]] = {}
    for result in results:
        for gang in result.gangs:
            if not gang.is_finished:
                refusal = gang.refusal
                reason, message = (refusal.reason, refusal_text(refusal)) if refusal is not None else ("", "")
                policies_of.setdefault((gang.key, reason, message), {})[result.policy] = None
    return tuple(UnfinishedGang(*refused, tuple(names)) for refused, names in policies_of.items())


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """A row in the summary of a simulation: one measure, with its mean over the runs of each policy."""

    measure: Measure
    means: tuple[float, ...]

    @property
    def formatted_means(self) -> tuple[str, ...]:
        """The means of the measure, one for each policy, formatted as text."""
        return tuple(map(self.measure.show, self.means))


def summarize_run_outcomes(policies: Sequence[Sequence[RunOutcome]]) -> tuple[SummaryRow, ...]:
    """Return the rows of a simulation's summary: selected measures, each with its mean for every policy.

    Utilization is left out if a run has none, because it has no events.
    """
    drawn = [build_run_columns([outcome.result for outcome in outcomes]) for outcomes in policies]
    every = [run for runs in drawn for run in runs]
    rows = [_mean_row(BY_KEY[key], policies) for key in _SUMMARY]
    if all(run.busy for run in every):
        resource = next(iter(resources_in_use(every)), "cpu")
        used = replace(BY_KEY["utilisation"], title=f"{short_resource_name(resource, plural=True)} used*")
        rows.append(
            SummaryRow(used, tuple(fmean(run.busy.get(resource, 0.0) for run in runs) for runs in drawn))
        )
    rows.append(_mean_row(BY_KEY["makespan"], policies))
    done = [[run.metrics.gangs - run.metrics.unfinished for run in runs] for runs in drawn]
    rows.append(
        SummaryRow(Measure("done", "Gangs done", "higher", "{:,.0f}".format), tuple(map(fmean, done)))
    )
    return tuple(rows)


def _mean_row(measure: Measure, policies: Sequence[Sequence[RunOutcome]]) -> SummaryRow:
    means = (fmean(outcome.measures[measure.key] for outcome in outcomes) for outcomes in policies)
    return SummaryRow(measure, tuple(means))

"""The report of `lab tune`: the values that the search found, how it found them, and their check on other seeds."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

from batchsched.api.core.quantity import pluralize
from batchsched.lab.conclusion import Conclusion
from batchsched.lab.definitions import ReportedRunInput
from batchsched.lab.document import Section, Table, TableCell, TableRow
from batchsched.lab.figure import Figure, axis, format_number, policy_color
from batchsched.lab.pairs import format_difference
from batchsched.lab.plan import policy_profile
from batchsched.lab.report import sweep_document
from batchsched.lab.scenario import Scenario, TuningParameter, policy_with_settings
from batchsched.lab.tuning import TuningResult


def render_tuning_report(scenario: Scenario, result: TuningResult, settings: ReportedRunInput) -> str:
    """Return the HTML report of a search for policy parameters.

    Args:
      scenario: The scenario with the searched parameters.
      result: The result of the search.
      settings: The input of the runs.
    """
    title = f"batchsched lab: {scenario.name}, {result.policy} tuned"
    document = sweep_document(title, result.outcomes, _of_compared_policies(scenario, result, settings))
    search = Section("Search", (_history(result), *_parameter_figures(result)))
    return replace(
        document,
        conclusion=Conclusion((tuning_conclusion_text(result),), _seeds_text(scenario, result)),
        tables=(
            _found_values(scenario, result),
            *(replace(table, title="Check on other seeds") for table in document.tables),
        ),
        sections=(search, *document.sections),
    ).render()


def _of_compared_policies(
    scenario: Scenario, result: TuningResult, settings: ReportedRunInput
) -> ReportedRunInput:
    """Return the report settings for the two policies of the check: as stated, and with the best values."""
    stated_policy = next(policy for policy in scenario.policies if policy.name == result.policy)
    whole = stated_policy.model_copy(update={"profile": {**scenario.profile, **stated_policy.profile}})
    names = dict.fromkeys(outcome.policy for outcome in result.outcomes)
    policies = dict(
        zip(names, (stated_policy, policy_with_settings(whole, result.best.settings)), strict=True)
    )
    return replace(
        settings,
        profiles={name: policy_profile(scenario.profile, policy) for name, policy in policies.items()},
        queue_changes={name: policy.queues for name, policy in policies.items() if policy.queues},
    )


def tuning_conclusion_text(tuned: TuningResult) -> str:
    """Return the sentences that state whether a search improved its objective, and what became worse."""
    name, difference = tuned.measure.title.lower(), format_difference(tuned.objective_comparison)
    is_equal = tuned.objective_comparison.outcome == "same"
    result = f"{name} {'is the same' if is_equal else f'differs by {difference}'} on these seeds."
    if tuned.is_better_on_held_out_seeds:
        text = f"Improved: {result}"
    else:
        text = f"Not improved: {result} Keep the present settings."
        if not tuned.is_better_in_search:
            text += " No setting was better on the seeds of the search either."
        if tuned.seed_count_to_detect_gain is not None:
            seed_count = tuned.seed_count_to_detect_gain
            text += f" About {seed_count} seeds are needed to confirm a gain this small (tune.heldOut)."
    costs = ", ".join(
        f"{cost.measure.title.lower()} {format_difference(cost)}" for cost in tuned.worse_comparisons
    )
    return f"{text} Worse: {costs}." if costs else f"{text} No other measure is significantly worse."


def _seeds_text(scenario: Scenario, result: TuningResult) -> str:
    return (
        f"The search tried {pluralize(len(result.tried), 'setting')} on {pluralize(len(scenario.seeds), 'seed')} "
        f"and checked the best one on {pluralize(len(result.held_out), 'other seed')}."
    )


def _found_values(scenario: Scenario, result: TuningResult) -> Table:
    ranges = scenario.tune.parameters if scenario.tune is not None else {}
    lines = [
        TableRow(path, (TableCell(_value_text(value)), TableCell(_range_text(ranges.get(path)))))
        for path, value in result.best.settings.items()
    ]
    base, best = result.measure.format_values((result.base, result.best.value))
    on_seeds = f"{result.measure.title} on the seeds of the search"
    note = f"{on_seeds}: {base} with the stated settings, {best} with these values."
    return Table(
        "Best values of the search", "Parameter", ("Best value", "Searched"), tuple(lines), note, is_text=True
    )


def _value_text(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return format_number(value) if isinstance(value, float) else str(value)


def _range_text(parameter: TuningParameter | None) -> str:
    if parameter is None:
        return ""
    if parameter.choices:
        return ", ".join(map(_value_text, parameter.choices))
    low, high = (format_number(bound or 0.0) for bound in (parameter.low, parameter.high))
    return f"{low} to {high}" + (", by orders of magnitude" if parameter.log else "")


def _history(result: TuningResult) -> Figure:
    """Draw the objective of each tried setting in the order of the search, and the best value so far."""
    values = [setting.value for setting in result.tried]
    best = list(accumulate(values, max if result.maximised else min))
    numbers = list(range(1, len(values) + 1))
    data = (
        _points("each setting", numbers, values, result),
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best until then",
            "x": numbers,
            "y": best,
            "line": {"color": policy_color(0), "width": 2, "shape": "hv"},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "stated settings",
            "x": [1, len(values)],
            "y": [result.base, result.base],
            "line": {"color": policy_color(1), "width": 2, "dash": "dash"},
            "hoverinfo": "skip",
        },
    )
    caption = (
        f"{_objective(result)} of each setting, as a mean over the seeds of the search. The solid line is the best "
        "setting until then, the dashed line the settings of the scenario."
    )
    return Figure("search-history", "Search history", caption, data, _layout(result, "setting"), height=320)


def _parameter_figures(result: TuningResult) -> Iterator[Figure]:
    """Yield for each parameter a figure that shows how the objective depends on its value."""
    values = [setting.value for setting in result.tried]
    for number, path in enumerate(result.best.settings):
        tried = [setting.settings[path] for setting in result.tried]
        yield Figure(
            f"search-parameter-{number}",
            path,
            f"{_objective(result)} of each setting, by the value of this parameter. A parameter without a visible "
            "trend has little influence, or more settings are needed.",
            (_points("each setting", tried, values, result),),
            _layout(result, path),
            height=300,
        )


def _points(name: str, places: list[Any], values: list[float], result: TuningResult) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": places,
        "y": values,
        "customdata": list(result.measure.format_values(values)),
        "marker": {"color": policy_color(0), "size": 7},
        "hovertemplate": "%{x}: %{customdata}<extra></extra>",
    }


def _objective(result: TuningResult) -> str:
    return f"{result.measure.title} ({result.measure.better} is better)"


def _layout(result: TuningResult, title: str) -> dict[str, Any]:
    values = [*(setting.value for setting in result.tried), result.base]
    low, high = min(values), max(values)
    ticks = [low + (high - low) * part / 4 for part in range(5)] if high > low else [low]
    scale = {"tickvals": ticks, "ticktext": list(result.measure.format_values(ticks))}
    return {"xaxis": axis(title), "yaxis": axis(result.measure.title.lower(), **scale)}

"""Searches for the best parameters of a policy, and checks the result on other seeds.

The search uses the seeds of the scenario. Its best setting is then compared with the stated policy on held-out seeds:
the best of many settings on a few seeds is often good on these seeds only.

A tree-structured Parzen estimator with a fixed seed proposes the settings, so a search is repeatable and can be
resumed: finished runs are not executed again.

Source: Bergstra et al., Algorithms for Hyper-Parameter Optimization, NIPS 2011, as implemented by Optuna.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from batchsched.errors import InvalidInput
from batchsched.lab.measures import Measure, RunOutcome, measure_by_name
from batchsched.lab.pairs import PairedComparison, compare_pairs
from batchsched.lab.plan import plan_runs_of_policies
from batchsched.lab.results import copy_or_execute_missing_runs, read_outcome
from batchsched.lab.scenario import (
    Scenario,
    ScenarioPolicy,
    Tuning,
    TuningParameter,
    policy_with_settings,
    value_at_path,
)
from batchsched.lab.scenario_checks import check_tuned_parameters
from batchsched.lab.tuning_result_files import (
    HELD_OUT,
    SEARCH,
    move_earlier_results_away,
    parameter_column,
    tuning_result_file,
)
from batchsched.lab.workers import LabWorkers

Settings = Mapping[str, str | float | bool]


@dataclass(frozen=True, slots=True)
class TriedSetting:
    """A set of parameter values that the search tried, with the mean of the objective in its runs."""

    settings: Settings
    value: float


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of `lab tune`: the best parameters, and their check on seeds that the search did not use.

    Args:
      policy: The policy as stated in the scenario.
      measure: The objective.
      maximised: Whether the objective is maximized.
      base: The objective of the stated policy on the seeds of the search.
      tried: All settings, in order.
      best: The best setting.
      held_out: The seeds of the check, which the search did not use.
      check: The comparison of the stated policy with the best setting on these seeds, by measure.
      outcomes: The runs of the check.
    """

    policy: str
    measure: Measure
    maximised: bool
    base: float
    tried: tuple[TriedSetting, ...]
    best: TriedSetting
    held_out: tuple[int, ...]
    check: tuple[PairedComparison, ...]
    outcomes: tuple[RunOutcome, ...]

    @property
    def objective_comparison(self) -> PairedComparison:
        """The comparison of the best setting with the scenario's policy by the objective of the search.

        The comparison uses the held-out seeds.
        """
        return next(one for one in self.check if one.measure is self.measure)

    @property
    def is_better_in_search(self) -> bool:
        """True if the best setting is better than the scenario's policy on the seeds of the search."""
        return self.best.value > self.base if self.maximised else self.best.value < self.base

    @property
    def is_better_on_held_out_seeds(self) -> bool:
        """True if the best setting is significantly better than the scenario's policy on the held-out seeds."""
        return self._gain > 0 and self._gain >= self.objective_comparison.difference.half_width

    @property
    def seed_count_to_detect_gain(self) -> int | None:
        """The number of held-out seeds with which the observed gain of the best setting would be significant.

        None if the gain is already significant, or is not positive.
        """
        difference = self.objective_comparison.difference
        if self.is_better_on_held_out_seeds or not self._gain > 0 or not isfinite(difference.half_width):
            return None
        # The interval shrinks with the square root of the number of seeds.
        return ceil(difference.sample_count * (difference.half_width / self._gain) ** 2)

    @property
    def _gain(self) -> float:
        difference = self.objective_comparison.difference.value
        return difference if self.maximised else -difference

    @property
    def worse_comparisons(self) -> tuple[PairedComparison, ...]:
        """The comparisons by which the best setting is significantly worse than the scenario's policy.

        They use the held-out seeds, and measures other than the objective.
        """
        return tuple(one for one in self.check if one.outcome == "worse" and one.measure is not self.measure)


@dataclass(frozen=True, slots=True)
class TuningResources:
    """The result folder, the workers and the progress callback that a search by `lab tune` uses."""

    folder: Path
    workers: LabWorkers
    progress: Callable[[int, int], None]


def tune(scenario: Scenario, resources: TuningResources) -> TuningResult:
    """Search for the best parameter values of a policy, and compare them with the policy's present values.

    The comparison uses held-out seeds, which the search does not use.

    Raises:
      InvalidInput: The scenario has no `tune`, the measure is unknown, or the policy refuses a parameter.
    """
    tuning = scenario.tune
    if tuning is None:
        raise InvalidInput(
            "is required; state the policy, the objective and the parameters to search",
            object=f"scenario {scenario.name}",
            field="tune",
        )
    measure = measure_by_name(tuning.objective.measure_name, "tune.objective")
    seeds = held_out_seeds(scenario, tuning)
    check_tuned_parameters(scenario)
    stated_policy = next(policy for policy in scenario.policies if policy.name == tuning.policy)
    base = stated_policy.model_copy(update={"profile": {**scenario.profile, **stated_policy.profile}})
    maximised = tuning.objective.maximise is not None
    move_earlier_results_away(resources.folder)
    search_runs = _SearchRuns(scenario, tuning, resources)
    (stated_outcomes,) = search_runs.run_policies({0: base}, SEARCH, scenario.seeds)
    before = _mean(stated_outcomes, measure)
    tried = _search(scenario, tuning, base, search_runs)
    sign = -1.0 if maximised else 1.0
    best = min(tried, key=lambda setting: sign * setting.value)
    chosen = policy_with_settings(base, best.settings).model_copy(update={"name": f"{base.name}, tuned"})
    compared = {0: base, tried.index(best) + 1: chosen}
    outcomes_by_policy = search_runs.run_policies(compared, HELD_OUT, seeds)
    check = compare_pairs(*outcomes_by_policy)
    outcomes = tuple(one for of_policy in outcomes_by_policy for one in of_policy)
    return TuningResult(stated_policy.name, measure, maximised, before, tried, best, seeds, check, outcomes)


def held_out_seeds(scenario: Scenario, tuning: Tuning) -> tuple[int, ...]:
    """Return the seeds on which the best parameter values are checked, and which the search does not use.

    Raises:
      InvalidInput: The search uses one of these seeds.
    """
    if isinstance(tuning.held_out, int):
        first = max(scenario.seeds) + 1
        return tuple(range(first, first + tuning.held_out))
    both = sorted({*tuning.held_out} & {*scenario.seeds})
    if both:
        raise InvalidInput(
            f"seed {both[0]} is one of the seeds of the search; state other seeds, or only their number",
            object=f"scenario {scenario.name}",
            field="tune.heldOut",
        )
    return tuning.held_out


class _SearchRuns:
    """Executes the runs of a search by `lab tune`, and reports how many of them have finished."""

    def __init__(self, scenario: Scenario, tuning: Tuning, resources: TuningResources) -> None:
        self._scenario, self._tuning, self._resources = scenario, tuning, resources
        settings, checks = (
            len(scenario.seeds) * (1 + tuning.trials),
            2 * len(held_out_seeds(scenario, tuning)),
        )
        self._total = len(scenario.workloads) * (settings + checks)
        self._done = 0

    def run_policies(
        self, policies: Mapping[int, ScenarioPolicy], stage: str, seeds: Sequence[int]
    ) -> list[tuple[RunOutcome, ...]]:
        """Execute those runs of the policies that have no result yet; return the outcomes of all their runs.

        Args:
          policies: The policies to run, by the number of the tried setting.
          stage: `SEARCH` or `HELD_OUT`.
          seeds: The seeds.

        Returns:
          The outcomes of each policy, in the order of the policies.
        """
        resources = self._resources
        files = [
            tuning_result_file(resources.folder, run, number, stage, self._columns(policy))
            for number, policy in policies.items()
            for run in plan_runs_of_policies(self._scenario, [policy], seeds)
        ]
        copy_or_execute_missing_runs(
            files,
            resources.folder,
            resources.workers,
            lambda finished: resources.progress(self._done + finished, self._total),
        )
        outcomes = tuple(read_outcome(file.path) for file in files)
        self._done += len(files)
        size = len(files) // len(policies)
        return [outcomes[first : first + size] for first in range(0, len(outcomes), size)]

    def _columns(self, policy: ScenarioPolicy) -> dict[str, Any]:
        """Return for each tuned parameter a column of the result file with the value in the policy."""
        content = policy.model_dump(mode="json", by_alias=True)
        return {
            path: parameter_column(parameter, value_at_path(content, path))
            for path, parameter in self._tuning.parameters.items()
        }


def _search(
    scenario: Scenario, tuning: Tuning, base: ScenarioPolicy, search_runs: _SearchRuns
) -> tuple[TriedSetting, ...]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    measure = measure_by_name(tuning.objective.measure_name, "tune.objective")
    study = optuna.create_study(
        direction="maximize" if tuning.objective.maximise is not None else "minimize",
        sampler=optuna.samplers.TPESampler(seed=scenario.seeds[0]),
    )
    ranges = {place: _distribution(optuna, one) for place, one in tuning.parameters.items()}
    tried: list[TriedSetting] = []
    while len(tried) < tuning.trials:
        proposals = [study.ask(ranges) for _ in range(min(tuning.at_once, tuning.trials - len(tried)))]
        policies = {
            number: policy_with_settings(base, proposal.params)
            for number, proposal in enumerate(proposals, start=len(tried) + 1)
        }
        by_policy = search_runs.run_policies(policies, SEARCH, scenario.seeds)
        for proposal, outcomes in zip(proposals, by_policy, strict=True):
            value = _mean(outcomes, measure)
            study.tell(proposal, value)
            tried.append(TriedSetting(dict(proposal.params), value))
    return tuple(tried)


def _distribution(optuna: Any, parameter: TuningParameter) -> Any:
    if parameter.choices:
        return optuna.distributions.CategoricalDistribution(parameter.choices)
    low, high = parameter.low, parameter.high
    if parameter.whole and low is not None and high is not None:
        return optuna.distributions.IntDistribution(int(low), int(high), log=parameter.log)
    return optuna.distributions.FloatDistribution(low, high, log=parameter.log)


def _mean(outcomes: Sequence[RunOutcome], measure: Measure) -> float:
    """Return the mean of a measure over workloads and seeds."""
    return fmean(outcome.measures[measure.key] for outcome in outcomes)

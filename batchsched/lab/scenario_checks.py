"""Checks of a scenario before its first run, such as for policies that are certain to give equal results.

The runs of such a scenario would succeed, but a comparison of them would be meaningless.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchsched.api.crd.validation import suggest_name
from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput
from batchsched.lab.plan import plan_runs_of_policies, policy_profile
from batchsched.lab.scenario import (
    ALL_NAMES,
    Scenario,
    ScenarioPolicy,
    TuningParameter,
    policy_with_settings,
    queue_names,
)
from batchsched.queues.gang_order import make_gang_order_policy
from batchsched.queues.tree import ENTITLING


@dataclass(frozen=True, slots=True)
class ComparedPolicy:
    """A policy that is compared with others: its whole profile, and the queue fields that it changes.

    Args:
      name: the name of the policy.
      profile: the whole profile.
      queues: the fields of queues that the policy changes.
      entitled: whether some queue has an entitlement.
    """

    name: str
    profile: Profile
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    entitled: bool = False

    def settings_with_effect(self) -> dict[str, Any]:
        """Return those settings of the policy's profile and queues that have an effect on decisions."""
        settings = self.profile.model_dump(mode="json", by_alias=True, exclude=set(self._idle_fields()))
        return {"profile": settings, "queues": self.queues}

    def _idle_fields(self) -> Iterator[str]:
        """Yield the fields of the profile that have no effect because of the values of other fields."""
        profile = self.profile
        if not profile.gang_order_has_effect(entitled=self.entitled):
            yield "policy"
        if profile.solver.enabled and profile.selection == "weight":
            yield "blocking"
        if profile.backfill != "kept":
            yield "promise_slowdown"


def indistinct_scenario_policy_warnings(scenario: Scenario) -> tuple[str, ...]:
    """Return a warning for each group of policies in a scenario that are certain to give equal results."""
    return indistinct_policy_warnings(
        [
            ComparedPolicy(
                policy.name,
                policy_profile(scenario.profile, policy),
                policy.queues,
                entitled=_has_entitlements(scenario, policy),
            )
            for policy in scenario.policies
        ]
    )


def _has_entitlements(scenario: Scenario, policy: ScenarioPolicy) -> bool:
    """Return whether queues of a scenario have entitlements under one of its policies."""
    return any(ENTITLING & queue.spec.model_fields_set for queue in scenario.queues) or any(
        ENTITLING & fields.keys() for fields in policy.queues.values()
    )


def indistinct_policy_warnings(policies: Sequence[ComparedPolicy]) -> tuple[str, ...]:
    """Return a warning for each group of policies that are certain to give equal results.

    Such policies differ only in fields without effect, or in no field.
    """
    groups: list[list[ComparedPolicy]] = []
    for policy in policies:
        alike = (
            group for group in groups if group[0].settings_with_effect() == policy.settings_with_effect()
        )
        group = next(alike, None)
        if group is None:
            groups.append([policy])
        else:
            group.append(policy)
    return tuple(_indistinct_warning(group) for group in groups if len(group) > 1)


def check_gang_orders(policies: Sequence[ComparedPolicy]) -> None:
    """Check that the gang orders of the policies exist and accept their arguments.

    Raises:
      InvalidInput: A policy does not exist, or an argument is invalid.
    """
    for policy in policies:
        make_gang_order_policy(policy.profile.policy.name, policy.profile.policy.args)


def _indistinct_warning(group: Sequence[ComparedPolicy]) -> str:
    names = ", ".join(policy.name for policy in group)
    profiles = [policy.profile.model_dump(mode="json", by_alias=True) for policy in group]
    differing = [name for name in profiles[0] if any(other[name] != profiles[0][name] for other in profiles)]
    if not differing:
        return f"policies {names} have the same settings, so their results are equal; change or remove all but one"
    fields = " and ".join(f"profile.{name}" for name in differing)
    if "promiseSlowdown" in differing and len(differing) == 1:
        return (
            f"policies {names} differ only in {fields}, which only `backfill: kept` reads, so their results are equal; "
            "set profile.backfill to kept"
        )
    profile = group[0].profile
    effect = "does not read, so their results are equal"
    if profile.backfill != "none":
        effect = "reads only to choose the gang that backfill reserves capacity for, so their results hardly differ"
    return (
        f"policies {names} differ only in {fields}, which `selection: weight` {effect}; "
        "set profile.selection to ordered, so that gangs start in the order of the policy"
    )


def check_tuned_parameters(scenario: Scenario) -> None:
    """Check that the policy accepts the values that `lab tune` may try for each tuned parameter.

    Of a range, only both ends are checked.

    Raises:
      InvalidInput: A path does not exist, or a value is invalid.
    """
    tuning = scenario.tune
    if tuning is None:
        return
    policy = next(policy for policy in scenario.policies if policy.name == tuning.policy)
    values_by_path = {path: _values_to_check(parameter) for path, parameter in tuning.parameters.items()}
    first_values = {path: values[0] for path, values in values_by_path.items()}
    for path, values in values_by_path.items():
        for value in values:
            problem = _problem_of(scenario, policy, {path: value})
            # A parameter may be valid only together with another one, such as an argument of a policy that is a choice.
            if (
                problem is not None
                and _problem_of(scenario, policy, {**first_values, path: value}) is not None
            ):
                raise InvalidInput(
                    problem.message, object=f"scenario {scenario.name}", field=f"tune.parameters.{path}"
                ) from problem


def _values_to_check(parameter: TuningParameter) -> list[str | float | bool]:
    if parameter.choices:
        return list(parameter.choices)
    ends = [end for end in (parameter.low, parameter.high) if end is not None]
    return [int(end) for end in ends] if parameter.whole else [*ends]


def _problem_of(
    scenario: Scenario, policy: ScenarioPolicy, settings: Mapping[str, str | float | bool]
) -> InvalidInput | None:
    """Return why a policy cannot have these settings; None if it can."""
    try:
        changed = policy_with_settings(policy, settings)
        # The stated policy accepts its own settings, or its first run names the field.
        policy_profile(scenario.profile, changed)
        _check_queue_changes(scenario, changed)
    except InvalidInput as error:
        return error
    return None


def _check_queue_changes(scenario: Scenario, policy: ScenarioPolicy) -> None:
    """Check the queue fields that a policy changes and, if all queues are known, that these queues exist.

    Raises:
      InvalidInput: A queue or a field does not exist.
    """
    all_queues = queue_names(scenario)
    for name in policy.queues:
        if all_queues is not None and name not in {*all_queues, ALL_NAMES}:
            raise InvalidInput(f"there is no queue {name!r}; {suggest_name(name, sorted(all_queues))}")
    declared = {queue.name for queue in scenario.queues}
    changes = {name: fields for name, fields in policy.queues.items() if name in {*declared, ALL_NAMES}}
    run = next(
        plan_runs_of_policies(scenario, [policy.model_copy(update={"queues": changes})], scenario.seeds[:1])
    )
    run.queues_with_policy_changes(())

from pathlib import Path

import pytest

from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput
from batchsched.lab.scenario import load_scenario, policy_with_settings, unknown_queue_warnings
from batchsched.lab.scenario_checks import (
    ComparedPolicy,
    check_tuned_parameters,
    indistinct_policy_warnings,
    indistinct_scenario_policy_warnings,
)
from tests.lab.scenarios import scenario

EXAMPLES = Path(__file__).parents[2] / "examples/lab"

ORDERS = [{"name": name, "profile": {"policy": {"name": name}}} for name in ("fcfs", "sjf")]


def tuned(parameters, **more):
    return scenario(
        tune={"policy": "fcfs", "objective": {"minimise": "meanWait"}, "parameters": parameters}, **more
    )


def test_policies_that_differ_only_in_the_order_of_gangs_are_named_under_selection_by_weight():
    (warning,) = indistinct_scenario_policy_warnings(scenario(policies=ORDERS, profile={}, queues=[]))
    assert "policies fcfs, sjf differ only in profile.policy" in warning
    assert "`selection: weight` does not read" in warning
    assert "set profile.selection to ordered" in warning


@pytest.mark.parametrize(
    "profile",
    [{"selection": "ordered"}, {"solver": {"enabled": False}}],
    ids=["ordered", "without solver"],
)
def test_policies_that_can_differ_cause_no_warning(profile):
    assert indistinct_scenario_policy_warnings(scenario(policies=ORDERS, profile=profile)) == ()


def test_policies_that_differ_in_their_queues_cause_no_warning():
    changed = {**ORDERS[1], "queues": {"a": {"weight": 3}}}
    assert indistinct_scenario_policy_warnings(scenario(policies=[ORDERS[0], changed], profile={})) == ()


def test_order_decides_which_gangs_are_inside_the_entitlement_of_a_queue_and_causes_no_warning():
    """With `selection: weight`, sessions read the order of gangs if queues have entitlements."""
    entitled = {
        "apiVersion": "scheduling.batchsched.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "a"},
    }
    queues = [{**entitled, "spec": {"weight": 2}}]
    assert indistinct_scenario_policy_warnings(scenario(policies=ORDERS, profile={}, queues=queues)) == ()
    assert (
        indistinct_scenario_policy_warnings(
            scenario(policies=ORDERS, profile={"queuePolicy": {"name": "drf"}})
        )
        == ()
    )


def test_an_order_that_only_selects_the_reserved_gang_is_a_weaker_warning():
    (warning,) = indistinct_scenario_policy_warnings(
        scenario(policies=ORDERS, profile={"backfill": "easy"}, queues=[])
    )
    assert "hardly differ" in warning


def test_equal_policies_and_a_field_that_another_one_disables_are_named():
    same, other = Profile(), Profile.model_validate({"promiseSlowdown": 3})
    (warning,) = indistinct_policy_warnings([ComparedPolicy("a", same), ComparedPolicy("b", same)])
    assert "policies a, b have the same settings" in warning
    (warning,) = indistinct_policy_warnings([ComparedPolicy("a", same), ComparedPolicy("b", other)])
    assert "set profile.backfill to kept" in warning


@pytest.mark.parametrize(
    "path, advice",
    [
        ("profile.policy.args.shre", "did you mean share"),
        ("profile.polcy.args.share", "did you mean policy"),
        ("policy.args.share", "expected profile"),
        ("queues.c.weight", "no queue 'c'"),
        ("queues.a.weigth", "did you mean weight"),
    ],
)
def test_a_misspelt_path_of_a_tuned_parameter_is_named_before_any_run(path, advice):
    policies = [{"name": "fcfs", "profile": {"policy": {"name": "headroom"}}}]
    parameters = {"profile.policy.args.ageing": {"low": 0.1, "high": 0.5}, path: {"low": 0.1, "high": 0.3}}
    with pytest.raises(InvalidInput, match=advice) as found:
        check_tuned_parameters(tuned(parameters, policies=policies))
    assert found.value.field == f"tune.parameters.{path}"


def test_a_value_that_the_policy_refuses_is_named_before_any_run():
    policies = [{"name": "fcfs", "profile": {"policy": {"name": "headroom"}}}]
    with pytest.raises(
        InvalidInput, match=r"tune\.parameters\.profile\.policy\.args\.share: expected less than 1"
    ):
        check_tuned_parameters(tuned({"profile.policy.args.share": {"low": 0, "high": 7}}, policies=policies))


def test_a_parameter_that_needs_the_choice_of_another_one_is_accepted():
    parameters = {
        "profile.policy.name": {"choices": ["headroom"]},
        "profile.policy.args.share": {"low": 0.1, "high": 0.3},
    }
    check_tuned_parameters(tuned(parameters))
    check_tuned_parameters(scenario())


def test_settings_replace_only_their_own_fields():
    policy = scenario().policies[0]
    made = policy_with_settings(policy, {"profile.policy.args.x": 3, "queues.a.weight": 2.0})
    assert made.profile == {"policy": {"name": "fcfs", "args": {"x": 3}}}
    assert made.queues == {"a": {"weight": 2.0}}
    assert policy == scenario().policies[0]


@pytest.mark.parametrize("name", ["backfill.yaml", "teams.yaml"])
def test_scenarios_that_need_no_trace_are_shipped_without_a_warning(name):
    made = load_scenario(EXAMPLES / name)
    check_tuned_parameters(made)
    assert (unknown_queue_warnings(made), indistinct_scenario_policy_warnings(made)) == ((), ())

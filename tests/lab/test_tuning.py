import re
from dataclasses import replace
from math import nan

import pytest

from batchsched.errors import InvalidInput
from batchsched.lab.definitions import reported_run_input_of_scenario
from batchsched.lab.pairs import MeanInterval
from batchsched.lab.plan import plan_runs
from batchsched.lab.tuning import TuningResources, held_out_seeds, tune
from batchsched.lab.tuning_report import render_tuning_report, tuning_conclusion_text
from batchsched.lab.workers import InProcessWorkers
from tests.lab.scenarios import scenario

BLOCKING = {"name": "fcfs", "profile": {"policy": {"name": "fcfs"}, "backfill": "none", "blocking": True}}


def tuned(folder, tune_it, **more):
    told = []
    made = scenario(tune={"policy": "fcfs", "trials": 4, "heldOut": 3, **tune_it}, **more)
    return tune(made, TuningResources(folder, InProcessWorkers(), lambda *both: told.append(both))), told


def better(**more):
    """A search that has something to find: whether a head that does not fit blocks all behind it."""
    return {
        "objective": {"minimise": "meanSlowdown"},
        "parameters": {
            "profile.blocking": {"choices": [True, False]},
            "profile.backfill": {"choices": ["none", "easy"]},
        },
        **more,
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    workloads = [{"name": "drawn", "generate": {"gangs": 60, "load": 1.5, "shares": {"a": 0.5, "b": 0.5}}}]
    folder = tmp_path_factory.mktemp("tuned")
    return tuned(folder, better(), policies=[BLOCKING], workloads=workloads)


def test_the_best_candidate_is_checked_on_held_out_seeds(found):
    made, told = found
    assert len(made.tried) == 4
    assert told[0] == (1, 16)
    assert told[-1] == (
        16,
        16,
    )  # two seeds with the stated policy and four settings, three held-out seeds with two
    assert made.best.value == min(one.value for one in made.tried) < made.base
    assert made.is_better_in_search
    assert made.held_out == (2, 3, 4)
    assert made.objective_comparison.difference.sample_count == 3
    assert {one.seed for one in made.outcomes} == {2, 3, 4}
    assert [one.policy for one in made.outcomes] == ["fcfs"] * 3 + ["fcfs, tuned"] * 3


def test_a_better_result_on_held_out_seeds_is_an_improvement(found):
    made, _ = found
    gain, width = -made.objective_comparison.difference.value, made.objective_comparison.difference.half_width
    assert made.is_better_on_held_out_seeds is (gain > 0 and gain >= width)
    assert gain > 0


def test_a_parameter_without_effect_is_no_improvement(tmp_path):
    idle = {
        "objective": {"minimise": "meanWait"},
        "parameters": {"profile.sessionWindow": {"low": 400, "high": 600, "whole": True}},
    }
    made, _ = tuned(tmp_path, idle, seeds=1)
    assert not made.is_better_on_held_out_seeds
    assert not made.is_better_in_search
    assert made.objective_comparison.outcome == "same"
    assert made.worse_comparisons == ()
    assert tuning_conclusion_text(made).startswith(
        "Not improved: mean wait is the same on these seeds. Keep the "
    )


@pytest.mark.parametrize(
    "value, width, count, expected",
    [(-1.0, 2.0, 5, 20), (-1.0, 0.5, 5, None), (1.0, 2.0, 5, None), (-1.0, nan, 1, None)],
    ids=["unclear", "improved", "worse", "one seed"],
)
def test_an_unclear_gain_is_reported_with_the_number_of_seeds_that_would_decide_it(
    found, value, width, count, expected
):
    made, _ = found
    objective = replace(made.objective_comparison, difference=MeanInterval(value, width, count))
    assert replace(made, check=(objective,)).seed_count_to_detect_gain == expected


def test_a_search_is_deterministic_and_makes_no_run_twice(tmp_path, monkeypatch):
    more = {
        "objective": {"maximise": "jain"},
        "parameters": {"profile.policy.args.share": {"low": 0.0, "high": 0.5}},
    }
    policies = [{"name": "fcfs", "profile": {"policy": {"name": "headroom"}}}]
    first, _ = tuned(tmp_path, {**more, "atOnce": 3}, policies=policies, seeds=1)
    monkeypatch.setattr("batchsched.lab.results.execute_and_encode_run", None)
    again, told = tuned(tmp_path, {**more, "atOnce": 3}, policies=policies, seeds=1)
    assert again.tried == first.tried
    assert first.best.value == max(one.value for one in first.tried)
    assert told[-1] == (11, 11)


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"parameters": {"policy.name": {"choices": ["x"]}}}, "expected profile"),
        ({"objective": {"minimise": "meanWeight"}}, "did you mean meanWait"),
        ({"heldOut": [1, 5]}, "seed 1 is one of the seeds of the search"),
    ],
    ids=["place", "measure", "seed"],
)
def test_an_untunable_scenario_is_refused_with_the_reason(tmp_path, change, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        tuned(tmp_path, {**better(trials=1), **change})


def test_a_scenario_without_tune_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="tune: is required; state the policy"):
        tune(scenario(), TuningResources(tmp_path, InProcessWorkers(), lambda *_: None))


def test_held_out_seeds_may_be_stated():
    made = scenario(tune={"policy": "fcfs", **better(), "heldOut": [8, 9]})
    assert made.tune is not None
    assert held_out_seeds(made, made.tune) == (8, 9)
    assert len(plan_runs(made)) == 4


def test_the_report_of_a_search_states_the_values_the_conclusion_and_the_history(found):
    made, _ = found
    settings = reported_run_input_of_scenario(scenario(), "batchsched lab tune small.yaml")
    page = render_tuning_report(scenario(), made, settings)
    assert page.index(tuning_conclusion_text(made)) < page.index("Best values of the search")
    for path in made.best.settings:
        assert f'<th scope="row">{path}</th>' in page
    # The table of policies defines the two that were compared, and no other policy of the scenario.
    defined = page.partition('aria-label="Policies"')[2].partition("</table>")[0].replace("\u200b", "")
    assert re.findall(r'<th scope="row">([^<]+)<', defined) == ["fcfs", "fcfs, tuned"]
    assert "The search tried 4 settings on 2 seeds and checked the best one on 3 other seeds." in page
    for key in ("search-history", "search-parameter-0", "search-parameter-1"):
        assert f'id="{key}"' in page
    assert "<code>batchsched lab tune small.yaml</code>" in page

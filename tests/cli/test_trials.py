from dataclasses import replace

import pytest

from batchsched.cli.options import Output
from batchsched.cli.trials import PolicyRuns, mean_of, print_trials, profiles_of_policies, split_columns
from batchsched.config.schema import PolicySettings, Profile
from batchsched.lab.simulation import simulate
from batchsched.simulator.generator import Recipe, generate
from batchsched.simulator.run import RunSettings

BASE = Profile(policy=PolicySettings(name="headroom", args={"share": 0.5}))


def test_without_a_policy_the_profiles_own_is_tried_with_its_arguments():
    (one,) = profiles_of_policies((), BASE, {"backfill": "easy"})
    assert (one.name, one.profile.policy, one.profile.backfill) == ("headroom", BASE.policy, "easy")


def test_a_policy_named_as_the_profiles_keeps_its_arguments_and_others_have_none():
    own, other = profiles_of_policies(("headroom", "saf"), BASE, {})
    assert own.profile.policy.args == {"share": 0.5}
    assert other.profile.policy.args == {}


def test_arguments_are_read_as_numbers_and_words():
    (one,) = profiles_of_policies(("mine:share=0.25,limit=10,mode=fast",), BASE, {})
    assert one.profile.policy == PolicySettings(
        name="mine", args={"share": 0.25, "limit": 10, "mode": "fast"}
    )


def tried(name, *seeds):
    profile = Profile.model_validate({"selection": "ordered", "policy": {"name": name}})
    runs = [
        simulate(generate(Recipe(gangs=15, node_count=3), seed), profile, RunSettings(name)) for seed in seeds
    ]
    return PolicyRuns(name, tuple(runs))


def test_a_figure_is_the_mean_over_runs():
    one = tried("fcfs", 1, 2)
    assert mean_of(one, "makespan") == sum(metrics.makespan for metrics in one.metrics) / 2


def test_a_table_of_sequences_says_how_policies_differ_in_pairs(capsys):
    print_trials([tried("fcfs", 1, 2, 3), tried("sjf", 1, 2, 3)], Output.TABLE, "three draws")
    told = " ".join(capsys.readouterr().out.split())
    assert "three draws: means over 3 sequences" in told
    assert "sjf against fcfs, mean slowdown, paired:" in told


@pytest.mark.parametrize("output", [Output.JSON, Output.YAML])
def test_one_run_tells_its_utilisation_and_no_differences(output, capsys):
    print_trials([tried("fcfs", 1)], output, "one draw")
    told = capsys.readouterr().out
    assert "utilisation" in told
    assert "meanSlowdown" in told
    assert "half_width" not in told


def test_policies_too_wide_for_the_terminal_go_on_in_a_table_below():
    assert split_columns([10, 10, 10], 25) == [[0, 1], [2]]
    assert split_columns([40, 10], 25) == [[0], [1]]


def test_the_table_fits_a_terminal_of_eighty_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = ("fcfs", "sjf", "saf", "wfp3", "headroom:share=0.25,patience=3", "f1", "priority")
    one = tried("fcfs", 1)
    runs = [PolicyRuns(name, tuple(replace(run, policy=name) for run in one.runs)) for name in names]
    print_trials(runs, Output.TABLE, "one draw")
    told = capsys.readouterr().out
    assert max(len(line) for line in told.splitlines()) <= 80
    assert told.count("Mean wait") == 2
    assert "Mean wait " in told

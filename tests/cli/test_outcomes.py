import json
from dataclasses import replace

import pytest

from batchsched.cli.options import OutputFormat
from batchsched.cli.outcomes import divide_columns_among_tables, print_simulation_result
from batchsched.cli.simulate import parse_compared_policies
from batchsched.config.schema import PolicySettings, Profile
from batchsched.lab.simulation import build_outcome, simulate_under_profile
from batchsched.simulator.generator import GeneratorSettings, generate_workload
from batchsched.simulator.run import RunSettings

BASE = Profile(policy=PolicySettings(name="headroom", args={"share": 0.5}))


def test_without_a_policy_the_profiles_own_is_tried_with_its_arguments():
    (one,) = parse_compared_policies((), BASE, {"backfill": "easy"})
    assert (one.name, one.profile.policy, one.profile.backfill) == ("headroom", BASE.policy, "easy")


def test_a_policy_named_as_the_profiles_keeps_its_arguments_and_others_have_none():
    own, other = parse_compared_policies(("headroom", "saf"), BASE, {})
    assert own.profile.policy.args == {"share": 0.5}
    assert other.profile.policy.args == {}


def test_arguments_are_read_as_numbers_and_words():
    (one,) = parse_compared_policies(("mine:share=0.25,limit=10,mode=fast",), BASE, {})
    assert one.profile.policy == PolicySettings(
        name="mine", args={"share": 0.25, "limit": 10, "mode": "fast"}
    )


def outcomes(policy, *seeds):
    profile = Profile.model_validate({"selection": "ordered", "policy": {"name": policy}})
    runs = []
    for seed in seeds:
        result = simulate_under_profile(
            generate_workload(GeneratorSettings(gangs=15, node_count=3), seed), profile, RunSettings(policy)
        )
        runs.append(build_outcome(replace(result, workload=f"seed-{seed}"), (), seed))
    return runs


def test_a_figure_is_the_mean_over_runs(capsys):
    runs = outcomes("fcfs", 1, 2)
    print_simulation_result("two draws", [runs], OutputFormat.JSON)
    (policy,) = json.loads(capsys.readouterr().out)["policies"]
    assert policy["makespan"] == sum(run["makespan"] for run in policy["runs"]) / 2
    assert policy["makespan"] == sum(outcome.measures["makespan"] for outcome in runs) / 2


def test_a_table_of_sequences_states_how_policies_differ_in_pairs(capsys):
    print_simulation_result(
        "three draws", [outcomes("fcfs", 1, 2, 3), outcomes("sjf", 1, 2, 3)], OutputFormat.TABLE
    )
    printed = " ".join(capsys.readouterr().out.split())
    assert "three draws: means over 3 sequences" in printed
    assert "sjf against fcfs, mean slowdown, paired:" in printed


def test_policies_without_a_difference_have_no_sign_in_a_table_of_sequences(capsys):
    same = outcomes("fcfs", 1, 2)
    print_simulation_result("two draws", [same, same], OutputFormat.TABLE)
    printed = " ".join(capsys.readouterr().out.split())
    assert "fcfs against fcfs, mean slowdown, paired: 0.00 ± 0.00 (0.0%), lower in 0%" in printed


def test_sequences_have_their_utilisation_and_makespan_in_the_table_and_as_data(capsys):
    small = [outcome.without_placements_and_series() for outcome in outcomes("fcfs", 1, 2)]
    print_simulation_result("two draws", [small], OutputFormat.TABLE)
    printed = capsys.readouterr().out
    assert "GPUs used*" in printed
    assert "Makespan" in printed
    print_simulation_result("two draws", [small], OutputFormat.JSON)
    (policy,) = json.loads(capsys.readouterr().out)["policies"]
    used = [run["utilisation"]["nvidia.com/gpu"] for run in policy["runs"]]
    assert used == [outcome.measures["utilisation"] for outcome in small]
    assert policy["utilisation"]["nvidia.com/gpu"] == sum(used) / 2 > 0


@pytest.mark.parametrize("output", [OutputFormat.JSON, OutputFormat.YAML])
def test_one_run_has_its_utilisation_and_no_differences(output, capsys):
    print_simulation_result("one draw", [outcomes("fcfs", 1)], output)
    printed = capsys.readouterr().out
    assert "utilisation" in printed
    assert "meanSlowdown" in printed
    assert "half_width" not in printed


def test_policies_too_wide_for_the_terminal_go_on_in_a_table_below():
    assert divide_columns_among_tables([10, 10, 10], 25) == [[0, 1], [2]]
    assert divide_columns_among_tables([40, 10], 25) == [[0], [1]]


def test_the_table_fits_a_terminal_of_eighty_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = ("fcfs", "sjf", "saf", "wfp3", "headroom:share=0.25,patience=3", "f1", "priority")
    (outcome,) = outcomes("fcfs", 1)
    print_simulation_result(
        "one draw",
        [[outcome.with_workload_and_policy_names("w", name)] for name in names],
        OutputFormat.TABLE,
    )
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines()) <= 80
    assert printed.count("Mean wait") == 2

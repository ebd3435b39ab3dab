import re

import pytest

from batchsched.cli.simulate import COMMANDS
from tests.cli.conftest import NOW, group, manifests, node, pod, queue

ROWS = [(0, 50, 4), (5, 9, 3), (6, 4, 1), (9, 30, 2), (12, 3, 4), (20, 60, 1), (22, 5, 3), (30, 8, 2)]


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "small.swf"
    lines = ["; MaxProcs: 4"]
    lines += [
        f"{number} {at} -1 {run} {size} -1 -1 {size} -1 -1 1 -1 -1 -1 0 -1 -1 -1"
        for number, (at, run, size) in enumerate(ROWS)
    ]
    file.write_text("\n".join(lines))
    return file


def test_a_trace_under_two_policies_is_compared_in_pairs(command, trace):
    result = command(
        "simulate", "swf", trace, "--policy", "fcfs", "--policy", "saf", "--jobs", "4", "--starts", "0,2,4",
        "--processes", "1", "-o", "json",
    )  # fmt: skip
    assert result.code == 0
    assert [one["policy"] for one in result.data["policies"]] == ["fcfs", "saf"]
    assert [one["workload"] for one in result.data["policies"][0]["runs"]] == [
        "small[0:4]", "small[2:6]", "small[4:8]",
    ]  # fmt: skip
    assert result.data["differences"][0]["policy"] == "saf"
    assert result.data["policies"][0]["unfinished"] == 0


def test_output_does_not_depend_on_the_number_of_processes(command, trace):
    arguments = ["simulate", "swf", trace, "--policy", "saf", "--jobs", "4", "--starts", "0,3", "-o", "json"]
    assert command(*arguments, "--processes", "1").out == command(*arguments, "--processes", "2").out


def test_policies_take_arguments(command, trace):
    result = command("simulate", "swf", trace, "--policy", "headroom:share=0.5,patience=3", "-o", "json")
    assert result.data["policies"][0]["policy"] == "headroom:share=0.5,patience=3"


def test_windows_are_drawn_from_a_seed(command, trace):
    result = command(
        "simulate", "swf", trace, "--jobs", "3", "--windows", "4", "--window-seed", "7", "-o", "json"
    )
    assert len(result.data["policies"][0]["runs"]) == 4


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--starts", "99"), "beyond the last row"),
        (("--starts", "x"), "not a list of whole numbers"),
        (("--policy", "saf:share"), "expected NAME=VALUE"),
        (("--jobs", "0"), "--jobs"),
    ],
)
def test_wrong_arguments_are_named(command, trace, arguments, said):
    result = command("simulate", "swf", trace, *arguments)
    assert result.code == 2
    assert said in " ".join(result.err.split())


def test_an_unknown_policy_is_named(command, trace):
    result = command("simulate", "swf", trace, "--policy", "nonsense", "--processes", "1")
    assert result.code == 2
    assert "--policy: there is no policy 'nonsense'; known are" in result.err


def test_a_trace_that_does_not_state_its_processors_needs_them(command, tmp_path):
    file = tmp_path / "bare.swf"
    file.write_text("1 0 -1 5 1\n")
    result = command("simulate", "swf", file)
    assert result.code == 2
    assert "--processors" in result.err
    assert command("simulate", "swf", file, "--processors", "2", "-o", "json").code == 0


def test_a_philly_trace_runs_on_nodes_of_gpus(command, tmp_path):
    file = tmp_path / "philly.csv"
    file.write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-01 00:00:00,60,8,480,aa\n2017-10-01 00:00:10,30,12,360,aa\n2017-10-01 00:00:20,30,1,30,bb\n"
    )
    result = command(
        "simulate", "philly", file, "--nodes", "2", "--policy", "fcfs", "--first", "2017-10-01T00:00:05Z", "-o", "json"
    )  # fmt: skip
    assert result.code == 0
    told = result.data["policies"][0]
    assert (told["gangs"], told["meanWait"]) == (2, 0)
    late = command("simulate", "philly", file, "--first", "2018-01-01T00:00:00Z")
    assert late.code == 2
    assert "no job" in late.err


def test_a_generated_workload_with_failures_is_printed_as_a_table(command):
    result = command(
        "simulate", "generate", "--gangs", "25", "--nodes", "4", "--hours-between-failures", "30",
        "--policy", "fcfs", "--policy", "sjf", "--processes", "1",
    )  # fmt: skip
    assert result.code == 0
    assert "fcfs" in result.out
    assert "sjf" in result.out
    assert "GPUs used" in result.out


def test_a_trace_without_a_job_is_refused(command, tmp_path):
    file = tmp_path / "empty.swf"
    file.write_text("; MaxProcs: 4\n")
    result = command("simulate", "swf", file)
    assert result.code == 1
    assert f"{file}: has no job that ran" in result.err


@pytest.mark.parametrize("arguments", [(), ("--jobs", "4", "--starts", "0,2")], ids=["whole", "sequences"])
def test_a_report_of_a_trace_is_written(command, trace, tmp_path, arguments):
    file = tmp_path / "report.html"
    result = command("simulate", "swf", trace, *arguments, "--processes", "1", "--report", file)
    assert result.code == 0
    page = file.read_text("utf-8")
    assert "the first of 2" in page if arguments else "the first of" not in page
    assert "Gangs on nodes: fcfs" in page


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(command, tmp_path):
    result = command("simulate", "generate", "--gangs", "5", "--report", tmp_path / "nowhere" / "report.html")
    assert result.code == 2
    assert "there is no directory" in result.err
    assert result.out == ""


def test_an_unknown_profile_is_refused(command):
    result = command("simulate", "generate", "--gangs", "5", "--profile", "foo")
    assert result.code == 2
    assert "there is no profile 'foo'" in result.err


def test_examples_of_the_help_name_arguments_that_policies_take(command, trace):
    policies = set(re.findall(r"--policy (\S+:\S+)", "".join(examples for _, examples in COMMANDS)))
    assert policies
    for policy in sorted(policies):
        assert command("simulate", "swf", trace, "--policy", policy, "-o", "json").code == 0


def test_a_cluster_of_manifests_runs_until_its_gangs_have_finished(command, cluster):
    result = command("simulate", "manifests", cluster, "--now", NOW, "--runtime", "90", "-o", "json")
    assert result.code == 0
    told = result.data["policies"][0]
    assert (told["gangs"], told["unfinished"], told["makespan"]) == (1, 0, 90)


@pytest.fixture
def crowded(tmp_path):
    """Gangs that are there from the start: two that run, one above the limit of its queue, one with a large pod."""
    file = tmp_path / "crowded.yaml"
    file.write_text(
        manifests(
            node("n1"),
            queue("small", '{limit: {cpu: "2"}}'),
            group("first", "{minMember: 1, expectedRuntimeSeconds: 100}"),
            pod("first-0", "first", cpu="8"),
            group("second", "{minMember: 1, expectedRuntimeSeconds: 300}"),
            pod("second-0", "second", cpu="4"),
            group("limited", "{minMember: 1, queue: small}"),
            pod("limited-0", "limited"),
            group("huge", "{minMember: 1}"),
            pod("huge-0", "huge", cpu="16"),
        )
    )
    return file


def test_utilisation_of_gangs_that_are_there_from_the_start_is_a_mean_until_the_last_end(command, crowded):
    result = command("simulate", "manifests", crowded, "--now", NOW)
    assert "CPUs used*" in result.out
    assert re.search(r"CPUs used\* +62\.5%", result.out)  # 8 of 8 CPUs for 100 s, then 4 for 300 s
    assert "* Mean from the first arrival to the last end" in result.out
    told = command("simulate", "manifests", crowded, "--now", NOW, "-o", "json").data["policies"][0]
    assert told["utilisation"]["cpu"] == 0.625
    assert told["utilisationSeconds"] == told["makespan"] == 400


def test_gangs_that_never_finish_are_named_with_the_reason_that_decide_gives(command, crowded):
    refusals = command("decide", crowded, "--now", NOW, "-o", "json").data["refusals"]
    reasons = {refusal["podGroup"]: refusal["reason"] for refusal in refusals}
    table = command("simulate", "manifests", crowded, "--now", NOW, "--policy", "fcfs", "--policy", "sjf").out
    assert "2 gangs did not finish" in table
    told = command("simulate", "manifests", crowded, "--now", NOW, "-o", "json").data["policies"][0]
    named = {gang["podGroup"]: gang["reason"] for gang in told["unfinishedGangs"]}
    assert named == {name: reasons[name] for name in ("team-a/huge", "team-a/limited")}
    for name, reason in named.items():
        assert re.search(rf"^{name} +{reason} +all +\S", table, re.MULTILINE)
    assert "cpu" in told["unfinishedGangs"][0]["message"]


def test_policies_that_selection_by_weight_does_not_read_cause_a_warning(command, cluster):
    result = command("simulate", "manifests", cluster, "--now", NOW, "--policy", "fcfs", "--policy", "sjf")
    assert "warning: policies fcfs, sjf differ only in profile.policy" in result.err


def test_a_run_without_unfinished_gangs_names_none(command, cluster):
    result = command("simulate", "manifests", cluster, "--now", NOW, "--runtime", "90")
    assert "did not finish" not in result.out


def test_recorded_session_states_the_profile_of_its_simulation(command, crowded, tmp_path):
    config = tmp_path / "batchsched.yaml"
    config.write_text(
        "apiVersion: config.batchsched.dev/v1alpha1\nkind: BatchSchedulerConfiguration\n"
        "profiles: [{schedulerName: batchsched, policy: {name: sjf}}]\n"
    )
    session = tmp_path / "session.json.gz"
    assert command("record", crowded, "--config", config, "--to", session, "--now", NOW).code == 0
    simulated = command("simulate", "manifests", session, "-o", "json")
    assert simulated.data["policies"][0]["policy"] == "sjf"
    other = command("simulate", "manifests", session, "--profile", "batchsched", "-o", "json")
    assert other.data["policies"][0]["policy"] != "sjf"

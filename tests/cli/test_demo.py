import re
from pathlib import Path

import pytest

from batchsched.cli.demo import DEMO_POLICIES, GANGS, SEED, demo, describe_load, generator_settings
from batchsched.simulator.generator import generate_workload

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
DESCRIPTION = "simulates a day under four policies"


@pytest.fixture
def shown(command, tmp_path):
    report = tmp_path / "demo-report.html"
    return command("demo", "--gangs", 60, "--report", report), report


def test_demo_explains_a_session_runs_a_day_and_says_where_the_report_is(shown):
    result, report = shown
    assert result.code == 0
    for said in (
        "research/bert",
        "research/long-context",
        "racks have 2; would help: require the level block",
        "EASY",
        "Mean wait",
        "headroom instead of SJF",
    ):
        assert said in result.out
    assert result.out.rstrip().endswith(f"Report: {report}")


def test_demo_prints_no_warning_about_files_of_the_examples(shown):
    assert "warning" not in shown[0].err


def test_demo_report_compares_every_contender(shown):
    page = shown[1].read_text("utf-8")
    assert all(contender.name in page and contender.description in page for contender in DEMO_POLICIES)
    assert "headroom instead of EASY" in page
    assert page.count("* plotly.js v") == 1


def test_demo_fits_a_terminal_of_80_columns_except_for_paths_commands_and_the_table_of_gangs(shown):
    lines = [
        line
        for line in shown[0].out.splitlines()
        if not any(word in line for word in ("Report: ", "batchsched explain", " Placed ", " Refused "))
    ]
    assert max(map(len, lines)) <= 80


def test_demo_day_is_a_day_on_64_nodes_of_8_gpus():
    workload = generate_workload(generator_settings(GANGS), SEED)
    hours = (workload.arrivals[-1].time - workload.arrivals[0].time) / 3600
    assert len(workload.cluster.nodes) == 64
    assert hours == pytest.approx(24, abs=1)


def test_no_policy_of_the_demo_evicts_pods():
    """The policies differ in the order of gangs only, and first come, first served means just that."""
    for contender in DEMO_POLICIES:
        assert [plugin.name for plugin in contender.profile.plugins.post_filter.disabled] == ["*"]


@pytest.mark.parametrize("gangs, enough", [(100, True), (GANGS, False)], ids=["few gangs", "default"])
def test_demo_says_whether_the_cluster_has_enough_gpus_for_all_gangs_at_once(gangs, enough):
    text = describe_load(generate_workload(generator_settings(gangs), SEED))
    (peak,) = re.findall(r"up to ([\d,]+) GPUs at a time; the cluster has 512", text)
    assert (int(peak.replace(",", "")) <= 512) is enough
    assert ("makes no difference" in text) is enough


@pytest.mark.slow
def test_readme_shows_the_table_and_the_trade_offs_that_the_demo_prints(command, tmp_path):
    out = command("demo", "--report", tmp_path / "report.html").out
    table, sentences = out.partition("3. Side by side")[2].split("A wait lasts")
    printed = [re.split(r" {2,}", line.strip()) for line in table.splitlines() if re.match(r" \w", line)]
    readme = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in README.splitlines()
        if re.match(r"\| (\w+ (wait|bounded slowdown)|GPUs used|Makespan)", line)
    ]
    assert readme == [row for row in printed if row[0] != "Gangs done"]
    assert f"| | {' | '.join(contender.name for contender in DEMO_POLICIES)} |" in README
    trade_off_sentences = re.findall(
        r"\w+ instead of [^.]*(?:\.\d[^.]*)*\.(?= |\n)", " ".join(README.split())
    )
    assert len(trade_off_sentences) == 2
    assert all(sentence in " ".join(sentences.split()) for sentence in trade_off_sentences)


@pytest.mark.parametrize("file", ["README.md", "docs/index.md"])
def test_pages_describe_the_demo_as_its_help_does(file):
    assert demo.__doc__ is not None
    description = re.sub(r"simulate\b", "simulates", demo.__doc__)
    assert DESCRIPTION in description
    assert DESCRIPTION in " ".join((ROOT / file).read_text("utf-8").split())


def test_makefile_describes_the_demo_as_its_help_does():
    assert DESCRIPTION.replace("simulates", "simulate") in (ROOT / "Makefile").read_text("utf-8")


def test_demo_without_examples_says_what_to_install(command, tmp_path, monkeypatch):
    monkeypatch.setattr("batchsched.service.installation._PACKAGE", tmp_path / "site" / "batchsched")
    result = command("demo")
    assert result.code == 1
    assert "came without examples/; install it from its wheel or its repository" in result.err


def test_demo_takes_other_manifests(command, cluster, tmp_path):
    result = command("demo", "--gangs", 20, "--examples", cluster, "--report", tmp_path / "report.html")
    assert result.code == 0
    assert "team-a/good" in result.out

import pytest

from batchsched.cli import run_command
from batchsched.cli.demo import DEMO_POLICIES, GANGS, SEED, generator_settings
from batchsched.simulator.generator import generate_workload


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
        "FIFO-greedy",
        "Mean wait",
    ):
        assert said in result.out
    assert result.out.rstrip().endswith(f"Report: {report}")


def test_demo_report_compares_every_contender(shown):
    page = shown[1].read_text("utf-8")
    assert all(contender.name in page and contender.description in page for contender in DEMO_POLICIES)
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


def test_demo_without_examples_says_how_to_name_them(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "batchsched.cli.demo.__file__", str(tmp_path / "site" / "batchsched" / "cli" / "demo.py")
    )
    assert run_command(["demo"]) == 2
    assert "--examples" in capfd.readouterr().err


def test_demo_takes_other_manifests(command, cluster, tmp_path):
    result = command("demo", "--gangs", 20, "--examples", cluster, "--report", tmp_path / "report.html")
    assert result.code == 0
    assert "team-a/good" in result.out

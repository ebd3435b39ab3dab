"""The page on troubleshooting shows what the commands print over `troubleshooting.yaml`, and texts that exist."""

import re
from pathlib import Path

import pytest

from batchsched import decide, explain, read, refusal_text
from batchsched.cli import run_command
from batchsched.cli.options import parse_time

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
CLUSTER = str(Path(__file__).with_name("troubleshooting.yaml"))
NOW = "2026-01-05T09:00:00Z"
SOURCES = "\n".join(file.read_text("utf-8") for file in sorted((ROOT / "batchsched").rglob("*.py")))


def shown_after(command: str) -> list[str]:
    """Return the lines that the page shows below a command."""
    found = re.search(rf"^\$ {re.escape(command)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found, command
    return found[1].splitlines()


@pytest.fixture
def printed(capfd, monkeypatch):
    """Return a function that runs a command over the cluster of the page and returns what it prints."""
    monkeypatch.delenv("COLUMNS", raising=False)  # lines are not wrapped for a file

    def run(*arguments: str) -> str:
        run_command([*arguments, "--now", NOW])
        return str(capfd.readouterr().out)

    return run


def test_explanation_of_the_page_is_that_of_the_command(printed):
    shown = shown_after("batchsched explain podgroup/t5 -n team-a")
    assert printed("explain", CLUSTER, "podgroup/t5", "-n", "team-a").splitlines() == shown


def test_conditions_of_the_page_have_the_texts_of_explained_refusals():
    cluster = read(CLUSTER, now=parse_time(NOW))
    decision = decide(cluster.snapshot, cluster.profile, cluster.now, cluster.seed)
    refusals = {refusal.pod_group: refusal for refusal in explain(cluster, decision).refusals}
    shown = shown_after("batchsched get podgroups -n team-a -o wide")
    conditions = {row.split()[0]: re.split(r"  +", row)[-1] for row in shown[1:]}
    assert conditions.pop("bert").startswith("Scheduled: ")
    # The condition of a gang that lacks pods is written before a session refuses the gang.
    assert conditions.pop("late").startswith(f"{refusals.pop('team-a/late').reason}: ")
    assert conditions == {
        key.removeprefix("team-a/"): f"{refusal.reason}: {refusal_text(refusal)}"
        for key, refusal in refusals.items()
    }


def test_texts_of_logs_that_the_page_quotes_exist():
    quoted = re.findall(r"^- \*\*`(.*?)`\*\*", PAGE, re.MULTILINE)
    assert len(quoted) >= 4
    for text in quoted:
        parts = [part.strip() for part in text.split("…") if part.strip(" }{:")]
        assert [part for part in parts if part not in SOURCES] == []

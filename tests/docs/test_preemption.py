"""The example of the page on preemption prints what the page shows."""

import re
from pathlib import Path

from batchsched.cli import run_command

PAGE = (Path(__file__).parents[2] / "docs/preemption.md").read_text("utf-8")


def test_commands_of_the_example_print_what_the_page_shows(tmp_path, capfd, monkeypatch):
    (manifests,) = re.findall(r'^```yaml title="preemption.yaml"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "preemption.yaml").write_text(manifests, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # lines are not wrapped for a file
    (console,) = re.findall(
        r"^```console\n(\$ batchsched decide preemption.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    examples = re.findall(r"^\$ batchsched (.*)\n((?:(?!\$ ).*\n)*)", console, re.MULTILINE)
    assert len(examples) == 2
    for command, shown in examples:
        assert run_command([*command.split(), "--now", "2026-01-05T09:00:00Z"]) == 0
        assert capfd.readouterr().out == shown

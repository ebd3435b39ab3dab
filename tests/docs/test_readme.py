"""The commands of README print what it shows, and its links lead somewhere."""

import re
from pathlib import Path

from batchsched.cli import run_command

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_job_of_the_readme_is_refused_with_the_explanation_that_it_shows(tmp_path, capfd, monkeypatch):
    manifest, command, shown = re.findall(
        r"^\$ cat > job\.yaml <<'END'\n(.*?)^END\n\$ \.venv/bin/batchsched (.*?)\n```\n\n```text\n(.*?)```",
        README,
        re.MULTILINE | re.DOTALL,
    )[0]
    (tmp_path / "job.yaml").write_text(manifest, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # lines are not wrapped for a file
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert run_command(command.split()) == 0
    assert capfd.readouterr().out == shown


def test_every_link_and_picture_of_the_readme_exists():
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README)
    assert len(targets) > 30
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_page_of_contents_links_instead_of_naming_paths():
    table = README.partition("\n## Documentation\n")[2]
    assert re.findall(r"`[\w/]+\.md`", table) == []

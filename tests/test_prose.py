"""The prose check of docs/prose.py: what it finds, and what it passes."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("prose", Path(__file__).parent.parent / "docs/prose.py")
assert SPEC
assert SPEC.loader
prose = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(prose)


def words(path: Path, text: str) -> list[str]:
    path.write_text(text, "utf-8")
    return [f"{line} {finding.partition(' (')[0]}" for line, finding in prose.findings(path)]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("A pod that nobody\nhas bound.\n\nIt hangs\non the Lease.\n", ["1 nobody", "4 hangs on"]),
        ('The user who reads `whose` and ``nobody`` and the word "whom".\n', []),
        ("```\nnobody\n```\nwho\n", ["4 who"]),
        ("`nodes` stands for the nodes; the table stands in memory.\n", ["1 stands"]),
        ("See [the page](nobody.md) and the standby.\n", []),
    ],
)
def test_pages_are_checked_outside_code(tmp_path, text, expected):
    assert words(tmp_path / "page.md", text) == expected


def test_docstrings_comments_and_messages_are_checked_and_names_are_not(tmp_path):
    source = (
        '"""A module that\nnobody reads."""\n'
        "whose = 1  # noqa: F841\n"
        "# anew\n"
        'raise ValueError(f"{whose} pods of somebody are bound")\n'
        'kind = "nobody"\n'
    )
    assert words(tmp_path / "module.py", source) == ["2 nobody", "4 anew", "5 somebody"]


def test_a_sentence_of_more_than_35_words_is_reported(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Short. " + "word " * 36 + ".\n\n" + "- a list of words\n" * 40, "utf-8")
    assert [line for line, _ in prose.long_sentences(page)] == [1]

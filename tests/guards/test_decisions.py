"""No recorded decision changes: more than 800 sessions over random clusters and bench instances."""

from pathlib import Path

import pytest

from tests.guards import cases, digests

RECORDED = Path(__file__).with_name("decisions.txt")
SHOWN = 5


def recorded(family: str) -> dict[str, str]:
    """Return the recorded lines of a family, by the name of the case."""
    lines, current = {}, ""
    for line in RECORDED.read_text().splitlines():
        if line.startswith("# "):
            current = line[2:]
        elif current == family:
            lines[line.split(" ", 1)[0]] = line
    return lines


@pytest.mark.parametrize("family", cases.families())
def test_decisions_are_those_that_were_recorded(family: str):
    expected = recorded(family)
    differing, names = [], []
    for case, decision in cases.families()[family]():
        names.append(case.name)
        line = digests.line(case, decision)
        if line != expected.get(case.name):
            differing.append(f"recorded: {expected.get(case.name)}\n     now: {line}")
    assert names == list(expected) or differing
    shown = "\n".join(differing[:SHOWN])
    assert not differing, (
        f"{len(differing)} of {len(names)} decisions differ, the first:\n{shown}\n"
        "`python -m tests.guards show NAME` prints the input and the decision of a case here and at the "
        "last good commit; `python -m tests.guards record` records what is decided now."
    )


def test_every_family_is_recorded():
    heads = [line[2:] for line in RECORDED.read_text().splitlines() if line.startswith("# ")]
    assert heads == list(cases.families())

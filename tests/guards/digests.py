"""Digests of decisions: one line a decision, so that a comparison names the cases that differ."""

import hashlib
import json
import re
from typing import Any, Final

from batchsched.api.decision import Decision, to_json
from tests.guards.cases import Case

DIGITS: Final = 12
"""Hexadecimal digits of a digest."""
SIGNIFICANT: Final = 10
"""Digits to which the solver's objectives and bounds are compared: another order of summation changes the last ones."""
PROSE: Final = ("message", "relaxation")
"""Fields that hold sentences. Their figures have a digest of their own, so that sentences can be rewritten."""
COUNTED: Final = {
    "assignments": "a",
    "evictions": "e",
    "refusals": "r",
    "reservations": "v",
    "nominations": "n",
    "waiting": "w",
    "setAside": "s",
}


def line(case: Case, decision: Decision) -> str:
    """Return a case's line: its name, how many there are of each part, the decision's digest, the sentences' digest."""
    content = json.loads(to_json(decision))
    counts = ",".join(
        f"{letter}{len(content[part])}" for part, letter in COUNTED.items() if content.get(part)
    )
    return f"{case.name} {counts or '-'} {digest(structure(content))} {digest(figures(content))}"


def digest(value: Any) -> str:
    """Return the digest of a plain value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def structure(value: Any) -> Any:
    """Return the decision without its sentences: whether there is one is left."""
    if isinstance(value, dict):
        return {
            name: bool(part) if name in PROSE else structure(part)
            for name, part in value.items()
            if name not in ("seconds", "stages")
        }
    if isinstance(value, list):
        return [structure(part) for part in value]
    return float(f"{value:.{SIGNIFICANT}g}") if isinstance(value, float) else value


def figures(value: Any) -> list[str]:
    """Return the figures and the names with figures that the sentences hold, sorted in each sentence."""
    if isinstance(value, dict):
        found = []
        for name, part in value.items():
            if name in PROSE:
                words = re.findall(r"[\w./-]*\d[\w./-]*", part)
                found.append(" ".join(sorted(word.strip(".,/-") for word in words)))
            else:
                found += figures(part)
        return found
    return [text for part in value for text in figures(part)] if isinstance(value, list) else []

"""The public surface is the one that was recorded, line by line."""

import difflib
from pathlib import Path

from tests.guards import surface

RECORDED = Path(__file__).with_name("surface.txt")


def test_public_surface_is_the_recorded_one():
    recorded, present = RECORDED.read_text().splitlines(), surface.text().splitlines()
    changes = difflib.unified_diff(recorded, present, "recorded", "now", lineterm="", n=0)
    difference = "\n".join(changes)
    assert not difference, f"{difference}\n`python -m tests.guards record surface` records what there is now."

"""Pictures of concepts: what they state, and that a page needs no network for them."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from docs.generate.diagrams import queue_tree, session

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("draw", [queue_tree, session])
def test_picture_is_well_formed_and_refers_to_nothing_outside(draw):
    picture = draw()
    assert ET.fromstring(picture).tag.endswith("svg")
    assert re.findall(r"(?:href|src)=|url\((?!#)|<script", picture) == []


def test_queue_tree_shows_the_fair_shares_of_the_page():
    page = (ROOT / "docs/queues.md").read_text("utf-8")
    stated = re.findall(r"(\d+) for `(\w+)`", page.partition("The fair shares are")[2].partition("\n\n")[0])
    assert len(stated) == 4
    shown = " ".join(re.findall(r">([^<>]+)</text>", queue_tree()))
    for share, queue in stated:
        assert re.search(rf"\b{queue} (?:(?!fair share).)*fair share {share}\b", shown)

"""Pictures of concepts: what they state, and that a page needs no network for them."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from batchsched.api import gang
from batchsched.framework.runtime.result_validation import POINTS
from batchsched.scheduling_queue import entity
from docs.generate import diagrams
from docs.generate.boxes import Arrow, Box, draw
from docs.generate.diagrams import extension_points, gang_phases, queue_states, queue_tree, session, workload

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("draw", [queue_tree, session, workload, gang_phases, queue_states, extension_points])
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


def texts(picture):
    return re.findall(r">([^<>]+)</text>", picture)


def drawn_arrows(monkeypatch, picture):
    """Return start, label and end of the arrows of a picture."""
    found = []

    def draw_nothing(title, boxes, arrows, grid):
        found.extend(arrows)
        return ""

    monkeypatch.setattr(diagrams, "draw", draw_nothing)
    picture()
    return {(arrow.start, arrow.label, arrow.end) for arrow in found}


def test_phases_of_a_gang_have_an_arrow_for_each_change(monkeypatch):
    changes = {(start.value, change.value, end.value) for (start, change), end in gang.MOVES.items()}
    assert drawn_arrows(monkeypatch, gang_phases) == changes | {("start", "", "Pending")}


def test_states_of_the_queue_have_an_arrow_for_each_move_inside_the_queue(monkeypatch):
    gone = entity.QueueState.GONE
    moves = {(start, "", end) for start, end in entity.MOVES if end is not gone}
    assert drawn_arrows(monkeypatch, queue_states) == moves | {(entity.QueueState.IN_FLIGHT, "", gone)}


def test_picture_of_extension_points_has_every_point():
    assert set(POINTS) <= set(texts(extension_points()))


def test_arrow_ends_at_the_borders_of_its_boxes():
    picture = draw("two", (Box("a", ("a",), 0, 0), Box("b", ("b",), 1, 0)), [Arrow("a", "b", "next")])
    boxes = [float(x) for x in re.findall(r'<rect x="([\d.]+)"', picture)]
    (start, end) = re.findall(r'd="M([\d.]+) \S+ Q\S+ \S+ ([\d.]+)', picture)[0]
    assert (float(start), float(end)) == (boxes[0] + 170, boxes[1])
    assert texts(picture) == ["a", "b", "next"]

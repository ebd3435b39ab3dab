"""Pictures of concepts as SVG, drawn from text: they need no script and no network, unlike Mermaid diagrams."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LINE_HEIGHT, PADDING = 170, 18, 12
COLUMN_GAP, ROW_GAP = 26, 44


@dataclass(frozen=True)
class Box:
    """A box of a picture: its lines, the first one bold, and its position in columns and rows."""

    name: str
    lines: tuple[str, ...]
    column: float
    row: int

    @property
    def x(self) -> float:
        return PADDING + self.column * (WIDTH + COLUMN_GAP)

    def y(self, height: float) -> float:
        return PADDING + self.row * (height + ROW_GAP)


def draw(title: str, boxes: Sequence[Box], arrows: Iterable[tuple[str, str]]) -> str:
    """Draw boxes of equal size, and arrows between boxes: down to another row, or to the right in one row."""
    height = LINE_HEIGHT * max(len(box.lines) for box in boxes) + 2 * PADDING
    by_name = {box.name: box for box in boxes}
    parts = [
        f'<rect x="{box.x:g}" y="{box.y(height):g}" width="{WIDTH}" height="{height}" rx="6" fill="#e8eaf6" stroke="#3f51b5"/>'
        for box in boxes
    ]
    for box in boxes:
        first = box.y(height) + height / 2 - LINE_HEIGHT * (len(box.lines) - 1) / 2 + 5
        for number, line in enumerate(box.lines):
            weight = ' font-weight="bold"' if number == 0 else ""
            parts.append(
                f'<text x="{box.x + WIDTH / 2:g}" y="{first + number * LINE_HEIGHT:g}"{weight}>{escape(line)}</text>'
            )
    for start, end in arrows:
        parts.append(_arrow(by_name[start], by_name[end], height))
    width = max(box.x for box in boxes) + WIDTH + PADDING
    total = max(box.y(height) for box in boxes) + height + PADDING
    return "\n".join(
        (
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {total:g}" width="{width:g}" role="img" '
                'font-family="sans-serif" font-size="13" text-anchor="middle" fill="#1a237e">'
            ),
            f"<title>{escape(title)}</title>",
            f'<rect width="{width:g}" height="{total:g}" fill="#ffffff"/>',
            (
                '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
                '<path d="M0 0 8 4 0 8z" fill="#3f51b5"/></marker></defs>'
            ),
            *parts,
            "</svg>",
        )
    )


def _arrow(start: Box, end: Box, height: float) -> str:
    if start.row == end.row:
        x1, y1 = start.x + WIDTH, start.y(height) + height / 2
        x2, y2 = end.x, y1
    else:
        x1, y1 = start.x + WIDTH / 2, start.y(height) + height
        x2, y2 = end.x + WIDTH / 2, end.y(height)
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#3f51b5" stroke-width="1.5" '
        'marker-end="url(#head)"/>'
    )


def queue_tree() -> str:
    """The tree of queues of docs/queues.md, with the fair shares of its example."""
    boxes = (
        Box("cluster", ("cluster", "96 GPUs"), 1.5, 0),
        Box("research", ("research", "guarantee 48, weight 2", "fair share 60"), 0.5, 1),
        Box("product", ("product", "guarantee 24, limit 40", "fair share 30"), 1.5, 1),
        Box("students", ("students", "no guarantee", "fair share 6"), 2.5, 1),
        Box("vision", ("vision", "no guarantee", "fair share 52"), 0, 2),
        Box("language", ("language", "guarantee 16, lends 8", "fair share 8"), 1, 2),
    )
    arrows = (
        ("cluster", "research"),
        ("cluster", "product"),
        ("cluster", "students"),
        ("research", "vision"),
        ("research", "language"),
    )
    return draw("A tree of queues with guarantees and fair shares", boxes, arrows)


def session() -> str:
    """The steps of a session, from the objects of a cluster to the decision."""
    steps = (
        ("snapshot", ("Snapshot", "nodes, pods,", "PodGroups, queues")),
        ("queues", ("Queues", "fair shares give", "the order of gangs")),
        ("plugins", ("Plugins", "filter and score", "nodes for each gang")),
        ("solver", ("Solver", "chooses nodes", "for all gangs together")),
        ("decision", ("Decision", "pods to bind, evictions,", "explained refusals")),
    )
    boxes = tuple(Box(name, lines, number, 0) for number, (name, lines) in enumerate(steps))
    arrows = [(start.name, end.name) for start, end in itertools.pairwise(boxes)]
    return draw("What a session does", boxes, arrows)

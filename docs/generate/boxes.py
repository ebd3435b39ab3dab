"""Boxes and arrows as SVG: a page with such a picture needs no script and no network."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import hypot

LINE_HEIGHT, PADDING = 18, 12
LABEL_SIZE = 12


@dataclass(frozen=True)
class Box:
    """A box of a picture: its lines, the first one bold, and its position in columns and rows.

    Args:
      round: Draw a dot without text, as for the beginning and the end of a diagram of states.
    """

    name: str
    lines: tuple[str, ...]
    column: float
    row: float
    round: bool = False


@dataclass(frozen=True)
class Arrow:
    """An arrow between two boxes, or from a box to itself.

    Args:
      bend: Distance between the middle of the arrow and a straight line, to the left of its direction. An arrow from
        a box to itself is above the box, or below it if this is negative.
      at: Position of the label: 0 is the start of the arrow and 1 its end.
    """

    start: str
    end: str
    label: str = ""
    bend: float = 0
    at: float = 0.5
    dashed: bool = False


@dataclass(frozen=True)
class Grid:
    """The width of the boxes, and the gaps between columns and rows."""

    width: float = 170
    column_gap: float = 26
    row_gap: float = 44
    margin: float = PADDING


@dataclass(frozen=True)
class _Place:
    """The centre and half of the size of a box, in pixels."""

    x: float
    y: float
    half_width: float
    half_height: float

    def border(self, x: float, y: float) -> tuple[float, float]:
        """Return the point of the border in the direction of another point."""
        dx, dy = x - self.x, y - self.y
        scale = 1 / max(abs(dx) / self.half_width, abs(dy) / self.half_height)
        return self.x + dx * scale, self.y + dy * scale


def draw(title: str, boxes: Sequence[Box], arrows: Iterable[Arrow], grid: Grid = Grid()) -> str:
    """Draw boxes of equal size in a grid, and arrows between them with labels."""
    height = LINE_HEIGHT * max(len(box.lines) for box in boxes) + 2 * PADDING
    places = {box.name: _place(box, height, grid) for box in boxes}
    parts = [part for box in boxes for part in _box(box, places[box.name])]
    labels = []
    for arrow in arrows:
        path, label = _arrow(arrow, places)
        parts.append(path)
        labels.append(label)
    width = max(place.x + place.half_width for place in places.values()) + grid.margin
    total = max(place.y + place.half_height for place in places.values()) + grid.margin
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
            *filter(None, labels),
            "</svg>",
        )
    )


def _place(box: Box, height: float, grid: Grid) -> _Place:
    x = grid.margin + box.column * (grid.width + grid.column_gap) + grid.width / 2
    y = grid.margin + box.row * (height + grid.row_gap) + height / 2
    return _Place(x, y, 8, 8) if box.round else _Place(x, y, grid.width / 2, height / 2)


def _box(box: Box, place: _Place) -> list[str]:
    if box.round:
        return [f'<circle cx="{place.x:g}" cy="{place.y:g}" r="{place.half_width:g}" fill="#3f51b5"/>']
    left, top = place.x - place.half_width, place.y - place.half_height
    size = f'width="{2 * place.half_width:g}" height="{2 * place.half_height:g}"'
    parts = [f'<rect x="{left:g}" y="{top:g}" {size} rx="6" fill="#e8eaf6" stroke="#3f51b5"/>']
    first = place.y - LINE_HEIGHT * (len(box.lines) - 1) / 2 + 5
    for number, line in enumerate(box.lines):
        weight = ' font-weight="bold"' if number == 0 else ""
        parts.append(
            f'<text x="{place.x:g}" y="{first + number * LINE_HEIGHT:g}"{weight}>{escape(line)}</text>'
        )
    return parts


def _arrow(arrow: Arrow, places: dict[str, _Place]) -> tuple[str, str]:
    """Return the line of an arrow, and its label or no text."""
    start, end = places[arrow.start], places[arrow.end]
    if start == end:
        side = 1 if arrow.bend < 0 else -1
        x, y, far = start.x, start.y + side * start.half_height, start.y + side * (start.half_height + 40)
        loop = f"M{x - 18:g} {y:g} C{x - 24:g} {far:g} {x + 24:g} {far:g} {x + 18:g} {y:g}"
        return _path(loop, arrow), _label(arrow, x, far - side * 8)
    # The control point of a quadratic curve is twice as far away as the middle of the curve.
    length = hypot(end.x - start.x, end.y - start.y)
    control_x = (start.x + end.x) / 2 + 2 * arrow.bend * (end.y - start.y) / length
    control_y = (start.y + end.y) / 2 - 2 * arrow.bend * (end.x - start.x) / length
    x1, y1 = start.border(control_x, control_y)
    x2, y2 = end.border(control_x, control_y)
    curve = f"M{x1:g} {y1:g} Q{control_x:g} {control_y:g} {x2:g} {y2:g}"
    rest = 1 - arrow.at
    x = rest * rest * x1 + 2 * rest * arrow.at * control_x + arrow.at * arrow.at * x2
    y = rest * rest * y1 + 2 * rest * arrow.at * control_y + arrow.at * arrow.at * y2
    return _path(curve, arrow), _label(arrow, x, y)


def _path(steps: str, arrow: Arrow) -> str:
    dashes = ' stroke-dasharray="5 4"' if arrow.dashed else ""
    return (
        f'<path d="{steps}" fill="none" stroke="#3f51b5" stroke-width="1.5"{dashes} marker-end="url(#head)"/>'
    )


def _label(arrow: Arrow, x: float, y: float) -> str:
    """Return the label of an arrow over a white edge, which interrupts the line below the text."""
    if not arrow.label:
        return ""
    return (
        f'<text x="{x:g}" y="{y + 4:g}" font-size="{LABEL_SIZE}" stroke="#ffffff" stroke-width="6" '
        f'paint-order="stroke" stroke-linejoin="round">{escape(arrow.label)}</text>'
    )

"""A document: tables and figures in one HTML file that needs nothing else, not even a network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from plotly.offline import get_plotlyjs

from batchsched import __version__
from batchsched.lab.figure import Figure, frame
from batchsched.lab.theme import DARK, LIGHT

TEMPLATE: Final = "document.html.j2"


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure in a table; `note` stands below it, small, and `best` makes it bold."""

    text: str
    note: str = ""
    best: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Names against figures.

    Args:
      title: "" for none.
      head: of the first column.
      columns: of the others.
      lines: in their order.
      note: below the table.
    """

    title: str
    head: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    note: str


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that belong together."""

    title: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """What a page has, from its top to its bottom.

    Args:
      title: the heading.
      facts: what a reader has to know, as (label, text).
      tables: the figures in numbers.
      bars: small figures side by side, under a title of their own.
      sections: the others.
      links: to pages beside it, as (text, address); none where the page stands alone.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    bars: Section
    sections: tuple[Section, ...]
    links: tuple[tuple[str, str], ...] = ()

    def render(self) -> str:
        """Return the page; equal documents give equal bytes."""
        drawn = [figure for section in (self.bars, *self.sections) for figure in section.figures]
        page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        template = page.from_string(files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8"))
        return template.render(
            title=self.title,
            facts=(*self.facts, ("Version", f"batchsched {__version__}")),
            tables=self.tables,
            bars=self.bars,
            sections=self.sections,
            links=self.links,
            plotly=get_plotlyjs(),
            data=_json(
                {
                    "themes": {"light": LIGHT, "dark": DARK},
                    "frame": frame(),
                    "figures": {
                        figure.key: {
                            "data": figure.data,
                            "layout": {**figure.layout, "height": figure.height},
                        }
                        for figure in drawn
                    },
                }
            ),
        )


def filled(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Return the sections that have figures."""
    return tuple(section for section in sections if section.figures)


def _json(value: Any) -> str:
    """Write JSON that can stand in a script element: nothing in it can close the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")

"""Tables and figures in one self-contained HTML file that needs no network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from plotly.offline import get_plotlyjs

from batchsched import __version__
from batchsched.lab.figure import DARK, LIGHT, Figure, base_layout

TEMPLATE: Final = "document.html.j2"


@dataclass(frozen=True, slots=True)
class TableCell:
    """One cell of a table in a report: text, a note in small print, and whether the text is bold."""

    text: str
    note: str = ""
    best: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table in a report: its name, and its cells."""

    name: str
    cells: tuple[TableCell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report, with a label in the first column of each row.

    Args:
      title: The title, "" for none.
      head: The heading of the first column.
      columns: The headings of the other columns.
      lines: The rows, in order.
      note: Text below the table.
    """

    title: str
    head: str
    columns: tuple[str, ...]
    lines: tuple[TableRow, ...]
    note: str


@dataclass(frozen=True, slots=True)
class Section:
    """A group of figures of a report under one heading."""

    title: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """The content of an HTML report, from top to bottom.

    Args:
      title: The heading.
      facts: Facts about the runs, as (label, text).
      tables: The tables.
      bars: Small bar charts next to each other, under a heading of their own.
      sections: The other figures.
      links: Links to other pages, as (text, address).
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    bars: Section
    sections: tuple[Section, ...]
    links: tuple[tuple[str, str], ...] = ()

    def render(self) -> str:
        """Return the HTML of the report; equal documents give equal bytes."""
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
                    "frame": base_layout(),
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


def nonempty_sections(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Return the sections of a report that contain at least one figure."""
    return tuple(section for section in sections if section.figures)


def _json(value: Any) -> str:
    """Return JSON for a script element: it contains no text that could close the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")

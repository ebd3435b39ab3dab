"""Tables and figures in one self-contained HTML file that needs no network."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal

from jinja2 import Environment, StrictUndefined
from plotly.offline import get_plotlyjs

from batchsched import __version__
from batchsched.lab.conclusion import Conclusion
from batchsched.lab.figure import (
    DARK,
    LIGHT,
    PATTERNS,
    SERIES,
    Figure,
    base_layout,
    line_dash,
)
from batchsched.observability.http.html_page import content_security_policy

TEMPLATE: Final = "document.html.j2"
SCRIPT: Final = "document.js"
_IMAGES: Final = "data: blob:"
"""Sources of images: plotly.js saves a figure as a picture on the reader's machine."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A table cell in a report: its text, a note in small print, and a mark for better or worse values."""

    text: str
    note: str = ""
    outcome: Literal["", "better", "worse"] = ""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table in a report: the label in its first column, and its other cells."""

    name: str
    cells: tuple[TableCell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report; the first column contains the label of each row.

    Args:
      title: The title, "" for none.
      head: The heading of the first column.
      columns: The headings of the other columns.
      lines: The rows, in order.
      note: Text below the table.
      is_text: True if cells contain text, which wraps, and no numbers.
    """

    title: str
    head: str
    columns: tuple[str, ...]
    lines: tuple[TableRow, ...]
    note: str
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a report: a heading, and the figures below it.

    Args:
      title: The heading.
      figures: The figures.
      one_at_a_time: True if buttons select which figure is shown, so that figures can be compared in one place.
    """

    title: str
    figures: tuple[Figure, ...]
    one_at_a_time: bool = False


@dataclass(frozen=True, slots=True)
class LegendSection:
    """A part of a report's legend: the policies, the queues or the gang sizes, with their colors in figures.

    Args:
      title: What the names are, such as Policies.
      names: The names.
      kind: The family of colors: `policy` for policies; `queue` for queues and for gang sizes.
    """

    title: str
    names: tuple[str, ...]
    kind: Literal["policy", "queue"]

    def legend_entries(self) -> Iterator[Mapping[str, Any]]:
        """Yield a mapping for each name in the legend, with its color, line style and fill pattern."""
        for index, name in enumerate(self.names):
            yield {
                "name": name,
                "color": f"var(--{self.kind}{index % SERIES})",
                "dash": _DASH_ARRAYS.get(
                    line_dash(index), line_dash(index).replace("px", "").replace(",", " ")
                ),
                "pattern": PATTERN_PATHS[PATTERNS[index % SERIES]],
            }


_DASH_ARRAYS: Final = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3"}
PATTERN_PATHS: Final = {
    "": "",
    "/": "M-2 8 8-2M2 14 14 2M8 20 22 6M16 20 26 10M22 20 30 12",
    ".": "M3 4h.1M9 4h.1M15 4h.1M21 4h.1M6 9h.1M12 9h.1M18 9h.1",
    "\\": "M-4 4 8 16M0-2 16 14M8-2 24 14M16-2 32 14",
    "x": "M-2 8 8-2M2 14 14 2M8 20 22 6M16 20 26 10M-4 4 8 16M0-2 16 14M8-2 24 14M16-2 32 14",
    "-": "M0 3h26M0 7h26M0 11h26",
    "|": "M4 0v14M10 0v14M16 0v14M22 0v14",
    "+": "M4 0v14M11 0v14M18 0v14M0 4h26M0 9h26",
}
"""For each plotly pattern, the SVG path that draws it in a legend of 26 by 14 units."""


@dataclass(frozen=True, slots=True)
class ReportDocument:
    """The content of an HTML report, from top to bottom.

    Args:
      title: The heading.
      conclusion: What the report shows.
      tables: The tables of results.
      facts: Facts about the runs, as (label, text).
      definitions: The tables of what was run.
      legends: The colors of all figures.
      bars: Small bar charts next to each other, under a heading of their own.
      sections: The other figures.
      links: Links to other pages, as (text, address).
    """

    title: str
    conclusion: Conclusion
    tables: tuple[Table, ...]
    facts: tuple[tuple[str, str], ...]
    definitions: tuple[Table, ...]
    legends: tuple[LegendSection, ...]
    bars: Section
    sections: tuple[Section, ...]
    links: tuple[tuple[str, str], ...] = ()

    def render(self) -> str:
        """Return the report as an HTML page; equal documents give pages with equal bytes."""
        page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        folder = files(__package__)
        template = page.from_string(folder.joinpath(TEMPLATE).read_text(encoding="utf-8"))
        script = folder.joinpath(SCRIPT).read_text(encoding="utf-8")
        plotly, data = get_plotlyjs(), self._data()
        return template.render(
            title=self.title,
            conclusion=self.conclusion,
            tables=self.tables,
            facts=(*self.facts, ("Version", f"batchsched {__version__}")),
            definitions=self.definitions,
            legends=self.legends,
            bars=self.bars,
            sections=self.sections,
            links=self.links,
            themes={"light": LIGHT, "dark": DARK},
            policy=content_security_policy([plotly, script], _IMAGES),
            plotly=plotly,
            data=data,
            script=script,
        )

    def _data(self) -> str:
        drawn = [figure for section in (self.bars, *self.sections) for figure in section.figures]
        return _json(
            {
                "themes": {"light": LIGHT, "dark": DARK},
                "frame": base_layout(),
                "figures": {
                    figure.key: {
                        "data": figure.data,
                        "layout": {**figure.layout, "height": figure.height},
                        **({"whole": figure.whole_range} if figure.whole_range else {}),
                    }
                    for figure in drawn
                },
            }
        )


def nonempty_sections(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Return the sections of a report that contain at least one figure."""
    return tuple(section for section in sections if section.figures)


def _json(value: Any) -> str:
    """Return a value as JSON that is safe in a script element: no text in it can close the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")

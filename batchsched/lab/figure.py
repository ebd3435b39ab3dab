"""A figure of a report: data for plotly.js with a heading and a caption."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

MINUTE = 60.0
HOUR = 3600.0
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a report, drawn by plotly.js.

    Args:
      key: The identifier in the page, [a-z-]+.
      title: The heading.
      caption: What is drawn, in which units; also the text for screen readers.
      data: Plotly traces, with the color names of `LIGHT` and `DARK`.
      layout: Plotly layout in addition to `base_layout`.
      height: The height in pixels.
    """

    key: str
    title: str
    caption: str
    data: tuple[dict[str, Any], ...]
    layout: Mapping[str, Any]
    height: int = 380


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time for the axis of a figure, with its length in seconds."""

    name: str
    seconds: float


def time_unit(span: float) -> TimeUnit:
    """Return the unit for a time axis of `span` seconds: minutes, hours or days, whichever suits its length."""
    if span <= 2 * HOUR:
        return TimeUnit("minutes", MINUTE)
    return TimeUnit("hours", HOUR) if span <= 5 * DAY else TimeUnit("days", DAY)


def format_duration(seconds: float) -> str:
    """Format a duration as text: 0.4 s, 42 s, 3.5 min, 2.1 h, 12.0 d."""
    if seconds < MINUTE:
        return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{seconds:.0f} s"
    for name, size, top in (("min", MINUTE, HOUR), ("h", HOUR, 2 * DAY)):
        if seconds < top:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds / DAY:.1f} d"


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a plotly axis that has this title."""
    return {
        "title": {"text": title, "standoff": 12},
        "gridcolor": "$grid",
        "linecolor": "$grid",
        "zeroline": False,
        "automargin": True,
        "tickcolor": "$grid",
        **more,
    }


def base_layout() -> dict[str, Any]:
    """Return the plotly layout that all figures share: fonts, colors, margins, and a legend above the plot."""
    return {
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            "size": 13,
            "color": "$ink",
        },
        "paper_bgcolor": "$paper",
        "plot_bgcolor": "$paper",
        "margin": {"l": 64, "r": 24, "t": 44, "b": 56},
        "hoverlabel": {
            "bgcolor": "$paper",
            "bordercolor": "$muted",
            "font": {"color": "$ink"},
            "align": "left",
        },
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "$muted", "activecolor": "$ink"},
        "autosize": True,
    }


def time_axis(span: float, **more: Any) -> dict[str, Any]:
    """Return the settings of a plotly axis for `span` seconds since the start of the run."""
    unit = time_unit(span)
    return axis(f"time since start ({unit.name})", range=[0, span / unit.seconds], **more)


def round_significant(values: Iterable[float], digits: int = 5) -> list[float]:
    """Return values rounded to some significant digits, which keeps the HTML page small."""
    return [float(f"{value:.{digits}g}") for value in values]


# Ticks of a logarithmic time axis, in seconds.
_CLOCK = (
    (1.0, "1 s"),
    (10.0, "10 s"),
    (MINUTE, "1 min"),
    (10 * MINUTE, "10 min"),
    (HOUR, "1 h"),
    (6 * HOUR, "6 h"),
    (DAY, "1 d"),
    (7 * DAY, "7 d"),
    (30 * DAY, "30 d"),
    (300 * DAY, "300 d"),
)


def log_duration_axis(title: str) -> dict[str, Any]:
    """Return the settings of a logarithmic plotly axis of durations, with ticks at common durations."""
    return axis(
        title,
        type="log",
        tickmode="array",
        tickvals=[value for value, _ in _CLOCK],
        ticktext=[text for _, text in _CLOCK],
    )


LIGHT: Final = {
    "$paper": "#ffffff",
    "$ink": "#1b1f24",
    "$muted": "#57606a",
    "$grid": "#d8dee4",
    "$series0": "#0072b2",
    "$series1": "#d55e00",
    "$series2": "#00805f",
    "$series3": "#b4508c",
    "$series4": "#a67400",
    "$series5": "#5b4bb5",
    "$series6": "#6e7781",
    "$series7": "#3a9bd6",
}

DARK: Final = {
    "$paper": "#14181d",
    "$ink": "#e6edf3",
    "$muted": "#9da7b3",
    "$grid": "#333b44",
    "$series0": "#56b4e9",
    "$series1": "#f2874a",
    "$series2": "#2fc49a",
    "$series3": "#e093bf",
    "$series4": "#f0c541",
    "$series5": "#a79bf2",
    "$series6": "#a3adb8",
    "$series7": "#2f86c4",
}

SERIES: Final = 8
"""Number of series colors."""

DASHES: Final = ("solid", "dash", "dot", "dashdot", "16px,4px", "12px,3px,2px,3px", "6px,2px", "3px,3px")
"""Dashes for the lines, one for each color, so that no two lines look alike."""


def series_color(index: int) -> str:
    """Return the color name of the line or area with this number; colors repeat after the last one."""
    return f"$series{index % SERIES}"


def line_dash(index: int) -> str:
    """Return the plotly dash style of the line with this number; styles repeat after the last one."""
    return DASHES[index % len(DASHES)]

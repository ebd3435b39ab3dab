"""Figures of a report as data for plotly.js, and the colors, units and axes that all figures share.

Policies and queues have different families of colors. Policies are lines and plain bars; queues are areas and bars with
patterns. Readers with a color vision deficiency can distinguish all of them.

Source: Okabe and Ito, Color Universal Design, 2008, for the hues of policies; the lightness is changed until each has
a contrast of 3 with the background and the colors differ under protanopia, deuteranopia and tritanopia. Tol, Colour
Schemes, SRON/EPS/TN/09-002, scheme "muted", for queues.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
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
      policy: The policy that the figure is about, "" for all policies.
      whole_range: The range of the time axis that shows the whole run, if the figure at first shows only a part.
    """

    key: str
    title: str
    caption: str
    data: tuple[dict[str, Any], ...]
    layout: Mapping[str, Any]
    height: int = 380
    policy: str = ""
    whole_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time for the axis of a figure, with its symbol and its length in seconds."""

    name: str
    symbol: str
    seconds: float


_SECONDS: Final = TimeUnit("seconds", "s", 1.0)
_MINUTES: Final = TimeUnit("minutes", "min", MINUTE)
_HOURS: Final = TimeUnit("hours", "h", HOUR)
_DAYS: Final = TimeUnit("days", "d", DAY)


def time_unit(span: float) -> TimeUnit:
    """Return the unit of time that suits an axis of `span` seconds: minutes, hours or days."""
    if span <= 2 * HOUR:
        return _MINUTES
    return _HOURS if span <= 5 * DAY else _DAYS


def format_durations(seconds: Sequence[float]) -> tuple[str, ...]:
    """Format durations in one common unit, which suits the longest one, such as 8.56 h, 1.40 h, 0.74 h.

    All have the decimals of the longest one.

    Durations that have fewer than two significant digits with these decimals get more: 0.074 h.
    """
    longest = max(map(abs, seconds), default=0.0)
    unit = next((unit for unit in (_DAYS, _HOURS, _MINUTES) if longest >= 2 * unit.seconds), _SECONDS)
    decimals = _decimals(longest / unit.seconds, 3)
    amounts = (value / unit.seconds for value in seconds)
    return tuple(
        f"{amount:,.{max(decimals, _decimals(amount, 2))}f} {unit.symbol}" if amount else f"0 {unit.symbol}"
        for amount in amounts
    )


def format_number(value: float) -> str:
    """Format a number with three significant digits, but keep all digits before the decimal point: 1,371.

    Zeros at the end of the decimals are dropped: 72.3, 4, 0.74.
    """
    text = f"{value:,.{_decimals(value, 3)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_signed(text: str, value: float) -> str:
    """Prefix the text of an absolute value with the sign of `value`, unless the text reads as zero."""
    if not set(text) & set("123456789"):
        return text
    return f"-{text}" if value < 0 else f"+{text}"


def _decimals(value: float, digits: int) -> int:
    """Return how many decimals a number needs to show the given number of significant digits."""
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0


def format_duration(seconds: float) -> str:
    """Format a duration as text: 0.4 s, 42 s, 3.5 min, 2.1 h, 12.0 d."""
    if seconds < MINUTE:
        return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{seconds:.0f} s"
    for name, size, top in (("min", MINUTE, HOUR), ("h", HOUR, 2 * DAY)):
        if seconds < top:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds / DAY:.1f} d"


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a plotly axis: those that all figures share, the title, and `more` settings."""
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
    """Return the plotly layout that all figures share: fonts, colors and margins."""
    return {
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            "size": 13,
            "color": "$ink",
        },
        "paper_bgcolor": "$paper",
        "plot_bgcolor": "$paper",
        "margin": {"l": 64, "r": 16, "t": 32, "b": 56},
        "hoverlabel": {
            "bgcolor": "$paper",
            "bordercolor": "$muted",
            "font": {"color": "$ink"},
            "align": "left",
        },
        # One legend for the whole page is in the page itself.
        "showlegend": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "$muted", "activecolor": "$ink"},
        "autosize": True,
    }


def time_axis(span: float, **more: Any) -> dict[str, Any]:
    """Return the settings of a plotly axis for `span` seconds since the start of the run."""
    unit = time_unit(span)
    hover = {"hoverformat": ",.4~g", "unifiedhovertitle": {"text": f"%{{x}} {unit.symbol}"}}
    return axis(f"time since start ({unit.name})", range=[0, span / unit.seconds], **hover, **more)


def round_significant(values: Iterable[float], digits: int = 5) -> list[float]:
    """Round values to the given number of significant digits, to keep the HTML page small."""
    return [float(f"{value:.{digits}g}") for value in values]


# Ticks of a logarithmic time axis, in seconds: the common ones, and all.
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
_FINE_CLOCK = (
    *((float(value), f"{value} s") for value in (1, 2, 5, 10, 20, 30)),
    *((value * MINUTE, f"{value} min") for value in (1, 2, 5, 10, 20, 30)),
    *((value * HOUR, f"{value} h") for value in (1, 2, 3, 6, 12)),
    *((value * DAY, f"{value} d") for value in (1, 2, 4, 7, 14, 30, 60, 120, 300)),
)
MIN_TICKS: Final = 3
"""Minimum number of ticks of a logarithmic axis; fewer do not show the scale."""
Ticks = Sequence[tuple[float, str]]


def log_duration_axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    """Return the settings of a logarithmic plotly axis of durations, with ticks at common durations.

    Args:
      title: The title.
      values: What is drawn, in seconds.
    """
    return _log_axis(title, values, (_CLOCK, _FINE_CLOCK))


def log_factor_axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    """Return the settings of a logarithmic plotly axis for ratios such as slowdowns (ticks: 1×, 2×)."""
    decades = [10.0**power for power in range(8)]
    fine = [
        digit * decade for decade in decades for digit in (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
    ]
    scales = (decades, [value for value in fine if f"{value:g}"[0] in "125" and value % 1 == 0], fine)
    return _log_axis(title, values, [[(value, f"{value:,g}×") for value in scale] for scale in scales])


def _log_axis(title: str, values: Sequence[float], scales: Sequence[Ticks]) -> dict[str, Any]:
    """Return a logarithmic axis that covers the values, with the coarsest scale that gives enough ticks."""
    low, high = min(values, default=1.0), max(values, default=10.0)
    low, high = low / 1.15, max(high, low * 1.2) * 1.15
    shown = [[tick for tick in scale if low <= tick[0] <= high] for scale in scales]
    ticks = next((ticks for ticks in shown if len(ticks) >= MIN_TICKS), shown[-1])
    return axis(
        title,
        type="log",
        range=[round(math.log10(low), 4), round(math.log10(high), 4)],
        tickmode="array",
        tickvals=[value for value, _ in ticks],
        ticktext=[text for _, text in ticks],
    )


LIGHT: Final = {
    "$paper": "#ffffff",
    "$ink": "#1b1f24",
    "$muted": "#57606a",
    "$grid": "#d8dee4",
    "$policy0": "#0090e0",
    "$policy1": "#d55e00",
    "$policy2": "#00664a",
    "$policy3": "#cc7aa8",
    "$policy4": "#3d2a00",
    "$policy5": "#093248",
    "$policy6": "#1f1f1f",
    "$policy7": "#5e5908",
    "$queue0": "#cc6677",
    "$queue1": "#332288",
    "$queue2": "#999933",
    "$queue3": "#882255",
    "$queue4": "#117733",
    "$queue5": "#aa4499",
    "$queue6": "#44aa99",
    "$queue7": "#88ccee",
    "$pattern": "#ffffff",
}

DARK: Final = {
    "$paper": "#14181d",
    "$ink": "#e6edf3",
    "$muted": "#9da7b3",
    "$grid": "#333b44",
    "$policy0": "#009df5",
    "$policy1": "#f2874a",
    "$policy2": "#0affbc",
    "$policy3": "#cc7aa8",
    "$policy4": "#ffc033",
    "$policy5": "#c9e7f8",
    "$policy6": "#6e6e6e",
    "$policy7": "#f6ef8e",
    "$queue0": "#cc6677",
    "$queue1": "#ddcc77",
    "$queue2": "#88ccee",
    "$queue3": "#999933",
    "$queue4": "#117733",
    "$queue5": "#dddddd",
    "$queue6": "#aa4499",
    "$queue7": "#44aa99",
    "$pattern": "#14181d",
}

SERIES: Final = 8
"""Number of colors of policies, and of queues."""

DASHES: Final = ("solid", "dash", "dot", "dashdot", "16px,4px", "12px,3px,2px,3px", "6px,2px", "3px,3px")
"""Dashes for the lines of policies, one for each color, so that no two lines look alike."""

PATTERNS: Final = ("", "/", ".", "\\", "x", "-", "|", "+")
"""Patterns for the areas and bars of queues, one for each color, so that no two areas look alike."""


def policy_color(index: int) -> str:
    """Return the name of the color for the policy with this index; colors repeat after the last one."""
    return f"$policy{index % SERIES}"


def queue_color(index: int) -> str:
    """Return the name of the color for the queue with this index; colors repeat after the last one."""
    return f"$queue{index % SERIES}"


def queue_pattern(index: int) -> dict[str, Any]:
    """Return the plotly fill pattern for the queue with this index; patterns repeat after the last one."""
    shape = PATTERNS[index % SERIES]
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "$pattern", "size": 7, "solidity": 0.25}


def line_dash(index: int) -> str:
    """Return the plotly dash style for the line with this index; styles repeat after the last one."""
    return DASHES[index % len(DASHES)]

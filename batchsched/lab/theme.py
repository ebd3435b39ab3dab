"""Colours of a report, light and dark.

Figures name colours ("$series0", "$ink"); the page puts the colours of the theme in their place, and
again when the reader changes it. The series are Okabe and Ito's, told apart by people of any colour vision,
darkened or lightened where the background asks for it; lines have a dash besides, and boxes a mark.

Source: M. Okabe and K. Ito, Color Universal Design, 2008.
"""

from typing import Final

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
"""How many series have a colour of their own."""

DASHES: Final = ("solid", "dash", "dot", "dashdot", "16px,4px", "12px,3px,2px,3px", "6px,2px", "3px,3px")
"""One for each colour: lines of two series never look alike."""


def series(index: int) -> str:
    """Return the name of the colour of the index-th series; past the last they begin again."""
    return f"$series{index % SERIES}"


def dash(index: int) -> str:
    """Return the dash of the index-th line."""
    return DASHES[index % len(DASHES)]

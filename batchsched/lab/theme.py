"""Colors of reports, for light and dark themes.

Figures use color names ("$series0", "$ink"); the page replaces them by the colors of the theme. The series colors are
those of Okabe and Ito, which readers of any color vision can distinguish, adjusted to the background. Lines also
differ in their dashes, and boxes in their marks.

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
"""Number of series colors."""

DASHES: Final = ("solid", "dash", "dot", "dashdot", "16px,4px", "12px,3px,2px,3px", "6px,2px", "3px,3px")
"""Dashes for the lines, one for each color, so that no two lines look alike."""


def series(index: int) -> str:
    """Return the color name of a series; colors repeat after the last one."""
    return f"$series{index % SERIES}"


def dash(index: int) -> str:
    """Return the dash of a line."""
    return DASHES[index % len(DASHES)]

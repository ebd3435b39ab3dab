from colorsys import rgb_to_hls
from itertools import pairwise

import pytest

from batchsched.lab.figure import (
    DARK,
    DAY,
    HOUR,
    LIGHT,
    SERIES,
    format_duration,
    line_dash,
    log_duration_axis,
    round_significant,
    series_color,
    time_unit,
)

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0 s"), (0.4, "0.4 s"), (42, "42 s"), (210, "3.5 min"), (7560, "2.1 h"), (12 * DAY, "12.0 d")],
)
def test_durations_are_written_as_people_write_them(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize("span, name", [(HOUR, "minutes"), (DAY, "hours"), (30 * DAY, "days")])
def test_an_axis_of_time_has_a_unit_that_fits_its_span(span, name):
    assert time_unit(span).name == name


def test_a_clock_axis_labels_every_tick_in_ascending_order():
    drawn = log_duration_axis("wait")
    assert drawn["tickvals"] == sorted(drawn["tickvals"])
    assert len(drawn["tickvals"]) == len(drawn["ticktext"])


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def hue(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    hue_part, _, saturation = rgb_to_hls(*parts)
    return 360 * hue_part if saturation > 0.2 else None


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@THEMES
def test_text_has_enough_contrast_with_the_background(theme):
    assert contrast(theme["$ink"], theme["$paper"]) >= 7
    assert contrast(theme["$muted"], theme["$paper"]) >= 4.5


@THEMES
def test_every_series_has_enough_contrast_with_the_background(theme):
    assert all(contrast(theme[series_color(index)], theme["$paper"]) >= 3 for index in range(SERIES))


def test_both_themes_define_the_same_colours():
    assert LIGHT.keys() == DARK.keys()


def test_series_beyond_the_palette_repeat_its_colours():
    assert series_color(SERIES) == series_color(0)
    assert line_dash(0) == "solid"


def test_no_two_lines_have_the_same_dash():
    assert len({line_dash(index) for index in range(SERIES)}) == SERIES


@THEMES
def test_no_two_of_seven_policies_have_the_same_hue(theme):
    # The eighth is a second blue; greys have no hue.
    hues_by_index = [hue(theme[series_color(index)]) for index in range(SERIES - 1)]
    hues = sorted(hue_angle for hue_angle in hues_by_index if hue_angle is not None)
    assert len(hues) >= SERIES - 2
    assert min(after - before for before, after in pairwise(hues)) >= 15


def test_rounded_values_have_five_significant_digits():
    assert round_significant([1234567.0, 0.123456]) == [1234600.0, 0.12346]
    assert round_significant([1234567.0], 2) == [1200000.0]

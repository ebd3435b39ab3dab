from itertools import combinations

import numpy as np
import pytest

from batchsched.lab.figure import (
    DARK,
    DAY,
    HOUR,
    LIGHT,
    MIN_TICKS,
    PATTERNS,
    SERIES,
    format_duration,
    format_durations,
    format_number,
    format_signed,
    line_dash,
    log_duration_axis,
    log_factor_axis,
    policy_color,
    queue_color,
    queue_pattern,
    round_significant,
    time_unit,
)

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0 s"), (0.4, "0.4 s"), (42, "42 s"), (210, "3.5 min"), (7560, "2.1 h"), (12 * DAY, "12.0 d")],
)
def test_durations_are_written_as_people_write_them(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    "text, value, signed",
    [
        ("0.04", 0.04, "+0.04"),
        ("3.2 min", -192.0, "-3.2 min"),
        ("0.0 pp", -0.0004, "0.0 pp"),
        ("0%", 0.0, "0%"),
    ],
    ids=["increase", "decrease", "rounds to zero", "zero"],
)
def test_differences_have_a_sign_unless_they_round_to_zero(text, value, signed):
    assert format_signed(text, value) == signed


@pytest.mark.parametrize("span, name", [(HOUR, "minutes"), (DAY, "hours"), (30 * DAY, "days")])
def test_an_axis_of_time_has_a_unit_that_fits_its_span(span, name):
    assert time_unit(span).name == name


def test_durations_that_are_compared_have_one_unit():
    assert format_durations([30960, 5040, 2670]) == ("8.60 h", "1.40 h", "0.74 h")
    assert format_durations([30960, 270]) == ("8.60 h", "0.075 h")
    assert format_durations([12 * DAY, 0]) == ("12.0 d", "0 d")


@pytest.mark.parametrize(
    "value, text", [(1371, "1,371"), (5590.4, "5,590"), (492.9, "493"), (72.34, "72.3"), (4.0, "4"), (0, "0")]
)
def test_numbers_have_three_digits_and_one_kind_of_separator(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize("values", [[1.0, 1e6], [1.0, 4.0], [3600.0, 7200.0], [1.0, 1.0], []])
def test_a_logarithmic_axis_has_enough_ticks_to_show_its_scale(values):
    for drawn in (log_duration_axis("wait", values), log_factor_axis("slowdown", values)):
        low, high = (10**bound for bound in drawn["range"])
        visible = [tick for tick in drawn["tickvals"] if low * 0.999 <= tick <= high * 1.001]
        assert len(visible) >= (2 if max(values, default=10) > min(values, default=1) else 1)
        assert drawn["tickvals"] == sorted(drawn["tickvals"])
        assert len(drawn["tickvals"]) == len(drawn["ticktext"])


def test_a_logarithmic_axis_of_small_slowdowns_has_more_than_the_tick_1():
    assert len(log_factor_axis("slowdown", [1.0, 4.0])["ticktext"]) >= MIN_TICKS


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# Source: Machado, Oliveira and Fernandes, A Physiologically-based Model for Simulation of Color Vision Deficiency,
# IEEE Transactions on Visualization and Computer Graphics 15(6), 2009; severity 1.0.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def seen(colour, vision):
    """The colour as CIELAB, as a reader with this vision sees it."""
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    white = TO_XYZ @ np.clip(VISION[vision] @ linear, 0, 1) / np.array([0.95047, 1, 1.08883])
    x, y, z = np.where(white > 0.008856, np.cbrt(white), 7.787 * white + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def smallest_difference(colours, vision):
    pairs = combinations([seen(colour, vision) for colour in colours], 2)
    return min(np.linalg.norm(one - other) for one, other in pairs)


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@THEMES
def test_text_has_enough_contrast_with_the_background(theme):
    assert contrast(theme["$ink"], theme["$paper"]) >= 7
    assert contrast(theme["$muted"], theme["$paper"]) >= 4.5


@THEMES
def test_every_policy_has_enough_contrast_with_the_background(theme):
    assert all(contrast(theme[policy_color(index)], theme["$paper"]) >= 3 for index in range(SERIES))


def test_both_themes_define_the_same_colours():
    assert LIGHT.keys() == DARK.keys()


def test_series_beyond_the_palette_repeat_its_colours():
    assert policy_color(SERIES) == policy_color(0)
    assert queue_color(SERIES) == queue_color(0)
    assert line_dash(0) == "solid"


def test_no_two_lines_have_the_same_dash_and_no_two_areas_the_same_pattern():
    assert len({line_dash(index) for index in range(SERIES)}) == SERIES
    assert len({queue_pattern(index)["shape"] for index in range(SERIES)}) == len(set(PATTERNS)) == SERIES


@THEMES
@pytest.mark.parametrize("vision", VISION)
def test_readers_with_a_colour_vision_deficiency_can_distinguish_policies_and_queues(theme, vision):
    # A difference of 2.3 between two colours side by side is just noticeable.
    for color_of in (policy_color, queue_color):
        colours = [theme[color_of(index)] for index in range(SERIES)]
        assert smallest_difference(colours[:3], vision) >= 20
        assert smallest_difference(colours, vision) >= 13


@THEMES
def test_policies_and_queues_have_no_colour_in_common(theme):
    assert {theme[policy_color(index)] for index in range(SERIES)}.isdisjoint(
        theme[queue_color(index)] for index in range(SERIES)
    )


def test_rounded_values_have_five_significant_digits():
    assert round_significant([1234567.0, 0.123456]) == [1234600.0, 0.12346]
    assert round_significant([1234567.0], 2) == [1200000.0]

from colorsys import rgb_to_hls
from itertools import pairwise

import pytest

from batchsched.lab.theme import DARK, LIGHT, SERIES, dash, series


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def hue(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    found, _, saturation = rgb_to_hls(*parts)
    return 360 * found if saturation > 0.2 else None


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_the_paper(theme):
    assert contrast(theme["$ink"], theme["$paper"]) >= 7
    assert contrast(theme["$muted"], theme["$paper"]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_series_stands_out_from_the_paper(theme):
    assert all(contrast(theme[series(index)], theme["$paper"]) >= 3 for index in range(SERIES))


def test_both_themes_know_the_same_colours():
    assert LIGHT.keys() == DARK.keys()


def test_series_past_the_last_begin_again():
    assert series(SERIES) == series(0)
    assert dash(0) == "solid"


def test_no_two_lines_have_the_same_dash():
    assert len({dash(index) for index in range(SERIES)}) == SERIES


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_no_two_of_seven_policies_have_the_same_hue(theme):
    # The eighth is a second blue; greys have no hue.
    known = [hue(theme[series(index)]) for index in range(SERIES - 1)]
    hues = sorted(one for one in known if one is not None)
    assert len(hues) >= SERIES - 2
    assert min(after - before for before, after in pairwise(hues)) >= 15

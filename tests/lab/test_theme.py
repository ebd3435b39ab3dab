import pytest

from batchsched.lab.theme import DARK, LIGHT, SERIES, dash, series


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


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

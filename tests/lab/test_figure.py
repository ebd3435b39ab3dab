import pytest

from batchsched.lab.figure import DAY, HOUR, clock_axis, duration, time_unit


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0 s"), (0.4, "0.4 s"), (42, "42 s"), (210, "3.5 min"), (7560, "2.1 h"), (12 * DAY, "12.0 d")],
)
def test_durations_are_written_as_people_write_them(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize("span, name", [(HOUR, "minutes"), (DAY, "hours"), (30 * DAY, "days")])
def test_an_axis_of_time_has_a_unit_that_fits_its_span(span, name):
    assert time_unit(span).name == name


def test_a_clock_axis_labels_every_tick_in_ascending_order():
    drawn = clock_axis("wait")
    assert drawn["tickvals"] == sorted(drawn["tickvals"])
    assert len(drawn["tickvals"]) == len(drawn["ticktext"])

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.lab.timelines import MAX_POINTS, queue_length, resource_label, step_means, utilisation
from batchsched.lab.trial import trials
from tests.lab.runs import GPU, played

steps = st.lists(
    st.tuples(st.integers(0, 1000), st.floats(0, 100)), min_size=1, max_size=20, unique_by=lambda s: s[0]
)


@given(steps, st.integers(1, 50))
def test_binning_keeps_the_area_under_a_line(changes, bins):
    times, values = (np.array(column, dtype=float) for column in zip(*sorted(changes), strict=True))
    edges = np.linspace(0, 1200, bins + 1)
    spans = np.diff(np.append(times, 1200.0))
    means = step_means(times, values, edges)
    assert float(means @ np.diff(edges)) == pytest.approx(float(values @ spans), rel=1e-9, abs=1e-6)


def test_a_spike_within_a_bin_is_averaged_not_dropped():
    means = step_means(np.array([0.0, 4.0, 5.0]), np.array([0.0, 10.0, 0.0]), np.array([0.0, 10.0]))
    assert means.tolist() == [1.0]


def test_there_is_one_line_a_policy_in_percent_and_of_bounded_length():
    runs = trials([played("a", gangs=400), played("b", gangs=400, shortest_first=True)])
    figure = utilisation(runs, GPU)
    assert [line["name"] for line in figure.data] == ["a", "b"]
    assert all(0 <= value <= 100 for line in figure.data for value in line["y"])
    assert all(len(line["x"]) == len(line["y"]) <= 2 * MAX_POINTS for line in figure.data)
    assert "%" in figure.layout["yaxis"]["title"]["text"]


def test_a_long_tail_does_not_squeeze_the_rest():
    run = played("a", gangs=30)
    last = replace(run.gangs[-1], ended=(run.gangs[-1].started or 0) + 10_000_000)
    figure = queue_length(trials([replace(run, gangs=(*run.gangs[:-1], last))]))
    assert "double-click" in figure.caption


def test_resources_have_the_names_that_people_use():
    assert (resource_label(GPU), resource_label("cpu"), resource_label("memory")) == ("GPU", "CPU", "memory")

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.lab.fairness import QueueShareSeries
from batchsched.lab.measures import RunOutcome
from batchsched.lab.run_columns import build_run_columns, short_resource_name
from batchsched.lab.timelines import (
    MAX_POINTS,
    OTHER_QUEUES,
    arrival_span_seconds,
    draw_fairness_error,
    draw_jain_index,
    draw_pending_gang_count,
    draw_used_and_fair_shares,
    draw_utilisation,
    mean_per_interval,
    queue_legend_names,
)
from batchsched.simulator.result import ClusterSeries, GangRecord, RunResult
from tests.lab.runs import GPU, played

steps = st.lists(
    st.tuples(st.integers(0, 1000), st.floats(0, 100)), min_size=1, max_size=20, unique_by=lambda s: s[0]
)


@given(steps, st.integers(1, 50))
def test_binning_keeps_the_area_under_a_line(changes, bins):
    times, values = (np.array(column, dtype=float) for column in zip(*sorted(changes), strict=True))
    edges = np.linspace(0, 1200, bins + 1)
    spans = np.diff(np.append(times, 1200.0))
    means = mean_per_interval(times, values, edges)
    assert float(means @ np.diff(edges)) == pytest.approx(float(values @ spans), rel=1e-9, abs=1e-6)


def test_a_spike_within_a_bin_is_averaged_not_dropped():
    means = mean_per_interval(np.array([0.0, 4.0, 5.0]), np.array([0.0, 10.0, 0.0]), np.array([0.0, 10.0]))
    assert means.tolist() == [1.0]


def test_utilisation_has_one_line_for_each_policy_in_percent_with_bounded_points():
    runs = build_run_columns([played("a", gangs=400), played("b", gangs=400, shortest_first=True)])
    figure = draw_utilisation(runs, GPU)
    assert [line["name"] for line in figure.data] == ["a", "b"]
    assert all(0 <= value <= 100 for line in figure.data for value in line["y"])
    assert all(len(line["x"]) == len(line["y"]) <= 2 * MAX_POINTS for line in figure.data)
    assert "%" in figure.layout["yaxis"]["title"]["text"]


def test_a_long_tail_is_outside_the_initial_view():
    run = played("a", gangs=30)
    last = replace(run.gangs[-1], ended=(run.gangs[-1].started or 0) + 10_000_000)
    figure = draw_pending_gang_count(build_run_columns([replace(run, gangs=(*run.gangs[:-1], last))]))
    assert "are shown" in figure.caption
    assert "click" not in figure.caption  # a touch screen has no double-click
    assert figure.whole_range is not None
    assert figure.whole_range[1] > figure.layout["xaxis"]["range"][1]


def test_values_have_their_units_when_the_reader_points_at_them():
    runs = build_run_columns([played("a")])
    utilisation, queue = draw_utilisation(runs, GPU), draw_pending_gang_count(runs)
    assert "%<extra>" in utilisation.data[0]["hovertemplate"]
    assert "gangs<extra>" in queue.data[0]["hovertemplate"]
    assert queue.layout["xaxis"]["unifiedhovertitle"]["text"].startswith("%{x} ")


def test_resources_have_the_names_that_people_use():
    assert (short_resource_name(GPU), short_resource_name("cpu"), short_resource_name("memory")) == (
        "GPU",
        "CPU",
        "memory",
    )


def outcome(held, fair, *, seed=0, last=100):
    """A run with queue changes at 0 and 50 s; the last gang arrives at `last`."""
    held, fair = np.array(held, float), np.array(fair, float)
    names = tuple(f"q{at}" for at in range(held.shape[1]))
    gangs = tuple(GangRecord(f"g{at}", "q0", 1, 1, at, at, at + 1, 1, None) for at in (0, last))
    result = RunResult("w", "p", gangs, ClusterSeries((), {}, {}, (), ()), 1)
    fairness = QueueShareSeries("nvidia.com/gpu", names, np.array([0.0, 50.0]), held, fair, fair)
    return RunOutcome("k", seed, result, fairness, {}, 0.0)


def line(figure):
    return figure.data[0]["y"]


def test_the_error_is_drawn_in_percent_over_time():
    figure = draw_fairness_error({"p": [outcome([[0.2, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]])]})
    assert (line(figure)[0], line(figure)[-1]) == (30.0, 0.0)
    assert "seeds" not in figure.caption


def test_seeds_are_averaged_while_their_gangs_arrive():
    long = outcome([[0.0], [0.0]], [[0.2], [0.2]], last=200)
    short = outcome([[0.0], [0.0]], [[0.4], [0.4]], seed=1, last=100)
    figure = draw_fairness_error({"p": [long, short]})
    assert (line(figure)[0], line(figure)[-1]) == pytest.approx((30.0, 20.0))
    assert "2 seeds" in figure.caption


def test_jains_index_is_drawn_on_an_axis_from_below_its_minimum_to_one():
    figure = draw_jain_index({"p": [outcome([[0.5, 0.0], [0.5, 0.5]], [[0.5, 0.5]] * 2)]})
    assert line(figure)[0] == 0.5
    assert figure.layout["yaxis"]["range"] == [0.4, 1.02]


def test_held_and_fair_shares_are_drawn_above_each_other_in_equal_colours():
    figure = draw_used_and_fair_shares(
        "p", outcome([[0.2, 0.5]] * 2, [[0.5, 0.5]] * 2), 100.0, ("q0", "q1"), "shares-0"
    )
    assert [(one["name"], one["yaxis"], one["y"][0]) for one in figure.data] == [
        ("q0", "y", 20.0),
        ("q0", "y2", 50.0),
        ("q1", "y", 50.0),
        ("q1", "y2", 50.0),
    ]
    assert figure.data[0]["line"] == figure.data[1]["line"] != figure.data[2]["line"]
    assert figure.data[0]["fillpattern"] == figure.data[1]["fillpattern"] != figure.data[2]["fillpattern"]


def test_a_queue_below_its_share_is_explained():
    figure = draw_used_and_fair_shares("p", outcome([[0.2]] * 2, [[0.5]] * 2), 100.0, ("q0",), "shares-0")
    assert "can hold less than its share" in figure.caption


def test_many_queues_are_drawn_as_the_largest_and_one_sum_of_the_others():
    held = [[at / 100 for at in range(10)]] * 2
    queues = queue_legend_names({f"q{at}": at for at in range(10)})
    figure = draw_used_and_fair_shares("p", outcome(held, held), 100.0, queues, "shares-0")
    names = [one["name"] for one in figure.data[::2]]
    assert names == [f"q{at}" for at in range(3, 10)] + [OTHER_QUEUES]
    assert figure.data[-1]["y"][0] == pytest.approx(3.0)


def test_a_queue_has_the_same_colour_in_the_figure_of_every_policy():
    first = draw_used_and_fair_shares(
        "p", outcome([[0.2, 0.5]] * 2, [[0.5, 0.5]] * 2), 100.0, ("q0", "q1"), "shares-0"
    )
    second = draw_used_and_fair_shares(
        "r", outcome([[0.2]] * 2, [[0.5]] * 2), 100.0, ("q0", "q1"), "shares-1"
    )
    assert first.data[0]["fillcolor"] == second.data[0]["fillcolor"]


def test_arrivals_of_a_run_without_gangs_end_at_zero():
    run = outcome([[0.0]] * 2, [[0.0]] * 2)
    assert arrival_span_seconds(run) == 100
    assert arrival_span_seconds(replace(run, result=replace(run.result, gangs=()))) == 0

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.lab import gantt
from batchsched.lab.gantt import (
    MAX_NODES,
    draw_gantt_charts,
    format_size,
    lay_out_bars,
    node_units,
    select_chart_nodes,
)
from batchsched.lab.trial import build_trials
from tests.lab.runs import cluster, played


@pytest.mark.properties
@given(st.integers(0, 2**16), st.integers(1, 6), st.integers(1, 8), st.booleans())
def test_no_two_gangs_share_a_lane_at_one_time(seed, nodes, gpus, shortest_first):
    trial = build_trials(
        [played("a", gangs=40, nodes=nodes, gpus=gpus, seed=seed, shortest_first=shortest_first)]
    )[0]
    bars = lay_out_bars(trial, select_chart_nodes(node_units([trial], cluster(nodes, gpus))))
    cells: dict[int, list[tuple[float, float]]] = {}
    for bar in bars:
        for lane in range(bar.first, bar.first + bar.lanes):
            cells.setdefault(lane, []).append((bar.start, bar.end))
    for spans in cells.values():
        ordered = sorted(spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(ordered))


def test_every_device_of_a_gang_is_drawn():
    trial = build_trials([played("a", gangs=60)])[0]
    lanes = [0] * len(trial.gangs)
    for bar in lay_out_bars(trial, select_chart_nodes(node_units([trial], cluster(16)))):
        lanes[bar.gang] += bar.lanes
    assert lanes == trial.units.tolist()


def test_a_gang_on_whole_neighbouring_nodes_is_one_bar():
    run = played("a", gangs=1)
    gang = replace(run.gangs[0], gpus=16, placements=(("node-0", 8), ("node-1", 8)))
    trial = build_trials([replace(run, gangs=(gang,))])[0]
    assert [
        (bar.first, bar.lanes) for bar in lay_out_bars(trial, select_chart_nodes({"node-0": 8, "node-1": 8}))
    ] == [(0, 16)]


def test_nodes_are_in_natural_order_and_limited_in_number():
    drawn = select_chart_nodes({f"n{number}": 8 for number in range(MAX_NODES + 40)})
    assert drawn.names[:3] == ("n0", "n1", "n2")
    assert (len(drawn.names), drawn.node_count) == (MAX_NODES, MAX_NODES + 40)


def test_gangs_on_nodes_that_are_not_drawn_are_left_out():
    run = played("a", gangs=3)
    gangs = tuple(
        replace(gang, gpus=10, placements=(("node-0", 4), ("node-1", 6)) if at else (("node-1", 10),))
        for at, gang in enumerate(run.gangs)
    )
    bars = lay_out_bars(
        build_trials([replace(run, gangs=gangs)])[0], select_chart_nodes({"node-0": 8, "node-1": 10}, limit=1)
    )
    assert [(bar.gang, bar.first, bar.lanes) for bar in bars if bar.gang == 1] == [(1, 0, 4)]
    assert {bar.gang for bar in bars} == {1, 2}


def test_the_height_of_a_node_without_gpus_is_its_maximum_number_of_pods():
    run = played("a", gangs=1)
    gangs = tuple(
        replace(run.gangs[0], key=f"ml/{number}", gpus=0, size=2, placements=(("node-0", 2),))
        for number in (1, 2)
    )
    trial = build_trials([replace(run, gangs=gangs)])[0]
    assert node_units([trial], cluster(2, gpus=0)) == {"node-0": 4, "node-1": 1}


def test_a_long_run_is_cut_at_the_same_moment_for_every_policy(monkeypatch):
    monkeypatch.setattr(gantt, "MAX_BARS_PER_POLICY", 100)
    results = [played("a", nodes=4), played("b", nodes=4, shortest_first=True)]
    figures = draw_gantt_charts(build_trials(results), cluster(4))
    drawn = [sum(len(trace["x"]) for trace in figure.data) for figure in figures]
    assert max(drawn) <= 100
    assert len({tuple(figure.layout["xaxis"]["range"]) for figure in figures}) == 1
    assert all("Shown until" in figure.caption for figure in figures)


def test_a_single_queue_is_coloured_by_size_and_many_queues_by_the_largest():
    single = draw_gantt_charts(build_trials([played("a", queues=1)]), cluster(16))[0]
    assert single.data[0]["name"] == "1 GPU"
    run = played("a", gangs=60)
    many = replace(run, gangs=tuple(replace(gang, queue=f"q{at % 12}") for at, gang in enumerate(run.gangs)))
    names = [trace["name"] for trace in draw_gantt_charts(build_trials([many]), cluster(16))[0].data]
    assert "other queues" in names
    assert len(names) <= 8


def test_nothing_is_drawn_without_nodes():
    assert draw_gantt_charts(build_trials([played("a")]), ()) == ()


def test_one_pod_is_written_in_the_singular():
    assert [format_size(size, "pods") for size in ("1", "3–4")] == ["1 pod", "3–4 pods"]

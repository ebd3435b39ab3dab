from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.metadata import ObjectMeta
from batchsched.lab import gantt
from batchsched.lab.gantt import (
    MAX_NODES,
    ROW_PIXELS,
    GangColorGroups,
    NeededLaneCounts,
    draw_gantt_charts,
    format_gang_size,
    lay_out_bars,
    needed_lane_counts_by_node,
    select_chart_nodes,
)
from batchsched.lab.run_columns import build_run_columns
from tests.lab.runs import cluster, played


def gpus(*counts):
    return {f"node-{number}": NeededLaneCounts(count, 0) for number, count in enumerate(counts)}


def draw(results, nodes):
    runs = build_run_columns(results)
    return draw_gantt_charts(runs, nodes, GangColorGroups.from_runs(runs))


@pytest.mark.properties
@given(st.integers(0, 2**16), st.integers(1, 6), st.integers(1, 8), st.booleans())
def test_no_two_gangs_share_a_lane_at_one_time(seed, nodes, gpus, shortest_first):
    run = build_run_columns(
        [played("a", gangs=40, nodes=nodes, gpus=gpus, seed=seed, shortest_first=shortest_first)]
    )[0]
    bars = lay_out_bars(run, select_chart_nodes(needed_lane_counts_by_node([run], cluster(nodes, gpus))))
    cells: dict[int, list[tuple[float, float]]] = {}
    for bar in bars:
        for lane in range(bar.first, bar.first + bar.lanes):
            cells.setdefault(lane, []).append((bar.start, bar.end))
    for spans in cells.values():
        ordered = sorted(spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(ordered))


def test_every_device_of_a_gang_is_drawn():
    run = build_run_columns([played("a", gangs=60)])[0]
    lanes = [0] * len(run.gangs)
    for bar in lay_out_bars(run, select_chart_nodes(needed_lane_counts_by_node([run], cluster(16)))):
        lanes[bar.gang] += bar.lanes
    assert lanes == run.units.tolist()


def test_a_gang_on_whole_neighbouring_nodes_is_one_bar():
    run = played("a", gangs=1)
    gang = replace(run.gangs[0], gpus=16, placements=(("node-0", 8), ("node-1", 8)))
    run = build_run_columns([replace(run, gangs=(gang,))])[0]
    assert [(bar.first, bar.lanes) for bar in lay_out_bars(run, select_chart_nodes(gpus(8, 8)))] == [(0, 16)]


def test_nodes_are_in_natural_order_and_limited_in_number():
    drawn = select_chart_nodes({f"n{number}": NeededLaneCounts(8, 0) for number in range(MAX_NODES + 40)})
    assert drawn.names[:3] == ("n0", "n1", "n2")
    assert (len(drawn.names), drawn.node_count) == (MAX_NODES, MAX_NODES + 40)


def test_gangs_on_nodes_that_are_not_drawn_are_left_out():
    run = played("a", gangs=3)
    gangs = tuple(
        replace(gang, gpus=10, placements=(("node-0", 4), ("node-1", 6)) if at else (("node-1", 10),))
        for at, gang in enumerate(run.gangs)
    )
    bars = lay_out_bars(
        build_run_columns([replace(run, gangs=gangs)])[0], select_chart_nodes(gpus(8, 10), limit=1)
    )
    assert [(bar.gang, bar.first, bar.lanes) for bar in bars if bar.gang == 1] == [(1, 0, 4)]
    assert {bar.gang for bar in bars} == {1, 2}


def test_the_height_of_a_node_without_gpus_is_its_maximum_number_of_pods():
    run = played("a", gangs=1)
    gangs = tuple(
        replace(run.gangs[0], key=f"ml/{number}", gpus=0, size=2, placements=(("node-0", 2),))
        for number in (1, 2)
    )
    run = build_run_columns([replace(run, gangs=gangs)])[0]
    assert needed_lane_counts_by_node([run], cluster(2, gpus=0)) == {
        "node-0": NeededLaneCounts(0, 4),
        "node-1": NeededLaneCounts(0, 0),
    }


def test_a_long_run_is_cut_at_the_same_moment_for_every_policy(monkeypatch):
    monkeypatch.setattr(gantt, "MAX_BARS_PER_POLICY", 100)
    results = [played("a", nodes=4), played("b", nodes=4, shortest_first=True)]
    figures = draw(results, cluster(4))
    drawn = [sum(len(trace["x"]) for trace in figure.data) for figure in figures]
    assert max(drawn) <= 100
    assert len({tuple(figure.layout["xaxis"]["range"]) for figure in figures}) == 1
    assert all("are shown" in figure.caption for figure in figures)
    assert all("click" not in figure.caption for figure in figures)


def test_a_single_queue_is_coloured_by_size_and_many_queues_by_the_largest():
    single = draw([played("a", queues=1)], cluster(16))[0]
    assert single.data[0]["name"] == "1 GPU"
    run = played("a", gangs=60)
    many = replace(run, gangs=tuple(replace(gang, queue=f"q{at % 12}") for at, gang in enumerate(run.gangs)))
    names = [trace["name"] for trace in draw([many], cluster(16))[0].data]
    assert "other queues" in names
    assert len(names) <= 8


def test_nothing_is_drawn_without_nodes():
    assert draw([played("a")], ()) == ()


def test_one_pod_is_written_in_the_singular():
    assert [format_gang_size(size, "pods") for size in ("1", "3–4")] == ["1 pod", "3–4 pods"]


def test_gangs_without_gpus_are_drawn_among_gangs_with_gpus():
    run = played("a", gangs=3)
    machine, processor = cluster(2)[0], named(cluster(1, gpus=0)[0], "cpu-0")
    gangs = (
        run.gangs[0],
        replace(run.gangs[1], key="ml/etl", queue="etl", gpus=0, size=3, placements=(("cpu-0", 3),)),
        replace(run.gangs[2], key="ml/log", queue="etl", gpus=0, size=1, placements=(("node-0", 1),)),
    )
    (figure,) = draw([replace(run, gangs=gangs)], (machine, processor))
    hovers = [row for trace in figure.data for row in trace["customdata"]]
    assert {tuple(row[:2]) for row in hovers} >= {("ml/etl", "3 pods"), ("ml/log", "1 pod")}
    drawn = next(trace for trace in figure.data if trace["name"] == "etl")
    assert min(drawn["width"]) * ROW_PIXELS >= 1.9


def named(node, name):
    return type(node)(metadata=ObjectMeta(name=name), status=node.status)


def test_each_node_has_a_row_of_the_same_height_with_its_label():
    (figure,) = draw([played("a", gangs=40)], (*cluster(16), named(cluster(1, gpus=0)[0], "cpu-0")))
    scale = figure.layout["yaxis"]
    assert scale["tickvals"] == [row + 0.5 for row in range(17)]
    assert len(scale["ticktext"]) == 17
    assert figure.height >= 17 * ROW_PIXELS >= 17 * 16


def test_bars_of_queues_have_patterns():
    (figure,) = draw([played("a", gangs=60)], cluster(16))
    shapes = [trace["marker"]["pattern"]["shape"] for trace in figure.data]
    assert len(set(shapes)) == len(shapes) == 3

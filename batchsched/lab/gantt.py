"""Gantt charts of simulated gangs: a row for each node, divided into lanes, with bars where gangs run.

A node has a lane for each GPU, and further lanes for pods of gangs without GPUs. All rows have the same height.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Final

import numpy as np

from batchsched.api.core.node import Node
from batchsched.lab.distributions import gang_size_bounds, gang_size_range_name
from batchsched.lab.figure import (
    SERIES,
    Figure,
    TimeUnit,
    axis,
    format_duration,
    queue_color,
    queue_pattern,
    time_axis,
    time_unit,
)
from batchsched.lab.run_columns import GPUS, PODS, RunColumns, time_axis_end
from batchsched.lab.timelines import OTHER_QUEUES, queue_legend_names, shown_period_sentence
from batchsched.simulator.result import GangRecord

MAX_NODES = 48
"""Maximum number of nodes drawn; more do not fit on a screen."""

ROW_PIXELS = 19
"""Height of a node: its label has room, and a bar of one in eight GPUs can be seen."""

MAX_POD_LANES = 16
"""Maximum number of lanes of a node for pods without GPUs; if it held more, several pods share a lane."""

MAX_LABEL = 20
"""Maximum length of the label of a node, in characters."""

MAX_BARS_PER_POLICY = 3000
"""Maximum number of bars for each policy: a browser draws them within a second, and the page stays small."""


@dataclass(frozen=True, slots=True)
class _Bar:
    """A bar of a Gantt chart: a gang on adjacent lanes, from `start` to `end` in seconds."""

    gang: int
    first: int
    lanes: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class NeededLaneCounts:
    """The numbers of lanes (strips in a node's row) that a Gantt chart needs for GPUs and pods without GPUs.

    The chart draws at most `MAX_POD_LANES` lanes for pods.

    Args:
      devices: The number of GPUs of the node.
      pods: The maximum number of pods without GPUs that run on the node at once.
    """

    devices: int
    pods: int


@dataclass(frozen=True, slots=True)
class NodeLanes:
    """The lanes of a node in a Gantt chart: first a lane for each GPU, then lanes for pods without GPUs.

    Args:
      devices: The lanes of the GPUs.
      pods: The lanes of the pods.
      pod_limit: The number of pods that fill all pod lanes together.
    """

    devices: range
    pods: range
    pod_limit: int

    def usable_lanes(self, gang: GangRecord) -> range:
        """Return the lanes for a gang: the GPU lanes if it requests GPUs, otherwise the pod lanes."""
        return self.devices if gang.gpus else self.pods

    def needed_lane_count(self, gang: GangRecord, units: int) -> int:
        """Return how many lanes a gang needs for `units` GPUs on a node, or for `units` pods without GPUs."""
        if gang.gpus:
            return min(units, len(self.devices))
        return min(ceil(units * len(self.pods) / max(1, self.pod_limit)), len(self.pods))


@dataclass(frozen=True, slots=True)
class ChartNodes:
    """The nodes that a Gantt chart draws, with their lanes; all nodes have the same height.

    Args:
      names: The drawn nodes, in order.
      lanes: The lanes of each node; the numbers of lanes continue from node to node.
      node_count: The number of nodes, including those that are not drawn.
    """

    names: tuple[str, ...]
    lanes: Mapping[str, NodeLanes]
    node_count: int

    @property
    def lane_borders(self) -> list[float]:
        """The vertical positions of the borders between lanes, from 0 on, in units of the node height."""
        borders = [0.0]
        for row, name in enumerate(self.names):
            count = self.lanes[name].pods.stop - self.lanes[name].devices.start
            borders += [row + (lane + 1) / count for lane in range(count)]
        return borders


@dataclass(slots=True)
class _Lanes:
    """The time at which each lane becomes free."""

    free_at: list[float] = field(default_factory=list)

    def choose_and_occupy_lanes(self, among: range, units: int, start: float, end: float) -> list[int]:
        """Choose lanes of a node for a gang, adjacent ones if possible, and occupy them until `end`."""
        free = [lane for lane in among if self.free_at[lane] <= start + 1e-6]
        chosen = next(
            (stretch[:units] for stretch in _stretches(free) if len(stretch) >= units), free[:units]
        )
        if len(chosen) < units:
            rest = sorted((lane for lane in among if lane not in chosen), key=lambda lane: self.free_at[lane])
            chosen = sorted([*chosen, *rest[: units - len(chosen)]])
        for lane in chosen:
            self.free_at[lane] = end
        return chosen


def select_chart_nodes(held: Mapping[str, NeededLaneCounts], limit: int = MAX_NODES) -> ChartNodes:
    """Return the nodes that a Gantt chart draws: the first `limit` nodes in natural order (n2 before n10)."""
    names = tuple(sorted(held, key=_natural)[:limit])
    lanes, first = {}, 0
    for name in names:
        # A node that holds nothing has one lane.
        pods = max(min(held[name].pods, MAX_POD_LANES), 0 if held[name].devices else 1)
        devices = range(first, first + held[name].devices)
        lanes[name] = NodeLanes(devices, range(devices.stop, devices.stop + pods), held[name].pods)
        first = lanes[name].pods.stop
    return ChartNodes(names, lanes, len(held))


def needed_lane_counts_by_node(
    runs: Sequence[RunColumns], nodes: Sequence[Node]
) -> dict[str, NeededLaneCounts]:
    """Return for each node the number of lanes that a Gantt chart needs for GPUs and for pods without GPUs.

    There are no GPU lanes if no gang requests GPUs.
    """
    pods: Counter[str] = Counter()
    for run in runs:
        pods |= _pod_peaks(run)
    if not any(run.unit == GPUS for run in runs):
        return {node.name: NeededLaneCounts(0, pods[node.name]) for node in nodes}
    offered = ((node.name, node.parse_allocatable_in_base_units()) for node in nodes)
    return {
        name: NeededLaneCounts(
            sum(amount for resource, amount in held.items() if resource.endswith("/gpu")), pods[name]
        )
        for name, held in offered
    }


def _pod_peaks(run: RunColumns) -> Counter[str]:
    """Return for each node the maximum number of pods without GPUs that run on it at the same time."""
    changes = []
    for gang, start, end in zip(run.gangs, run.started.tolist(), run.ended.tolist(), strict=True):
        if not gang.gpus and not np.isnan(start):
            for node, units in gang.placements:
                changes += [(start, units, node), (run.end if np.isnan(end) else end, -units, node)]
    level: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for _, change, node in sorted(changes):
        level[node] += change
        peak[node] = max(level[node], peak[node])
    return peak


def lay_out_bars(run: RunColumns, drawn: ChartNodes) -> list[_Bar]:
    """Choose the lanes of a Gantt chart for each started gang; adjacent lanes of a gang form one bar.

    Returns:
      The bars of all gangs, ordered by start.
    """
    lanes = _Lanes([0.0] * (len(drawn.lane_borders) - 1))
    bars = []
    for gang in np.argsort(run.started, kind="stable").tolist():
        start, end = float(run.started[gang]), float(run.ended[gang])
        if np.isnan(start):
            continue
        end = run.end if np.isnan(end) else end
        taken: list[int] = []
        record = run.gangs[gang]
        for name, units in record.placements:
            node = drawn.lanes.get(name)
            if node is not None and units:
                taken += lanes.choose_and_occupy_lanes(
                    node.usable_lanes(record), node.needed_lane_count(record, units), start, end
                )
        bars += [_Bar(gang, stretch[0], len(stretch), start, end) for stretch in _stretches(sorted(taken))]
    return bars


def draw_gantt_charts(
    runs: Sequence[RunColumns], nodes: Sequence[Node], groups: "GangColorGroups"
) -> tuple[Figure, ...]:
    """Draw for each policy a Gantt chart of its gangs, all with the same nodes, time span and colors."""
    if not runs or not nodes:
        return ()
    drawn = select_chart_nodes(needed_lane_counts_by_node(runs, nodes))
    bars = [lay_out_bars(run, drawn) for run in runs]
    shown = time_axis_end(runs)
    longer = [run_bars for run_bars in bars if len(run_bars) > MAX_BARS_PER_POLICY]
    until = min([shown, *(run_bars[MAX_BARS_PER_POLICY].start for run_bars in longer)])
    return tuple(
        replace(
            _gantt(run, drawn, [bar for bar in run_bars if bar.start < until], groups, until),
            key=f"gantt-{number}",
        )
        for number, (run, run_bars) in enumerate(zip(runs, bars, strict=True))
    )


@dataclass(frozen=True, slots=True)
class GangColorGroups:
    """The groups of gangs that Gantt charts draw in different colors: queues, or sizes if there is one queue.

    Args:
      names: The names of the groups, in the order of their colors.
      by_queue: True if the groups are queues.
      bounds: The upper bounds of the size ranges.
    """

    names: tuple[str, ...]
    by_queue: bool
    bounds: tuple[int, ...]

    @staticmethod
    def from_runs(runs: Sequence[RunColumns]) -> "GangColorGroups":
        """Return the groups of the gangs of some runs: by queue, or by size if there is only one queue."""
        area: Counter[str] = Counter()
        for run in runs:
            for gang, units in zip(run.gangs, run.units.tolist(), strict=True):
                area[gang.queue] += units
        if len(area) > 1:
            return GangColorGroups(queue_legend_names(area), True, ())
        bounds = gang_size_bounds(runs)[-SERIES:]
        unit = runs[0].unit if runs else GPUS
        names = tuple(format_gang_size(gang_size_range_name(bound, bounds), unit) for bound in bounds)
        return GangColorGroups(names, False, bounds)

    def group_index(self, run: RunColumns, gang: int) -> int:
        """Return the index of the group of a gang, which determines the color of the gang's bars."""
        if not self.by_queue:
            units = int(run.units[gang])
            return next(index for index, bound in enumerate(self.bounds) if units <= bound)
        queue = run.gangs[gang].queue
        return self.names.index(queue if queue in self.names else OTHER_QUEUES)


def _gantt(
    run: RunColumns, drawn: ChartNodes, bars: Sequence[_Bar], groups: GangColorGroups, until: float
) -> Figure:
    unit = time_unit(until)
    borders = drawn.lane_borders
    members: list[list[_Bar]] = [[] for _ in groups.names]
    for bar in bars:
        members[groups.group_index(run, bar.gang)].append(bar)
    data = [
        _trace(run, group, borders, index, unit)
        | {"name": name, "hovertemplate": f"{_HOVER}<extra>{name}</extra>"}
        for index, (name, group) in enumerate(zip(groups.names, members, strict=True))
        if group
    ]
    layout = {
        "barmode": "overlay",
        "bargap": 0,
        "xaxis": time_axis(until),
        "yaxis": axis(
            "",
            range=[len(drawn.names), 0],
            tickvals=[row + 0.5 for row in range(len(drawn.names))],
            ticktext=[_label(name) for name in drawn.names],
            tickfont={"size": 11},
            showgrid=False,
        ),
        "shapes": [_rule(row) for row in range(1, len(drawn.names))],
        "hovermode": "closest",
    }
    return Figure(
        "gantt",
        f"Gangs on nodes: {run.policy}",
        _caption(drawn, until, run.end),
        tuple(data),
        layout,
        height=96 + ROW_PIXELS * max(len(drawn.names), 8),
        policy=run.policy,
        whole_range=(0.0, float(f"{run.end / unit.seconds:.4g}")) if _reaches(bars, until) else None,
    )


_HOVER: Final = (
    "<b>%{customdata[0]}</b><br>%{customdata[1]}, runs %{customdata[2]}<br>waited %{customdata[3]}"
)


def _reaches(bars: Sequence[_Bar], until: float) -> bool:
    """Return whether a drawn bar ends after `until`, the end of the part of the run that is shown."""
    return any(bar.end > until * 1.001 for bar in bars)


def _trace(
    run: RunColumns, group: Sequence[_Bar], borders: Sequence[float], index: int, unit: TimeUnit
) -> dict[str, Any]:
    heights = [borders[bar.first + bar.lanes] - borders[bar.first] for bar in group]
    return {
        "type": "bar",
        "orientation": "h",
        "base": [round(bar.start / unit.seconds, 4) for bar in group],
        "x": [round((bar.end - bar.start) / unit.seconds, 4) for bar in group],
        "y": [round(borders[bar.first] + height / 2, 4) for bar, height in zip(group, heights, strict=True)],
        "width": [round(height, 4) for height in heights],
        "customdata": [
            [
                run.gangs[bar.gang].key,
                _size_of(run.gangs[bar.gang]),
                format_duration(bar.end - bar.start),
                format_duration(float(run.wait[bar.gang])),
            ]
            for bar in group
        ],
        "marker": {
            "color": queue_color(index),
            "pattern": queue_pattern(index),
            "line": {"color": "$paper", "width": 0.4},
        },
    }


def _size_of(gang: GangRecord) -> str:
    """Return the size of a gang with its unit: its GPUs or, if it has none, its pods."""
    return format_gang_size(f"{gang.gpus:,}", GPUS) if gang.gpus else format_gang_size(f"{gang.size:,}", PODS)


def _label(node: str) -> str:
    return node if len(node) <= MAX_LABEL else f"…{node[1 - MAX_LABEL :]}"


def _caption(drawn: ChartNodes, until: float, end: float) -> str:
    text = "A row is a node, a bar is a gang, and empty space is idle."
    lanes = drawn.lanes.values()
    if any(node.devices for node in lanes):
        text += " The height of a bar is the gang's share of the node's GPUs"
        text += ", or of the pods without GPUs." if any(node.pod_limit for node in lanes) else "."
    else:
        text += " The height of a bar is the gang's share of the most pods that the node held."
    if len(drawn.names) < drawn.node_count:
        text += f" The first {len(drawn.names)} of {drawn.node_count:,} nodes are drawn."
    return f"{text} {shown_period_sentence(until, end)}" if until < end else text


def format_gang_size(size: str, unit: str) -> str:
    """Format the size of a gang with its unit, such as 1 pod or 3–4 pods."""
    return f"{size} {unit.removesuffix('s') if size == '1' else unit}"


def _rule(row: int) -> dict[str, Any]:
    """Return the plotly shape of a thin line between the rows of two nodes."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": row,
        "y1": row,
        "line": {"color": "$grid", "width": 0.5},
    }


def _stretches(lanes: Sequence[int]) -> Iterator[list[int]]:
    """Split ascending lanes into runs of adjacent lanes."""
    stretch: list[int] = []
    for lane in lanes:
        if stretch and lane != stretch[-1] + 1:
            yield stretch
            stretch = []
        stretch.append(lane)
    if stretch:
        yield stretch


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key for natural order: n2 before n10."""
    return tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part
    )

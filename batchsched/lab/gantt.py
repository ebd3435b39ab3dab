"""Gantt charts: one row for each node with a lane for each unit, and one bar for each gang."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from batchsched.api.core.node import Node
from batchsched.lab.distributions import size_bounds, size_class
from batchsched.lab.figure import (
    SERIES,
    Figure,
    TimeUnit,
    axis,
    format_duration,
    series_color,
    time_axis,
    time_unit,
)
from batchsched.lab.trial import GPUS, Trial, time_axis_end
from batchsched.simulator.result import GangRecord

MAX_NODES = 64
"""Maximum number of nodes drawn; rows of more nodes are too thin to read."""

MAX_BARS_PER_POLICY = 3000
"""Maximum number of bars for each policy: a browser draws them within a second, and the page stays small."""


@dataclass(frozen=True, slots=True)
class _Bar:
    """A gang on adjacent lanes, from `start` to `end` in seconds."""

    gang: int
    first: int
    lanes: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class ChartNodes:
    """The nodes of a Gantt chart, each with one lane for each GPU or pod that it can hold.

    Args:
      names: The drawn nodes, in order.
      lanes: The lanes of each node, one for each unit.
      node_count: The number of nodes, including those that are not drawn.
    """

    names: tuple[str, ...]
    lanes: Mapping[str, range]
    node_count: int

    @property
    def lane_count(self) -> int:
        """The number of lanes of all nodes that the Gantt chart draws."""
        return self.lanes[self.names[-1]].stop if self.names else 0


@dataclass(slots=True)
class _Lanes:
    """The time at which each lane becomes free."""

    free_at: list[float] = field(default_factory=list)

    def occupy(self, among: range, units: int, start: float, end: float) -> list[int]:
        """Choose lanes of a node for a gang, adjacent ones if possible, and occupy them until `end`."""
        free = [lane for lane in among if self.free_at[lane] <= start + 1e-6]
        chosen = next((run[:units] for run in _stretches(free) if len(run) >= units), free[:units])
        if len(chosen) < units:
            rest = sorted((lane for lane in among if lane not in chosen), key=lambda lane: self.free_at[lane])
            chosen = sorted([*chosen, *rest[: units - len(chosen)]])
        for lane in chosen:
            self.free_at[lane] = end
        return chosen


def select_chart_nodes(capacities: Mapping[str, int], limit: int = MAX_NODES) -> ChartNodes:
    """Return the nodes that a Gantt chart draws: the first ones by natural order of names (n2 before n10).

    Each node has a lane for each unit.
    """
    names = tuple(sorted(capacities, key=_natural)[:limit])
    lanes, first = {}, 0
    for name in names:
        lanes[name] = range(first, first + max(capacities[name], 1))
        first = lanes[name].stop
    return ChartNodes(names, lanes, len(capacities))


def node_units(trials: Sequence[Trial], nodes: Sequence[Node]) -> dict[str, int]:
    """Return how many lanes each node has in a Gantt chart: its GPUs, or its highest number of simultaneous pods.

    Pods are counted if no gang uses GPUs.
    """
    if all(trial.unit == GPUS for trial in trials):
        offered = ((node.name, node.allocatable()) for node in nodes)
        return {
            name: sum(amount for resource, amount in held.items() if resource.endswith("/gpu"))
            for name, held in offered
        }
    held = dict.fromkeys((node.name for node in nodes), 1)
    for trial in trials:
        for name, most in _peaks(trial).items():
            held[name] = max(most, held.get(name, 1))
    return held


def _peaks(trial: Trial) -> dict[str, int]:
    """Return the maximum of units in use on each node."""
    changes = []
    for gang, start, end in zip(trial.gangs, trial.started.tolist(), trial.ended.tolist(), strict=True):
        if not np.isnan(start):
            for node, units in occupied_units(gang, trial.unit):
                changes += [(start, units, node), (trial.end if np.isnan(end) else end, -units, node)]
    level: Counter[str] = Counter()
    peak: dict[str, int] = {}
    for _, change, node in sorted(changes):
        level[node] += change
        peak[node] = max(level[node], peak.get(node, 0))
    return peak


def lay_out_bars(trial: Trial, drawn: ChartNodes) -> list[_Bar]:
    """Assign lanes of a Gantt chart to each gang while it runs; adjacent lanes form one bar.

    Returns:
      The bars, ordered by start.
    """
    lanes = _Lanes([0.0] * drawn.lane_count)
    bars = []
    for gang in np.argsort(trial.started, kind="stable").tolist():
        start, end = float(trial.started[gang]), float(trial.ended[gang])
        if np.isnan(start):
            continue
        end = trial.end if np.isnan(end) else end
        taken: list[int] = []
        for name, units in occupied_units(trial.gangs[gang], trial.unit):
            if name in drawn.lanes:
                node = drawn.lanes[name]
                taken += lanes.occupy(node, min(units, len(node)), start, end)
        bars += [_Bar(gang, run[0], len(run), start, end) for run in _stretches(sorted(taken))]
    return bars


def draw_gantt_charts(trials: Sequence[Trial], nodes: Sequence[Node]) -> tuple[Figure, ...]:
    """Draw a Gantt chart of gangs on nodes for each policy, all with the same nodes, time span and colors."""
    if not trials or not nodes:
        return ()
    drawn = select_chart_nodes(node_units(trials, nodes))
    bars = [lay_out_bars(trial, drawn) for trial in trials]
    shown = time_axis_end(trials)
    longer = [trial_bars for trial_bars in bars if len(trial_bars) > MAX_BARS_PER_POLICY]
    until = min([shown, *(trial_bars[MAX_BARS_PER_POLICY].start for trial_bars in longer)])
    colours = _Colours.of_trials(trials)
    return tuple(
        replace(
            _gantt(trial, drawn, [bar for bar in trial_bars if bar.start < until], colours, until),
            key=f"gantt-{number}",
        )
        for number, (trial, trial_bars) in enumerate(zip(trials, bars, strict=True))
    )


@dataclass(frozen=True, slots=True)
class _Colours:
    """The color of bars: by queue if there are several queues, otherwise by size."""

    names: tuple[str, ...]
    by_queue: bool
    bounds: tuple[int, ...]

    @staticmethod
    def of_trials(trials: Sequence[Trial]) -> "_Colours":
        area: Counter[str] = Counter()
        for trial in trials:
            area.update({gang.queue: 0 for gang in trial.gangs})
        if len(area) > 1:
            for trial in trials:
                for gang, units in zip(trial.gangs, trial.units.tolist(), strict=True):
                    area[gang.queue] += units
            largest = sorted(area, key=lambda queue: (-area[queue], queue))
            kept = sorted(largest[: SERIES - 1] if len(largest) > SERIES else largest, key=_natural)
            return _Colours((*kept, "other queues") if len(largest) > SERIES else tuple(kept), True, ())
        bounds = size_bounds(trials)[-SERIES:]
        return _Colours(tuple(size_class(bound, bounds) for bound in bounds), False, bounds)

    def color_index(self, trial: Trial, gang: int) -> int:
        if self.by_queue:
            queue = trial.gangs[gang].queue
            return self.names.index(queue) if queue in self.names else len(self.names) - 1
        return self.names.index(size_class(int(trial.units[gang]), self.bounds))


def _gantt(trial: Trial, drawn: ChartNodes, bars: Sequence[_Bar], colours: _Colours, until: float) -> Figure:
    unit = time_unit(until)
    groups: list[list[_Bar]] = [[] for _ in colours.names]
    for bar in bars:
        groups[colours.color_index(trial, bar.gang)].append(bar)
    data = [
        _trace(trial, group, name if colours.by_queue else format_size(name, trial.unit), index, unit)
        for index, (name, group) in enumerate(zip(colours.names, groups, strict=True))
        if group
    ]
    every = max(1, len(drawn.names) // 22)
    labelled = drawn.names[::every]
    layout = {
        "barmode": "overlay",
        "bargap": 0,
        "xaxis": time_axis(until),
        "yaxis": axis(
            "node",
            range=[drawn.lane_count, 0],
            tickvals=[(drawn.lanes[name].start + drawn.lanes[name].stop) / 2 for name in labelled],
            ticktext=list(labelled),
            showgrid=False,
        ),
        "shapes": [_rule(drawn.lanes[name].start) for name in drawn.names[1:]],
        "legend": {"title": {"text": "queue " if colours.by_queue else "gang size "}},
    }
    return Figure(
        "gantt",
        f"Gangs on nodes: {trial.policy}",
        _caption(trial, drawn, until),
        tuple(data),
        layout,
        height=int(min(1100, max(280, 120 + 14 * len(drawn.names)))),
    )


def _trace(trial: Trial, group: Sequence[_Bar], name: str, index: int, unit: TimeUnit) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": [round(bar.start / unit.seconds, 4) for bar in group],
        "x": [round((bar.end - bar.start) / unit.seconds, 4) for bar in group],
        "y": [bar.first + bar.lanes / 2 for bar in group],
        "width": [bar.lanes for bar in group],
        "customdata": [
            [
                trial.gangs[bar.gang].key,
                int(trial.units[bar.gang]),
                format_duration(bar.end - bar.start),
                format_duration(float(trial.wait[bar.gang])),
            ]
            for bar in group
        ],
        "hovertemplate": (
            f"<b>%{{customdata[0]}}</b><br>%{{customdata[1]}} {trial.unit}, runs %{{customdata[2]}}"
            f"<br>waited %{{customdata[3]}}<extra>{name}</extra>"
        ),
        "marker": {
            "color": series_color(index),
            "line": {"color": "$paper", "width": 0.5},
        },
    }


def _caption(trial: Trial, drawn: ChartNodes, until: float) -> str:
    high = "it has GPUs" if trial.unit == GPUS else "the most pods that it ever held"
    text = f"A row is a node, as high as {high}; a bar is a gang, gaps are idle."
    if len(drawn.names) < drawn.node_count:
        text += f" The first {len(drawn.names)} of {drawn.node_count} nodes are drawn."
    if until < trial.end:
        shown, whole = format_duration(until), format_duration(trial.end)
        text += f" Shown until {shown} of {whole}: double-click to see what was running on."
    return text


def format_size(size: str, unit: str) -> str:
    """Format the size of a gang with its unit, such as 1 pod or 3–4 pods."""
    return f"{size} {unit.removesuffix('s') if size == '1' else unit}"


def _rule(lane: int) -> dict[str, Any]:
    """Return a thin line between two nodes."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": lane,
        "y1": lane,
        "line": {"color": "$grid", "width": 0.5},
    }


def occupied_units(gang: GangRecord, unit: str) -> tuple[tuple[str, int], ...]:
    """Return the nodes of a gang, each with the number of GPUs or pods that the gang has on it."""
    if unit == GPUS and not gang.gpus:
        return ()
    return tuple((node, units) for node, units in gang.placements if units)


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

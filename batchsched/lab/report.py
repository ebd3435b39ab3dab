"""The report of a simulation: one HTML file that needs nothing else, not even a network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from plotly.offline import get_plotlyjs

from batchsched import __version__
from batchsched.lab.distributions import slowdown_by_size, wait_by_size
from batchsched.lab.figure import Figure, duration, frame
from batchsched.lab.gantt import gantts
from batchsched.lab.summary import FOOTNOTE, bars, metrics, table
from batchsched.lab.theme import DARK, LIGHT
from batchsched.lab.timelines import queue_length, resource_label, utilisation
from batchsched.lab.trial import Trial, resources, trials
from batchsched.model.node import Node
from batchsched.model.quantity import show
from batchsched.sim.result import RunResult

TEMPLATE = "report.html.j2"
_MOST_RESOURCES = 2


@dataclass(frozen=True, slots=True)
class About:
    """What a reader has to know of the runs.

    Args:
      workload: what was run.
      seed: of everything that was drawn.
      nodes: the cluster.
      facts: what else is worth saying, as (label, text).
    """

    workload: str
    seed: int
    nodes: tuple[Node, ...]
    facts: tuple[tuple[str, str], ...] = ()


def write(path: Path, results: Sequence[RunResult], about: About) -> None:
    """Write the report of runs of one workload under different policies.

    Raises:
      OSError: the file cannot be written.
    """
    path.write_text(render(results, about), encoding="utf-8")


def render(results: Sequence[RunResult], about: About) -> str:
    """Return the report as HTML; equal runs give equal bytes."""
    runs = trials(results)
    used = resources(runs)
    columns = metrics(used[0] if used else "cpu")
    sections = _sections(runs, used, about.nodes)
    side_by_side = tuple(bars(runs, metric) for metric in columns)
    drawn = [*side_by_side, *(figure for section in sections for figure in section.figures)]
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = page.from_string(files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8"))
    return template.render(
        title=f"batchsched: {about.workload}",
        facts=_facts(runs, results, about),
        columns=columns,
        rows=table(runs, columns),
        footnote=FOOTNOTE,
        bars=side_by_side,
        sections=sections,
        plotly=get_plotlyjs(),
        data=_json(
            {
                "themes": {"light": LIGHT, "dark": DARK},
                "frame": frame(),
                "figures": {
                    figure.key: {"data": figure.data, "layout": {**figure.layout, "height": figure.height}}
                    for figure in drawn
                },
            }
        ),
    )


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that belong together."""

    title: str
    figures: tuple[Figure, ...]


def _sections(runs: Sequence[Trial], used: Sequence[str], nodes: Sequence[Node]) -> tuple[Section, ...]:
    lines = tuple(utilisation(runs, resource) for resource in used[:_MOST_RESOURCES])
    sections = (
        Section("Over time", (*lines, queue_length(runs))),
        Section("By gang size", (wait_by_size(runs), slowdown_by_size(runs))),
        Section("Gangs on nodes", gantts(runs, nodes)),
    )
    return tuple(section for section in sections if section.figures)


def _facts(runs: Sequence[Trial], results: Sequence[RunResult], about: About) -> tuple[tuple[str, str], ...]:
    gangs = max((len(trial.gangs) for trial in runs), default=0)
    arrivals = max((float(trial.submitted.max()) for trial in runs if len(trial.gangs)), default=0.0)
    return (
        ("Workload", f"{about.workload}: {gangs:,} gangs arriving over {duration(arrivals)}"),
        ("Cluster", cluster(about.nodes)),
        ("Policies", ", ".join(trial.policy for trial in runs)),
        ("Sessions", ", ".join(f"{result.sessions:,}" for result in results)),
        *about.facts,
        ("Seed", str(about.seed)),
        ("Version", f"batchsched {__version__}"),
    )


def cluster(nodes: Sequence[Node]) -> str:
    """Say what a cluster is in a line: 64 nodes, 512 GPUs, 6144 CPUs, 64Ti memory."""
    totals: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.allocatable().items():
            totals[resource] = totals.get(resource, 0) + amount
    named = sorted(totals, key=lambda name: (not name.endswith("/gpu"), name))
    parts = [
        f"{show(name, totals[name])} {resource_label(name, plural=True)}"
        for name in named
        if totals[name] and (name in ("cpu", "memory") or name.endswith("/gpu"))
    ]
    return ", ".join([f"{len(nodes):,} {'node' if len(nodes) == 1 else 'nodes'}", *parts])


def _json(value: Any) -> str:
    """Write JSON that can stand in a script element: nothing in it can close the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")

"""The report of simulated runs: one self-contained HTML file that needs no network."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batchsched.api.core.node import Node
from batchsched.api.core.quantity import show
from batchsched.lab.distributions import slowdown_by_size, wait_by_size
from batchsched.lab.document import Cell, Document, Line, Section, Table, nonempty_sections
from batchsched.lab.figure import duration
from batchsched.lab.gantt import gantts
from batchsched.lab.summary import FOOTNOTE, Row, bars, metrics, table
from batchsched.lab.timelines import queue_length, resource_label, utilisation
from batchsched.lab.trial import Trial, resources, trials
from batchsched.simulator.result import RunResult

_MOST_RESOURCES: Final = 2
_NOTE: Final = (
    "The best of a column is bold. Waits, slowdowns and makespan are of gangs that ended; the makespan ends with the "
    "last of them."
)


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """Facts about the runs of a report.

    Args:
      workload: The name of the workload.
      seed: The seed of all random draws.
      nodes: The nodes of the cluster.
      facts: Other facts, as (label, text).
    """

    workload: str
    seed: int
    nodes: tuple[Node, ...]
    facts: tuple[tuple[str, str], ...] = ()


def write(path: Path, results: Sequence[RunResult], about: ReportFacts) -> None:
    """Write the report of runs of one workload under different policies.

    Raises:
      OSError: the file cannot be written.
    """
    path.write_text(render(results, about), encoding="utf-8")


def render(results: Sequence[RunResult], about: ReportFacts) -> str:
    """Return the HTML of the report; equal runs give equal bytes."""
    runs = trials(results)
    used = resources(runs)
    columns = metrics(used[0] if used else "cpu")
    return Document(
        title=f"batchsched: {about.workload}",
        facts=_facts(runs, results, about),
        tables=(
            Table(
                title="",
                head="Policy",
                columns=tuple(metric.title for metric in columns),
                lines=tuple(
                    Line(row.policy, tuple(Cell(*pair) for pair in _told(row)))
                    for row in table(runs, columns)
                ),
                note=f"{_NOTE} {FOOTNOTE}",
            ),
        ),
        bars=Section("Policies side by side", tuple(bars(runs, metric) for metric in columns)),
        sections=_sections(runs, used, about.nodes),
    ).render()


def _told(row: Row) -> tuple[tuple[str, str, bool], ...]:
    return tuple((text, "", best) for text, best in zip(row.texts, row.best, strict=True))


def _sections(runs: Sequence[Trial], used: Sequence[str], nodes: Sequence[Node]) -> tuple[Section, ...]:
    lines = tuple(utilisation(runs, resource) for resource in used[:_MOST_RESOURCES])
    return nonempty_sections(
        (
            Section("Over time", (*lines, queue_length(runs))),
            Section("By gang size", (wait_by_size(runs), slowdown_by_size(runs))),
            Section("Gangs on nodes", gantts(runs, nodes)),
        )
    )


def _facts(
    runs: Sequence[Trial], results: Sequence[RunResult], about: ReportFacts
) -> tuple[tuple[str, str], ...]:
    gangs = max((len(trial.gangs) for trial in runs), default=0)
    arrivals = max((float(trial.submitted.max()) for trial in runs if len(trial.gangs)), default=0.0)
    return (
        ("Workload", f"{about.workload}: {gangs:,} gangs arriving over {duration(arrivals)}"),
        ("Cluster", cluster(about.nodes)),
        ("Policies", ", ".join(trial.policy for trial in runs)),
        ("Sessions", ", ".join(f"{result.sessions:,}" for result in results)),
        *about.facts,
        ("Seed", str(about.seed)),
    )


def cluster(nodes: Sequence[Node]) -> str:
    """Describe a cluster in one line: 64 nodes, 512 GPUs, 6144 CPUs, 64Ti memory."""
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

"""The pipeline: microseconds for each pod by plugin and extension point, sessions pod by pod, and their growth.

All times are CPU times. The workloads are those of scheduler_perf that can be built here. Its published figures
are of a whole kube-scheduler with its API server on other machines, so that only their magnitude can be compared.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from batchsched.config.schema import Profile
from batchsched.framework.runtime.registry import standard_registry
from bench.pipeline.clusters import BY_NAME, WORKLOADS, snapshot
from bench.pipeline.points import WHOLE, Seconds, by_point
from bench.pipeline.sessions import of_a_class, same, second_session, session
from bench.pipeline.specs import distinct_anti_affinity, distinct_cpu, distinct_mix, spec_session

REFERENCE = 5000
SPECS_MOST = 12e6
"""CPU microseconds that a session over 2,000 different specs may take at 5,000 nodes; at 1,000 nodes it is 5e6."""
BASIC = BY_NAME["SchedulingBasic"]


@dataclass(frozen=True, slots=True)
class Line:
    """One measurement: microseconds at each number of nodes, the target at 5,000 nodes, and the published figure."""

    name: str
    micros: list[float]
    most: float | None = None
    published: str = ""

    def growth(self, nodes: Sequence[int]) -> float:
        """The exponent e of micros ~ nodes^e, by least squares over the logarithms."""
        if len(nodes) < 2:
            return math.nan
        logs = [(math.log(n), math.log(max(t, 1e-3))) for n, t in zip(nodes, self.micros, strict=True)]
        return statistics.linear_regression([x for x, _ in logs], [y for _, y in logs]).slope


def median(options: argparse.Namespace, measure: Callable[[int], float]) -> float:
    """Return the median over the repeats, each with its own seed, in microseconds."""
    seeds = range(options.seed, options.seed + options.repeats)
    return statistics.median(measure(seed) for seed in seeds) * 1e6


def points(options: argparse.Namespace, name: str) -> list[Line]:
    """Return a line for each plugin and extension point: the first pod at each number of nodes, and the next pods."""
    sizes = options.nodes
    found: dict[tuple[str, str], list[float]] = {}
    for at, nodes in enumerate(sizes):
        runs: list[tuple[Seconds, Seconds]] = []
        for seed in range(options.seed, options.seed + options.repeats):
            cluster = snapshot(BY_NAME[name], nodes, 51, seed)
            runs.append(by_point(cluster, standard_registry().create_pipeline(Profile()), 50))
        for which, place in enumerate((at, at + len(sizes))):
            for key in dict.fromkeys(key for run in runs for key in run[which]):
                micros = statistics.median(run[which].get(key, 0.0) for run in runs) * 1e6
                found.setdefault(key, [0.0] * (2 * len(sizes)))[place] = micros
    ordered = sorted(found, key=lambda key: (key == WHOLE, key))
    return [Line(" ".join(part for part in key if part), found[key]) for key in ordered]


def sessions(options: argparse.Namespace) -> list[Line]:
    """Return the lines with a target, by number of nodes."""

    def over(name: str, most: float | None, measure: Callable[[int, int], float]) -> Line:
        micros = [
            median(options, lambda seed, nodes=nodes: measure(nodes, seed))  # type: ignore[misc]
            for nodes in options.nodes
        ]
        return Line(name, micros, most)

    pods = options.pods
    return [
        over("the first pod of all", None, lambda nodes, seed: session(snapshot(BASIC, nodes, 1, seed)).seconds),
        over("a pod of a new class", 2000,
             lambda nodes, seed: second_session(snapshot(BASIC, nodes, 1, seed), forgetful=True)),
        over("a pod of a known class", 2000,
             lambda nodes, seed: second_session(snapshot(BASIC, nodes, 1, seed))),
        over("a class of 1", 5000, lambda nodes, seed: of_a_class(BASIC, nodes, 1, seed)),
        over(f"a class of {pods}", 5000, lambda nodes, seed: of_a_class(BASIC, nodes, pods, seed)),
        over(f"{pods} equal pods", 250.0 * pods,
             lambda nodes, seed: session(snapshot(BASIC, nodes, pods, seed)).seconds),
    ]  # fmt: skip


def specs(options: argparse.Namespace) -> list[Line]:
    """Return the lines of a session over pods with different specs: CPU microseconds of its tables and its decision."""
    lines = []
    by_name = {"cpu": distinct_cpu, "mix": distinct_mix, "anti-affinity": distinct_anti_affinity}
    for name, pod_of in by_name.items():
        tables, decide = [], []
        for nodes in options.nodes:
            runs = [
                spec_session(pod_of, nodes, options.specs, seed)
                for seed in range(options.seed, options.seed + options.repeats)
            ]
            tables.append(statistics.median(run.tables for run in runs) * 1e6)
            decide.append(statistics.median(run.decide for run in runs) * 1e6)
        lines += [
            Line(f"{options.specs} by {name}: tables", tables),
            Line(f"{options.specs} by {name}: decide", decide, SPECS_MOST),
        ]
    return lines


def workloads(options: argparse.Namespace) -> list[Line]:
    """Return the microseconds for each pod of the workloads of scheduler_perf."""
    found = []
    for one in WORKLOADS:
        pods = one.arrivals or options.pods // 5
        micros = [
            median(
                options,
                lambda seed, nodes=nodes, one=one, pods=pods: (  # type: ignore[misc]
                    session(snapshot(one, nodes, pods, seed)).seconds / pods
                ),
            )
            for nodes in options.nodes
        ]
        found.append(Line(one.name, micros, one.most and one.most * 1000, one.published))
    return found


def differing(options: argparse.Namespace) -> list[str]:
    """Return the workloads for which cached results lead to another decision than new ones; there must be none."""
    found = []
    for one in WORKLOADS:
        cluster = snapshot(one, min(500, max(options.nodes)), one.arrivals or 100, options.seed)
        if not same(session(cluster).decision, session(cluster, forgetful=True).decision):
            found.append(one.name)
    return found


def show(title: str, lines: Sequence[Line], nodes: Sequence[int]) -> None:
    """Print a table that fits a terminal: by points eight columns, else a column for each number of nodes."""
    print(f"\n{title}")
    if any(len(line.micros) > len(nodes) for line in lines):
        print(f"{'':<30}{'the first pod':>{6 * len(nodes)}}{'the next pods':>{6 * len(nodes) + 2}}")
        print(f"{'nodes':<30}" + 2 * "".join(f"{count:>6}" for count in nodes))
        for line in lines:
            print(f"{line.name:<30}" + "".join(f"{micros:>6.0f}" for micros in line.micros))
        return
    print(f"{'nodes':<27}" + "".join(f"{count:>9}" for count in nodes) + "  growth    most  pods/s published")
    for line in lines:
        figures = "".join(f"{micros:>9.0f}" for micros in line.micros)
        print(f"{line.name:<27}{figures}{line.growth(nodes):>8.2f}{_more(line, nodes)}")


def _more(line: Line, nodes: Sequence[int]) -> str:
    here = line.micros[nodes.index(REFERENCE)] if REFERENCE in nodes else math.nan
    allowed = f"{line.most:.0f}" if line.most else ""
    rate = f"{1e6 / here:.0f}" if line.published and here > 0 else ""
    missed = " MISSED" if line.most and here > line.most else ""
    return f"{allowed:>8}{rate:>8} {line.published}{missed}"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    found = argparse.ArgumentParser("python -m bench pipeline", description=__doc__)
    found.add_argument(
        "--nodes", default="100,1000,5000,15000", type=lambda text: [int(part) for part in text.split(",")]
    )
    found.add_argument(
        "--pods", type=int, default=1000, help="equal pods that are placed; workloads: a fifth"
    )
    found.add_argument("--specs", type=int, default=2000, help="pods of distinct specs in one session")
    found.add_argument("--repeats", type=int, default=5, help="the number of seeds; their median is shown")
    found.add_argument("--seed", type=int, default=0, help="the first seed")
    found.add_argument(
        "--only", choices=("points", "sessions", "specs", "workloads"), help="one of the tables"
    )
    found.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return found


def main(arguments: list[str]) -> int:
    """Run the bench and print the figures; return 1 if cached results lead to another decision than new ones."""
    options = parser().parse_args(arguments)
    tables: dict[str, Callable[[], list[Line]]] = {
        "points: a plain pod": lambda: points(options, "SchedulingBasic"),
        "points: a pod that asks for everything": lambda: points(options, "Everything"),
        "sessions: in all": lambda: sessions(options),
        "specs: a session over pods that all differ": lambda: specs(options),
        "workloads: a pod through decide; published: kube-scheduler elsewhere": (lambda: workloads(options)),
    }
    chosen = {title: made for title, made in tables.items() if title.startswith(options.only or "")}
    results: dict[str, list[Line]] = {}
    for title, made in chosen.items():
        results[title] = made()
        if options.output == "table":
            show(f"{title} (CPU microseconds)", results[title], options.nodes)
    elsewhere = differing(options)
    if options.output == "json":
        found = {title: [asdict(line) for line in lines] for title, lines in results.items()}
        print(json.dumps({"nodes": options.nodes, "tables": found, "differing": elsewhere}))
    else:
        print(f"\nkept answers and fresh ones differ in: {', '.join(elsewhere) or 'no workload'}")
    return 1 if elsewhere else 0

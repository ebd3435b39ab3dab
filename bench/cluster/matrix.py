"""The matrix: rows of jobs × pods, each under several schedulers, one after the other, with ratios of the same run.

CPU counts up to the last binding. The CPU of Events is a column of its own: they follow the bindings, so that the cost
of one is measured after the last binding, and subtracted for those that were written before. kube-scheduler writes its
Events between the bindings, so that its CPU includes them. The CPU of the API server measures the speed of the machine:
on a machine with a changing speed, compare ratios to it.

With `--rate`, pods are created at a fixed rate while a scheduler runs. CPU then counts from the first pod until all
Events are written, for each scheduler.
"""

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.cluster.trial import Creation, Outcome, run
from bench.cluster.workload import Row

ROWS = ("10000x1", "500x20", "20x500", "1x10000")
SCHEDULERS = ("floor", "kube-scheduler", "batchsched")
KUBE_REFERENCE = 488.0
"""Pods a second of kube-scheduler on 10000 × 1 on the machine where Volcano's figures were measured."""
VOLCANO = {"500 x 20": 221.0, "20 x 500": 254.0, "1 x 10000": 144.0}
"""Pods a second of Volcano there, by row."""


def main(arguments: Sequence[str]) -> int:
    """Run the matrix and print it."""
    options = _parser().parse_args(arguments)
    if options.rate and (options.rows or options.live):
        _parser().error("--rate replaces the rows; leave out --rows and --live")
    console = Console(stderr=True)
    outcomes: list[Outcome] = []
    for row, creation in _runs(options):
        for scheduler in options.schedulers:
            if scheduler == "floor" and (creation.live or row.size > 1):
                continue
            if scheduler == "kube-scheduler" and row.size > 1:
                continue
            console.print(f"{row.name} under {scheduler}{_suffix(creation)} …")
            outcomes.append(run(scheduler, row, options.nodes, creation))
    if options.output == "json":
        print(json.dumps([_plain(outcome) for outcome in outcomes], indent=2))
    elif options.rate:
        _print_rates(outcomes)
    else:
        _print(outcomes)
    return 0


def _runs(options: argparse.Namespace) -> Iterator[tuple[Row, Creation]]:
    if options.rate:
        for rate in options.rate:
            yield Row(round(rate * options.seconds), 1), Creation(live=True, rate=rate)
        return
    for live in (False, True) if options.live else (False,):
        for row in options.rows or map(_row, ROWS):
            yield row, Creation(live)


def _suffix(creation: Creation) -> str:
    if creation.rate:
        return f", {creation.rate:g} pods per second"
    return ", live" if creation.live else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench cluster", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows", nargs="+", type=_row, metavar="JOBSxPODS", help=f"default: {' '.join(ROWS)}"
    )
    parser.add_argument("--schedulers", nargs="+", default=list(SCHEDULERS), choices=SCHEDULERS)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument(
        "--live", action="store_true", help="also with pods that are created while the scheduler runs"
    )
    parser.add_argument(
        "--rate",
        nargs="+",
        type=_positive,
        default=[],
        metavar="PODS",
        help="instead of the rows: single pods that are created at these rates, in pods per second",
    )
    parser.add_argument(
        "--seconds", type=_positive, default=30.0, help="how long pods are created at each rate; default: 30"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


def _row(text: str) -> Row:
    jobs, _, size = text.partition("x")
    if not (jobs.isdecimal() and size.isdecimal() and int(jobs) and int(size)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected jobs x pods of each, e.g. 500x20")
    return Row(int(jobs), int(size))


def _positive(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0")


def _plain(one: Outcome) -> dict[str, Any]:
    derived = {"rate": one.rate, "binding_cpu": one.binding_cpu, "events_cpu": one.events_cpu}
    return {**asdict(one), **derived}


def _print(found: Sequence[Outcome]) -> None:
    table = Table("jobs × pods", "scheduler", box=None)
    for title in ("s", "pods/s", "first s", "P50 s", "P99 s", "CPU s", "Events CPU s", "API CPU s", "MiB"):
        table.add_column(title, justify="right")
    for one in found:
        table.add_row(
            one.row + (" live" if one.creation.live else ""),
            one.scheduler,
            f"{one.seconds:.1f}",
            f"{one.rate:.0f}",
            f"{one.first:.1f}",
            f"{one.p50:.2f}",
            f"{one.p99:.2f}",
            f"{one.binding_cpu:.1f}",
            f"{one.events_cpu:.1f}" if one.reports.apart else "",
            f"{one.server_cpu:.1f}",
            f"{one.rss:.0f}",
        )
    Console(width=110 if not sys.stdout.isatty() else None).print(table)
    for line in _ratios(found):
        print(line)


def _print_rates(outcomes: Sequence[Outcome]) -> None:
    table = Table("pods/s created", "scheduler", "pods", box=None)
    for title in ("pods/s bound", "P50 s", "P99 s", "CPU s", "MiB"):
        table.add_column(title, justify="right")
    for outcome in outcomes:
        table.add_row(
            f"{outcome.creation.rate:g}",
            outcome.scheduler,
            str(outcome.pods),
            f"{outcome.rate:.0f}",
            f"{outcome.p50:.3f}",
            f"{outcome.p99:.3f}",
            f"{outcome.total_cpu:.1f}",
            f"{outcome.rss:.0f}",
        )
    Console(width=100 if not sys.stdout.isatty() else None).print(table)
    for line in _rate_ratios(outcomes):
        print(line)


def _rate_ratios(outcomes: Sequence[Outcome]) -> list[str]:
    """Compare batchsched with kube-scheduler at each rate."""
    kube = {outcome.creation.rate: outcome for outcome in outcomes if outcome.scheduler == "kube-scheduler"}
    return [
        f"{outcome.creation.rate:g} pods per second: P50 {outcome.p50 / other.p50:.1f} times, P99 "
        f"{outcome.p99 / other.p99:.1f} times, CPU {outcome.total_cpu / other.total_cpu:.0%} of kube-scheduler"
        for outcome in outcomes
        if outcome.scheduler == "batchsched"
        and (other := kube.get(outcome.creation.rate)) is not None
        and other.total_cpu
    ]


def _ratios(found: Sequence[Outcome]) -> list[str]:
    """Compare what was measured in this run; Volcano's figures are moved here by kube-scheduler's."""
    before = [one for one in found if not one.creation.live]
    floor = next((one for one in before if one.scheduler == "floor"), None)
    kube = next((one for one in before if one.scheduler == "kube-scheduler"), None)
    lines: list[str] = []
    for one in before:
        if one.scheduler != "batchsched":
            continue
        said = []
        if floor is not None:
            said.append(f"{one.rate / floor.rate:.0%} of the floor")
        if kube is not None and one.row == kube.row:
            said.append(f"{one.rate / kube.rate:.1f} times kube-scheduler")
        if kube is not None and one.row in VOLCANO:
            said.append(f"{one.rate / (VOLCANO[one.row] * kube.rate / KUBE_REFERENCE):.1f} times Volcano")
        if said:
            lines.append(f"{one.row}: {', '.join(said)}")
    return lines

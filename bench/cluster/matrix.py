"""The matrix: rows of jobs × pods, each under several schedulers, one after the other, with ratios of the same run.

CPU counts up to the last bind. Events are stated apart: they follow the binds, so that one costs what is spent after
the last bind until there is one for each pod, by their number; those that were written before are taken off.
kube-scheduler writes its Events among the binds: its CPU has them in it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.cluster.trial import Outcome, run
from bench.cluster.workload import Row

ROWS = ("10000x1", "500x20", "20x500", "1x10000")
SCHEDULERS = ("floor", "kube-scheduler", "batchsched")
KUBE_REFERENCE = 488.0
"""Pods a second of kube-scheduler on 10000 × 1 on the machine where Volcano's figures were measured."""
VOLCANO = {"500 x 20": 221.0, "20 x 500": 254.0, "1 x 10000": 144.0}
"""Pods a second of Volcano there, by row."""


def main(arguments: Sequence[str]) -> int:
    """Run the matrix and print it."""
    told = _parser().parse_args(arguments)
    console = Console(stderr=True)
    found: list[Outcome] = []
    for live in (False, True) if told.live else (False,):
        for row in told.rows:
            for scheduler in told.schedulers:
                if scheduler == "floor" and (live or row.size > 1):
                    continue
                if scheduler == "kube-scheduler" and row.size > 1:
                    continue
                console.print(f"{row.name} under {scheduler}{', live' if live else ''} …")
                found.append(run(scheduler, row, told.nodes, live=live))
    if told.output == "json":
        print(json.dumps([_plain(one) for one in found], indent=2))
    else:
        _print(found)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench cluster", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows", nargs="+", type=_row, default=[_row(one) for one in ROWS], metavar="JOBSxPODS"
    )
    parser.add_argument("--schedulers", nargs="+", default=list(SCHEDULERS), choices=SCHEDULERS)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--live", action="store_true", help="also with pods made while the scheduler runs")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


def _row(text: str) -> Row:
    jobs, _, size = text.partition("x")
    if not (jobs.isdecimal() and size.isdecimal() and int(jobs) and int(size)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected jobs x pods of each, e.g. 500x20")
    return Row(int(jobs), int(size))


def _plain(one: Outcome) -> dict[str, Any]:
    derived = {"rate": one.rate, "binding_cpu": one.binding_cpu, "events_cpu": one.events_cpu}
    return {**asdict(one), **derived}


def _print(found: Sequence[Outcome]) -> None:
    table = Table("jobs × pods", "scheduler", box=None)
    for title in ("s", "pods/s", "first s", "P50 s", "P99 s", "CPU s", "Events CPU s", "MiB"):
        table.add_column(title, justify="right")
    for one in found:
        table.add_row(
            one.row + (" live" if one.live else ""),
            one.scheduler,
            f"{one.seconds:.1f}",
            f"{one.rate:.0f}",
            f"{one.first:.1f}",
            f"{one.p50:.2f}",
            f"{one.p99:.2f}",
            f"{one.binding_cpu:.1f}",
            f"{one.events_cpu:.1f}" if one.reports.apart else "",
            f"{one.rss:.0f}",
        )
    Console(width=100 if not sys.stdout.isatty() else None).print(table)
    for line in _ratios(found):
        print(line)


def _ratios(found: Sequence[Outcome]) -> list[str]:
    """Compare what was measured in this run; Volcano's figures are moved here by kube-scheduler's."""
    before = [one for one in found if not one.live]
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

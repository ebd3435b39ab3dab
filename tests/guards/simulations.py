"""What simulations of small workloads come to, through the command line alone: figures by policy, and digests."""

import hashlib
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.guards.surface import run
from tests.lab.scenarios import stated, written

SIGNIFICANT: Final = 10
"""Digits to which figures are compared."""
JOBS: Final = 90
PROCESSORS: Final = 64
ORDERS: Final = ("priority", "fcfs", "sjf", "saf", "wfp3", "f1", "headroom:share=0.25")
FEW_ORDERS: Final = ("fcfs", "saf", "headroom:share=0.25")
BATCH: Final[dict[str, list[str]]] = {
    "easy": ["--backfill", "easy"],
    "none": ["--backfill", "none"],
    "interval": ["--session-interval", "600", "--session-window", "20"],
    "windows": ["--jobs", "30", "--starts", "0,20,50"],
}
GENERATE: Final = ("--gangs", "50", "--nodes", "6", "--load", "3", "--seed", "3")
GENERATED: Final[dict[str, list[str]]] = {
    "ordered": ["--policy", "fcfs", "--policy", "sjf", "--policy", "headroom"],
    "weight": ["--selection", "weight", "--session-interval", "600"],
    "failures": ["--hours-between-failures", "30", "--policy", "saf"],
    "overestimated": ["--overestimate", "2", "--policy", "fcfs", "--policy", "sjf"],
}


def lines() -> Iterator[str]:
    """Return a line for each run: its figures, or a digest where they are many."""
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "guard.swf"
        trace.write_text(batch_trace())
        for name, options in BATCH.items():
            orders = ORDERS if name == "easy" else FEW_ORDERS
            stated_orders = [argument for order in orders for argument in ("--policy", order)]
            arguments = ["simulate", "swf", str(trace), *stated_orders, *options]
            yield from _simulated(f"swf-{name}", arguments)
        for name, options in GENERATED.items():
            arguments = ["simulate", "generate", *GENERATE, *options]
            yield from _simulated(f"generate-{name}", arguments)
        yield from _lab(Path(directory))


def batch_trace() -> str:
    """Return a trace in the Standard Workload Format: arrivals in bursts, small and large jobs, poor estimates."""
    dice = random.Random("guards")
    rows, now = [f"; MaxProcs: {PROCESSORS}"], 0
    for number in range(1, JOBS + 1):
        now += dice.choice([0, 0, 5, 60, 600])
        runtime = dice.choice([10, 60, 300, 3600, 7200]) + dice.randint(0, 9)
        size = min(PROCESSORS, dice.choice([1, 1, 2, 4, 8, 16, 32, 64]))
        estimate = runtime * dice.choice([1, 1, 2, 5])
        user = dice.randint(1, 5)
        rows.append(f"{number} {now} -1 {runtime} {size} -1 -1 {size} {estimate} -1 1 {user} 1 -1 1 -1 -1 -1")
    return "\n".join(rows) + "\n"


def _simulated(name: str, arguments: list[str]) -> Iterator[str]:
    code, printed = run([*arguments, "--processes", "1", "-o", "json"])
    assert code == 0, name
    content = json.loads(printed)
    for policy in content["policies"]:
        yield f"{name} {policy['policy']}: {_text(_figures(policy))}"
    if content.get("differences"):
        yield f"{name} differences: {_digest(content['differences'])}"


def _lab(directory: Path) -> Iterator[str]:
    more = [{"name": "weight", "profile": {"selection": "weight", "backfill": "none"}}]
    scenario = written(directory / "guard.yaml", policies=[*stated()["policies"], *more])
    code, printed = run(
        ["lab", "run", str(scenario), "--to", str(directory / "out"), "--processes", "1", "-o", "json"]
    )
    assert code == 0
    for policy in json.loads(printed)["policies"]:
        for measure, value in sorted(policy["measures"].items()):
            yield f"lab {policy['policy']} {measure}: {_text(_figures(value))}"
        yield f"lab {policy['policy']} differences: {_digest(policy.get('differences'))}"


def _figures(value: Any) -> Any:
    """Round figures, and leave out what a run took."""
    if isinstance(value, dict):
        return {name: _figures(part) for name, part in value.items() if "seconds" not in name.lower()}
    if isinstance(value, list):
        return [_figures(part) for part in value]
    return float(f"{value:.{SIGNIFICANT}g}") if isinstance(value, float) else value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _digest(value: Any) -> str:
    return hashlib.sha256(_text(_figures(value)).encode()).hexdigest()[:12]

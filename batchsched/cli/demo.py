"""`batchsched demo`: one session explained, then a day under several policies, in about a minute."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from batchsched.cli.options import writable
from batchsched.config.schema import PolicySettings, Profile

if TYPE_CHECKING:
    from batchsched.simulator.generator import Recipe
    from batchsched.simulator.result import RunResult
    from batchsched.simulator.workload import Workload

EXAMPLES = """Examples:

batchsched demo

batchsched demo --report day.html
"""

NOW: Final = 1_767_603_600.0
"""2026-01-05 09:00 UTC, an hour after the jobs of the examples were made: the demo repeats."""
GANGS: Final = 800


@dataclass(frozen=True, slots=True)
class Day:
    """What the simulated day is drawn from.

    Args:
      seed: of the draw.
      load: makes 800 gangs of this seed arrive within 24 hours, with work for more than two days.
      overestimate: users state twice the run time, in the mean: a policy given exact times would be flattered.
    """

    seed: int = 3
    load: float = 2.33
    overestimate: float = 1.0


DAY: Final = Day()


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy of the day.

    Args:
      name: how it is shown.
      told: what it does, in a line.
      profile: how it schedules.
    """

    name: str
    told: str
    profile: Profile


_FCFS: Final = PolicySettings(name="fcfs")
CONTENDERS: Final = (
    Contender(
        "FIFO",
        "first come, first served; a gang that does not fit blocks all behind it",
        Profile(selection="ordered", policy=_FCFS, blocking=True),
    ),
    Contender(
        "FIFO-greedy",
        "first come, first served; whatever fits starts",
        Profile(selection="ordered", policy=_FCFS),
    ),
    Contender(
        "batchsched",
        "headroom for short gangs, a reservation for who is next",
        Profile(selection="ordered", policy=PolicySettings(name="headroom"), backfill="easy"),
    ),
)


def demo(
    report: Annotated[
        Path,
        typer.Option(
            "--report", metavar="FILE", help="Where the HTML report goes.", dir_okay=False, callback=writable
        ),
    ] = Path("demo-report.html"),
    examples: Annotated[
        Path | None,
        typer.Option(
            "--examples",
            metavar="DIR",
            help="Manifests for the session; default: examples/ of the checkout.",
            exists=True,
            show_default=False,
        ),
    ] = None,
    gangs: Annotated[int, typer.Option("--gangs", min=1, help="Gangs of the day.")] = GANGS,
) -> None:
    """Show what batchsched does: one session over example manifests, then a simulated day.

    The day is a generated machine-learning workload on 64 nodes with 8 GPUs each, under first come, first served
    and under batchsched's own policy. It ends with a table and the path of an HTML report.
    """
    from batchsched.cli.printing import console

    out = console()
    out.rule("1. One session: gangs are placed whole, or refused with the reason", align="left")
    _session(examples or _examples())
    workload = _workload(gangs)
    out.rule("2. A day on 64 nodes with 8 GPUs each", align="left")
    out.print(
        f"{len(workload.arrivals)} gangs of 1 to 128 GPUs arrive in {_hours(workload):.0f} hours and bring "
        f"{DAY.load:.1f} times the work that the cluster does in that time.\n"
    )
    results = [_day(contender, workload) for contender in CONTENDERS]
    _conclude(report, results, workload)


def _session(examples: Path) -> None:
    """Decide one session over the examples, and point to what explains more."""
    from batchsched.cli.printing import console
    from batchsched.cli.session import run_session
    from batchsched.cli.tables import print_decision

    session = run_session([examples], None, None, 0, NOW)
    print_decision(session)
    if session.decision.refusals:
        refused = session.decision.refusals[-1].pod_group
        console().print(
            f"More on one of them: batchsched explain {examples} --pod-group {refused}", soft_wrap=True
        )
    console().print()


def _day(contender: Contender, workload: "Workload") -> "RunResult":
    """Run the day under one policy, with a progress bar where somebody watches."""
    from batchsched.cli.printing import console
    from batchsched.cli.stopwatch import Stopwatch
    from batchsched.lab.simulation import simulate
    from batchsched.simulator.run import RunSettings

    stopwatch = Stopwatch()
    try:
        with stopwatch.stage("day"):
            result = simulate(
                workload,
                contender.profile,
                RunSettings(contender.name, DAY.seed),
                lambda done, total: stopwatch.progress(done, total, contender.name),
            )
    finally:
        stopwatch.close()
    console().print(
        f"  {contender.name}: {contender.told}\n"
        f"    {result.sessions:,} sessions in {stopwatch.seconds('day'):.1f} s",
        soft_wrap=True,
    )
    return result


def _conclude(report: Path, results: list["RunResult"], workload: "Workload") -> None:
    """Print the figures side by side, and write the report."""
    from batchsched.cli.printing import console
    from batchsched.cli.trials import Tried, print_side_by_side
    from batchsched.lab.report import ReportFacts, write

    out = console()
    out.print()
    out.rule("3. Side by side", align="left")
    print_side_by_side([Tried(one.policy, (one,)) for one in results], "")
    out.print("Waits are from submission to start; a slowdown of 1 is no wait at all.")
    facts = (
        ("Load", f"{DAY.load:g} times the GPU time that the cluster has while gangs arrive"),
        ("Estimates", f"exceed run times by {DAY.overestimate:.0%} in the mean"),
        *((one.name, one.told) for one in CONTENDERS),
    )
    write(
        report,
        results,
        ReportFacts("a generated day of machine learning", DAY.seed, workload.cluster.nodes, facts),
    )
    out.print(f"Report: {report.resolve()}", soft_wrap=True)


def recipe(gangs: int) -> "Recipe":
    """Return what the day is drawn from: 64 nodes with 8 GPUs each, and so many gangs."""
    from batchsched.simulator.generator import Recipe

    return Recipe(gangs, node_count=64, gpus_per_node=8, load=DAY.load, overestimate=DAY.overestimate)


def _workload(gangs: int) -> "Workload":
    from batchsched.simulator.generator import generate

    return generate(recipe(gangs), DAY.seed)


def _hours(workload: "Workload") -> float:
    return (workload.arrivals[-1].at - workload.arrivals[0].at) / 3600


def _examples() -> Path:
    """Return the examples of the checkout.

    Raises:
      BadParameter: there is none, as when batchsched was installed without its sources.
    """
    for place in (Path("examples"), Path(__file__).parents[2] / "examples"):
        if place.is_dir():
            return place
    raise typer.BadParameter(
        "the examples are part of the sources, and are not here; say where with --examples"
    )

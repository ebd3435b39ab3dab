"""`batchsched demo`: explain one session, then simulate a day under several policies, in about a minute."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from batchsched.cli.options import check_writable
from batchsched.config.schema import PolicySettings, Profile

if TYPE_CHECKING:
    from batchsched.simulator.generator import GeneratorSettings
    from batchsched.simulator.result import RunResult
    from batchsched.simulator.workload import Workload

EXAMPLES = """Examples:

batchsched demo

batchsched demo --report day.html
"""

NOW: Final = 1_767_603_600.0
"""2026-01-05 09:00 UTC, one hour after the creation of the example jobs; a fixed time makes the demo repeatable."""
GANGS: Final = 800


SEED: Final = 3
"""Seed of the generated workload of the simulated day."""
LOAD: Final = 2.33
"""Requested GPU time divided by available GPU time.

At 2.33, 800 gangs of this seed arrive within 24 hours and bring work for more than two days."""
OVERESTIMATE: Final = 1.0
"""Mean excess of the estimate over the run time, as a share of the run time.

With exact estimates, backfill looks better than it is in practice."""


@dataclass(frozen=True, slots=True)
class DemoPolicy:
    """A policy that `batchsched demo` compares with others.

    Args:
      name: the name in tables and in the report.
      description: one line that describes the policy.
      profile: the profile that the simulation uses.
    """

    name: str
    description: str
    profile: Profile


_FCFS: Final = PolicySettings(name="fcfs")
DEMO_POLICIES: Final = (
    DemoPolicy(
        "FIFO",
        "first come, first served; a gang that does not fit blocks later gangs",
        Profile(selection="ordered", policy=_FCFS, blocking=True),
    ),
    DemoPolicy(
        "FIFO-greedy",
        "first come, first served; every gang that fits starts",
        Profile(selection="ordered", policy=_FCFS),
    ),
    DemoPolicy(
        "batchsched",
        "headroom for short gangs, a reservation for the next gang",
        Profile(selection="ordered", policy=PolicySettings(name="headroom"), backfill="easy"),
    ),
)


def demo(
    report: Annotated[
        Path,
        typer.Option(
            "--report",
            metavar="FILE",
            help="Path of the HTML report.",
            dir_okay=False,
            callback=check_writable,
        ),
    ] = Path("demo-report.html"),
    examples: Annotated[
        Path | None,
        typer.Option(
            "--examples",
            metavar="DIR",
            help="Manifests for the session; default: examples/ of the source checkout.",
            exists=True,
            show_default=False,
        ),
    ] = None,
    gangs: Annotated[
        int, typer.Option("--gangs", min=1, help="Number of gangs that arrive during the day.")
    ] = GANGS,
) -> None:
    """Show what batchsched does: one session over example manifests, then a simulated day.

    The day is a generated machine-learning workload on 64 nodes with 8 GPUs each. The demo runs it first come, first
    served, and under batchsched's own policy. It ends with a table and the path of an HTML report.
    """
    from batchsched.cli.printing import console
    from batchsched.simulator.generator import generate_workload

    out = console()
    out.print("1. One session: gangs are placed whole, or refused with the reason\n", style="bold")
    _run_session(examples or _examples_directory())
    workload = generate_workload(generator_settings(gangs), SEED)
    hours = (workload.arrivals[-1].time - workload.arrivals[0].time) / 3600
    out.print("2. A day on 64 nodes with 8 GPUs each\n", style="bold")
    out.print(
        f"{len(workload.arrivals)} gangs of 1 to 128 GPUs arrive in {hours:.0f} hours and request "
        f"{LOAD:.1f} times the GPU time of the cluster in that period.\n"
    )
    results = [_run_policy(contender, workload) for contender in DEMO_POLICIES]
    _print_results(report, results, workload)


def _run_session(examples: Path) -> None:
    """Decide one session over the examples, and print the command that explains a refused PodGroup."""
    from batchsched.cli.printing import console, print_decision
    from batchsched.cli.session import run_session

    session = run_session([examples], None, None, 0, NOW).with_explained_refusals()
    print_decision(session)
    if session.decision.refusals:
        refused = session.decision.refusals[-1].pod_group
        console().print(
            f"For details, run: batchsched explain {examples} --pod-group {refused}", soft_wrap=True
        )
    console().print()


def _run_policy(contender: DemoPolicy, workload: "Workload") -> "RunResult":
    """Simulate the day under one policy; on a terminal, with a progress bar."""
    from batchsched.cli.printing import console
    from batchsched.cli.session import Stopwatch
    from batchsched.lab.simulation import simulate
    from batchsched.simulator.run import RunSettings

    stopwatch = Stopwatch()
    try:
        with stopwatch.time_stage("day"):
            result = simulate(
                workload,
                contender.profile,
                RunSettings(contender.name, SEED),
                lambda done, total: stopwatch.report_progress(done, total, contender.name),
            )
    finally:
        stopwatch.close()
    console().print(
        f"  {contender.name}: {contender.description}\n"
        f"    {result.sessions:,} sessions in {stopwatch.seconds('day'):.1f} s",
        soft_wrap=True,
    )
    return result


def _print_results(report: Path, results: list["RunResult"], workload: "Workload") -> None:
    """Print the figures of all policies in one table, and write the report."""
    from batchsched.cli.outcomes import print_side_by_side
    from batchsched.cli.printing import console
    from batchsched.lab.report import render_simulation
    from batchsched.lab.simulation import build_outcome

    out = console()
    out.print()
    out.print("3. Side by side\n", style="bold")
    cluster = workload.cluster
    outcomes = [build_outcome(result, cluster.queues, SEED) for result in results]
    print_side_by_side([(outcome,) for outcome in outcomes], "")
    out.print("A wait lasts from submission to start; a slowdown of 1 means no wait.")
    facts = (
        ("Load", f"{LOAD:g} times the GPU time of the cluster during the arrivals"),
        ("Estimates", f"exceed run times by {OVERESTIMATE:.0%} on average"),
        *((item.name, item.description) for item in DEMO_POLICIES),
    )
    html = render_simulation("a generated day of machine-learning jobs", outcomes, cluster.nodes, facts)
    report.write_text(html, encoding="utf-8")
    out.print(f"Report: {report.resolve()}", soft_wrap=True)


def generator_settings(gangs: int) -> "GeneratorSettings":
    """Return the settings of the demo's workload: 64 nodes with 8 GPUs each, and the given number of gangs."""
    from batchsched.simulator.generator import GeneratorSettings

    return GeneratorSettings(
        gangs,
        node_count=64,
        gpus_per_node=8,
        load=LOAD,
        overestimate=OVERESTIMATE,
    )


def _examples_directory() -> Path:
    """Return the directory of the example manifests in a checkout.

    Raises:
      BadParameter: batchsched was installed without its sources, so there are no examples.
    """
    for place in (Path("examples"), Path(__file__).parents[2] / "examples"):
        if place.is_dir():
            return place
    raise typer.BadParameter(
        "found no directory examples/, which only a source checkout has; name a directory of manifests with "
        "--examples"
    )

"""`batchsched demo`: explain one session, then simulate a day under four policies, and state the trade-off."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from batchsched.cli.options import check_writable
from batchsched.cli.terminal import command_line_text
from batchsched.config.plugins import ALL, DisabledPlugin, Plugins, PluginSet
from batchsched.config.schema import PolicySettings, Profile

if TYPE_CHECKING:
    from batchsched.lab.measures import RunOutcome
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
GPU: Final = "nvidia.com/gpu"

SEED: Final = 3
"""Seed of the generated workload of the simulated day."""
LOAD: Final = 2.33
"""Requested GPU time divided by available GPU time during the arrivals.

At 2.33, 800 gangs of this seed arrive within 24 hours."""
OVERESTIMATE: Final = 1.0
"""Mean excess of the estimate over the run time, as a share of the run time.

With exact estimates, backfill looks better than it is in practice."""


@dataclass(frozen=True, slots=True)
class DemoPolicy:
    """One of the policies that `batchsched demo` simulates and compares.

    Args:
      name: the name in tables and in the report.
      description: one line that describes the policy.
      profile: the profile that the simulation uses.
    """

    name: str
    description: str
    profile: Profile


def _ordered_profile(
    policy: str, *, backfill: Literal["none", "easy"] = "none", blocking: bool = False
) -> Profile:
    """Return the profile of a policy of the demo. It evicts no pods: the policies differ in the order of gangs only."""
    return Profile(
        selection="ordered",
        policy=PolicySettings(name=policy),
        backfill=backfill,
        blocking=blocking,
        plugins=Plugins(post_filter=PluginSet(disabled=(DisabledPlugin(name=ALL),))),
    )


DEMO_POLICIES: Final = (
    DemoPolicy(
        "FIFO",
        "first come, first served; a gang that does not fit blocks all later ones",
        _ordered_profile("fcfs", blocking=True),
    ),
    DemoPolicy(
        "EASY",
        "as FIFO, but later gangs start if they do not delay the first one",
        _ordered_profile("fcfs", backfill="easy"),
    ),
    DemoPolicy(
        "SJF",
        "shortest estimated run time first; every gang that fits starts",
        _ordered_profile("sjf"),
    ),
    DemoPolicy(
        "headroom",
        "short and small gangs first; long gangs must leave some GPUs free",
        _ordered_profile("headroom", backfill="easy"),
    ),
)
"""Three common baselines, and last the policy that is compared with each of them."""


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
            help="Manifests for the session; default: the examples of batchsched.",
            exists=True,
            show_default=False,
        ),
    ] = None,
    gangs: Annotated[
        int, typer.Option("--gangs", min=1, help="Number of gangs; the rate of arrival stays the same.")
    ] = GANGS,
) -> None:
    """Explain one session over example manifests, then simulate a day under four policies.

    The policies are FIFO, EASY backfill, shortest job first (SJF) and batchsched's own headroom. The day is a
    generated machine-learning workload on 64 nodes with 8 GPUs each. The demo ends with a table, with sentences that
    state what was gained and what it cost, and with an HTML report.
    """
    from batchsched.cli.printing import console
    from batchsched.service.installation import packaged_folder
    from batchsched.simulator.generator import generate_workload

    out = console()
    out.print("1. One session: gangs are placed whole, or refused with the reason\n", style="bold")
    _run_session(examples or packaged_folder("examples"))
    workload = generate_workload(generator_settings(gangs), SEED)
    out.print("2. A day on 64 nodes with 8 GPUs each\n", style="bold")
    out.print(f"{describe_load(workload)}\n")
    results = [_run_policy(contender, workload) for contender in DEMO_POLICIES]
    _print_results(report, results, workload)


def _run_session(examples: Path) -> None:
    """Decide one session over the examples, and print the command that explains a refused PodGroup."""
    from batchsched.cli.printing import console, print_decision
    from batchsched.cli.session import decide_session_over_files

    if examples.is_relative_to(Path.cwd()):
        examples = examples.relative_to(Path.cwd())
    session = decide_session_over_files([examples], None, None, 0, NOW).with_explained_refusals()
    print_decision(session)
    if session.decision.refusals:
        namespace, _, name = session.decision.refusals[-1].pod_group.partition("/")
        command = f"batchsched explain {examples} podgroup/{name} -n {namespace}"
        console().print(f"For details, run: {command}", soft_wrap=True)
    console().print()


def describe_load(workload: "Workload") -> str:
    """Return sentences about the load of a workload: its gangs, their arrival period, and their GPUs.

    The sentences compare the GPUs that the gangs would use at a time, if none of them had to wait, with the GPUs of
    the cluster.
    """
    from batchsched.lab.figure import format_duration
    from batchsched.simulator.recorder import UsageRecorder

    nodes, arrivals = workload.cluster.nodes, workload.arrivals
    recorder = UsageRecorder(nodes)
    gpus = [recorder.count_gpus(arrival.pods) for arrival in arrivals]
    starts = [(arrival.time, count) for arrival, count in zip(arrivals, gpus, strict=True)]
    # At equal times ends come first: their count is negative.
    ends = [(arrival.time + arrival.runtime, -count) for arrival, count in zip(arrivals, gpus, strict=True)]
    peak = max(accumulate(change for _, change in sorted(starts + ends)))
    available = sum(node.parse_allocatable_in_base_units().get(GPU, 0) for node in nodes)
    span = format_duration(arrivals[-1].time - arrivals[0].time)
    load = (
        f"{len(arrivals)} gangs of {min(gpus)} to {max(gpus)} GPUs arrive in {span}. If none of them had to "
        f"wait, they would use up to {peak:,} GPUs at a time; the cluster has {available:,}."
    )
    if peak > available:
        return load
    return f"{load} The order makes no difference here: more gangs (--gangs) do."


def _run_policy(contender: DemoPolicy, workload: "Workload") -> "RunResult":
    """Simulate the day under one policy; on a terminal, with a progress bar."""
    from batchsched.cli.printing import console
    from batchsched.cli.session import CommandTelemetry
    from batchsched.lab.simulation import simulate_under_profile
    from batchsched.simulator.run import RunSettings

    stopwatch = CommandTelemetry()
    try:
        with stopwatch.stage_span("day"):
            result = simulate_under_profile(
                workload,
                contender.profile,
                RunSettings(contender.name, SEED),
                lambda done, total: stopwatch.on_progress(done, total, contender.name),
            )
    finally:
        stopwatch.close()
    console().print(
        f"  {contender.name}: {contender.description}\n"
        f"    {result.sessions:,} sessions in {stopwatch.stage_seconds('day'):.1f} s",
        soft_wrap=True,
    )
    return result


def _print_results(report: Path, results: list["RunResult"], workload: "Workload") -> None:
    """Print the figures of all policies in one table, state the trade-off, and write the report."""
    from batchsched.cli.outcomes import print_simulation_summary
    from batchsched.cli.printing import console
    from batchsched.lab.definitions import ReportedRunInput
    from batchsched.lab.report import render_simulation_report
    from batchsched.lab.simulation import build_outcome

    out = console()
    out.print()
    out.print("3. Side by side\n", style="bold")
    cluster = workload.cluster
    outcomes = [build_outcome(result, cluster.queues, SEED) for result in results]
    print_simulation_summary([(outcome,) for outcome in outcomes], "")
    out.print("A wait lasts from submission to start; a slowdown of 1 means no wait.\n")
    sentences = trade_off_sentences(outcomes)
    for sentence in sentences:
        out.print(sentence)
    out.print(
        "\nThis is one day of one workload. batchsched has all four policies, and `batchsched lab` compares policies "
        "over many workloads and seeds."
    )
    facts = (
        ("Load", describe_load(workload)),
        ("Estimates", f"exceed run times by {OVERESTIMATE:.0%} on average"),
    )
    settings = ReportedRunInput(
        command=command_line_text(),
        facts=facts,
        profiles={item.name: item.profile for item in DEMO_POLICIES},
        queues=cluster.queues,
        descriptions={item.name: item.description for item in DEMO_POLICIES},
        conclusion=tuple(sentences),
    )
    html = render_simulation_report(
        "a generated day of machine-learning jobs", outcomes, cluster.nodes, settings
    )
    report.write_text(html, encoding="utf-8")
    out.print(f"Report: {report.resolve()}", soft_wrap=True)


def trade_off_sentences(outcomes: Sequence["RunOutcome"]) -> tuple[str, ...]:
    """Compare the last policy with each of the other policies, and return one sentence per comparison.

    Each sentence states what the last policy improves and what it worsens.
    """
    from batchsched.lab.conclusion import trade_off_sentence
    from batchsched.lab.measures import summarize_run_outcomes

    rows = summarize_run_outcomes([(outcome,) for outcome in outcomes])
    *baselines, policy = names = [outcome.policy for outcome in outcomes]
    return tuple(trade_off_sentence(rows, names, baseline, policy) for baseline in baselines)


def generator_settings(gangs: int) -> "GeneratorSettings":
    """Return the generator settings of the demo's workload, for the given number of gangs.

    The cluster has 64 nodes with 8 GPUs each.
    """
    from batchsched.simulator.generator import GeneratorSettings

    return GeneratorSettings(
        gangs,
        node_count=64,
        gpus_per_node=8,
        load=LOAD,
        overestimate=OVERESTIMATE,
    )

"""`batchsched simulate`: a workload in virtual time, under one policy or several."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from batchsched.cli.options import Config, Files, Format, Now, Output, ProfileName, Seed, moment
from batchsched.cli.simulation_options import (
    Backfill,
    BackfillOption,
    BetweenFailures,
    Blocking,
    GpusPerNode,
    Interval,
    Nodes,
    Policies,
    Processes,
    Repair,
    Report,
    Selection,
    SelectionOption,
    Window,
)
from batchsched.cli.trials import Tried, base_profile, choices, print_trials, write_report
from batchsched.settings.schema import Profile

if TYPE_CHECKING:
    from batchsched.sim.workload import Workload

HELP = "Try policies on a workload in virtual time."
HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: workloads as functions, so that each is made where it runs."""

    name: str
    workloads: Sequence["Callable[[], Workload]"]
    policies: Sequence[str]
    base: Profile
    changes: dict[str, Any]
    seed: int
    interval: int
    processes: int | None


def swf(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A trace in the Standard Workload Format.", exists=True, dir_okay=False
        ),
    ],
    policy: Policies = None,
    backfill: BackfillOption = Backfill.EASY,
    processors: Annotated[
        int | None,
        typer.Option(
            min=1, help="One-slot nodes; default: what the trace's header states.", show_default=False
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Rows in each sequence; default: all that follow.", show_default=False),
    ] = None,
    starts: Annotated[
        str | None, typer.Option(metavar="ROW,...", help="Rows at which sequences begin, the first row is 0.")
    ] = None,
    windows: Annotated[int, typer.Option(min=0, help="Draw so many sequences, instead of --starts.")] = 0,
    window_seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 0,
    window_below: Annotated[
        int | None,
        typer.Option(
            min=1, help="Draw rows below; default: every row that a sequence fits behind.", show_default=False
        ),
    ] = None,
    session_window: Window = 500,
    session_interval: Interval = 0,
    processes: Processes = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: Seed = 0,
    output: Format = Output.TABLE,
) -> None:
    """Run a trace of rigid parallel jobs: each a gang of equal pods with one processor.

    With several sequences each begins on an empty cluster, and the figures are means over them.
    """
    from batchsched.sim import swf as trace_format
    from batchsched.sim.comparison import window_starts

    read = trace_format.read(trace)
    rows = read.rows
    size = processors or read.processors
    if not size:
        raise typer.BadParameter("the trace does not state its processors; say --processors")
    length = jobs or len(rows)
    if windows:
        begins = window_starts(windows, window_seed, window_below or len(rows) - length + 1)
    else:
        begins = _numbers(starts) if starts else (0,)
    beyond = [one for one in begins if one >= len(rows)]
    if beyond:
        raise typer.BadParameter(
            f"row {beyond[0]} is behind the last one, {len(rows) - 1}", param_hint="--starts"
        )
    made = [
        partial(trace_format.workload, rows[at : at + length], size, f"{trace.stem}[{at}:{at + length}]")
        for at in begins
    ]
    plan = Plan(
        trace.stem,
        made,
        policy or ["fcfs"],
        base_profile(config, profile, _ordered()),
        {
            "selection": "ordered",
            "backfill": backfill.value,
            "blocking": True,
            "session_window": session_window,
        },
        seed,
        session_interval,
        processes,
    )
    print_trials(_run(plan, detail=False), output, trace.stem)


def philly(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CSV with timestamp, duration, num_gpus and cluster, possibly gzipped.",
            exists=True,
            dir_okay=False,
        ),
    ],
    queues: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV whose first column names the clusters that count; default: all.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    first: Annotated[
        str | None, typer.Option(metavar="RFC3339", help="Arrivals from this moment on.")
    ] = None,
    last: Annotated[str | None, typer.Option(metavar="RFC3339", help="Arrivals up to this moment.")] = None,
    nodes: Nodes = 64,
    gpus_per_node: GpusPerNode = 8,
    pooled: Annotated[
        bool, typer.Option(help="One queue for all, or a queue for each virtual cluster.")
    ] = True,
    policy: Policies = None,
    backfill: BackfillOption = Backfill.NONE,
    blocking: Blocking = True,
    session_window: Window = 500,
    session_interval: Interval = 0,
    processes: Processes = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: Seed = 0,
    report: Report = None,
    output: Format = Output.TABLE,
) -> None:
    """Run Microsoft's Philly trace: gangs of pods with up to a node's GPUs."""
    from batchsched.sim import philly as trace_format

    period = trace_format.Period(
        moment(first) if first else float("-inf"), moment(last) if last else float("inf")
    )
    rows = trace_format.read(trace, trace_format.read_queues(queues) if queues else (), period)
    if not rows:
        raise typer.BadParameter("no job of the trace counts; look at --queues, --first and --last")
    plan = Plan(
        trace.stem.removesuffix(".csv"),
        [
            partial(
                trace_format.workload,
                rows,
                nodes,
                gpus_per_node,
                trace.stem.removesuffix(".csv"),
                pooled=pooled,
            )
        ],
        policy or ["fcfs"],
        base_profile(config, profile, _ordered()),
        {
            "selection": "ordered",
            "backfill": backfill.value,
            "blocking": blocking,
            "session_window": session_window,
        },
        seed,
        session_interval,
        processes,
    )
    _show(plan, report, output)


def generate(
    gangs: Annotated[int, typer.Option(min=1, help="Gangs that arrive.")] = 1000,
    nodes: Nodes = 32,
    gpus_per_node: GpusPerNode = 8,
    load: Annotated[
        float, typer.Option(min=0.01, help="GPU seconds that arrive ÷ those that the cluster has.")
    ] = 0.9,
    queues: Annotated[int, typer.Option(min=1, help="Queues that submit.")] = 4,
    overestimate: Annotated[
        float, typer.Option(min=0, help="Mean of what estimates exceed run times by, as a share of them.")
    ] = 0.0,
    hours_between_failures: BetweenFailures = None,
    hours_to_repair: Repair = 2.0,
    policy: Policies = None,
    selection: SelectionOption = Selection.ORDERED,
    backfill: BackfillOption = Backfill.EASY,
    session_window: Window = 500,
    session_interval: Interval = 0,
    processes: Processes = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: Seed = 0,
    report: Report = None,
    output: Format = Output.TABLE,
) -> None:
    """Draw a machine-learning workload from a seed, and run it."""
    from batchsched.lab.simulation import generated
    from batchsched.sim.generator import Recipe

    recipe = Recipe(gangs, nodes, gpus_per_node, load, queues, overestimate=overestimate)
    failures = (
        None if hours_between_failures is None else (hours_between_failures * HOUR, hours_to_repair * HOUR)
    )
    plan = Plan(
        f"generated-{seed}",
        [partial(generated, recipe, seed, failures)],
        policy or ["priority"],
        base_profile(config, profile, _ordered()),
        {"selection": selection.value, "backfill": backfill.value, "session_window": session_window},
        seed,
        session_interval,
        processes,
    )
    _show(plan, report, output)


def manifests(
    files: Files,
    runtime: Annotated[
        int,
        typer.Option(
            min=0, metavar="SECONDS", help="Run time of gangs that state no expectedRuntimeSeconds."
        ),
    ] = HOUR,
    policy: Policies = None,
    session_interval: Interval = 0,
    processes: Processes = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: Seed = 0,
    now: Now = None,
    report: Report = None,
    output: Format = Output.TABLE,
) -> None:
    """Run a cluster of manifests until all its gangs have finished: those that wait, and those that run.

    Gangs run for their expectedRuntimeSeconds. The profile decides as it does in `batchsched decide`.
    """
    import time

    from batchsched.manifests.reading import read
    from batchsched.sim import given

    chosen = base_profile(config, profile, Profile())
    reading = read(files, scheduler_name=chosen.scheduler_name)
    start = time.time() if now is None else now
    name = ", ".join(str(file) for file in files)
    plan = Plan(
        name,
        [partial(given.workload, reading.snapshot, start, runtime, name)],
        policy or (),
        chosen,
        {},
        seed,
        session_interval,
        processes,
    )
    _show(plan, report, output)


def _ordered() -> Profile:
    return Profile(selection="ordered")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no list of whole numbers", param_hint="--starts") from error


def _show(plan: Plan, report: Path | None, output: Output) -> None:
    trials = _run(plan, detail=True)
    if report is not None:
        write_report(report, trials, plan.workloads[0](), plan.seed)
    print_trials(trials, output, plan.name)


def _run(plan: Plan, *, detail: bool) -> tuple[Tried, ...]:
    """Run every workload under every policy, and give the results back policy by policy."""
    from batchsched.cli.stopwatch import Stopwatch
    from batchsched.lab.simulation import Experiment, simulate_all
    from batchsched.sim.run import RunSettings

    tried = choices(plan.policies, plan.base, plan.changes)
    experiments = [
        Experiment(
            workload,
            one.profile,
            RunSettings(one.name, plan.seed, plan.interval, _window(one.profile)),
            detail,
        )
        for one in tried
        for workload in plan.workloads
    ]
    stopwatch = Stopwatch()
    try:
        results = simulate_all(
            experiments,
            plan.processes or os.cpu_count() or 1,
            lambda done, total: stopwatch.progress(done, total, "runs"),
        )
    finally:
        stopwatch.close()
    count = len(plan.workloads)
    return tuple(Tried(one.name, results[at * count : (at + 1) * count]) for at, one in enumerate(tried))


def _window(profile: Profile) -> int | None:
    """A session in strict order looks at its window only; a joint one goes through window after window by itself."""
    return profile.session_window if profile.selection == "ordered" else None


COMMANDS: Final[tuple[tuple[Callable[..., None], str], ...]] = (
    (
        swf,
        """Examples:

batchsched simulate swf lublin_256.swf --policy fcfs --policy saf --jobs 1024 --starts 1981,2756

batchsched simulate swf lublin_256.swf --policy saf --policy headroom:eta=0.25 --jobs 1024 --windows 200
""",
    ),
    (
        philly,
        """Examples:

batchsched simulate philly philly.csv.gz --policy fcfs --policy sjf

batchsched simulate philly philly.csv.gz --policy headroom:eta=0.0625 --backfill easy
""",
    ),
    (
        generate,
        """Examples:

batchsched simulate generate --gangs 500 --policy fcfs --policy headroom --report report.html

batchsched simulate generate --selection weight --session-interval 60 --hours-between-failures 200
""",
    ),
    (
        manifests,
        """Examples:

batchsched simulate manifests examples/ --policy priority --policy fcfs

kubectl get nodes,pods,podgroups,bq -A -o json | batchsched simulate manifests - --report report.html
""",
    ),
)
"""The workloads that can be simulated, each a command with its examples."""

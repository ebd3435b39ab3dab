"""`batchsched simulate`: run a workload in virtual time under one or more policies."""

from collections.abc import Callable
from functools import partial
from typing import Final

import typer

from batchsched.cli.options import Config, Files, Format, Now, Output, ProfileName, Seed, parse_time
from batchsched.cli.plan import Plan, run_plan
from batchsched.cli.simulation_options import (
    Backfill,
    BackfillOption,
    BetweenFailures,
    Blocking,
    First,
    Gangs,
    GpusPerNode,
    Interval,
    Last,
    Load,
    Nodes,
    Overestimate,
    PhillyTrace,
    Policies,
    Pooled,
    Processes,
    Processors,
    Queues,
    Repair,
    Report,
    Rows,
    Runtime,
    Selection,
    SelectionOption,
    Starts,
    SwfTrace,
    VirtualClusters,
    Window,
    WindowBelow,
    Windows,
    WindowSeed,
)
from batchsched.cli.trials import base_profile
from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput

HELP = "Run policies on a workload in virtual time."
HOUR: Final = 3600


def swf(
    trace: SwfTrace,
    policy: Policies = None,
    backfill: BackfillOption = Backfill.EASY,
    processors: Processors = None,
    jobs: Rows = None,
    starts: Starts = None,
    windows: Windows = 0,
    window_seed: WindowSeed = 0,
    window_below: WindowBelow = None,
    session_window: Window = 500,
    session_interval: Interval = 0,
    processes: Processes = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: Seed = 0,
    report: Report = None,
    output: Format = Output.TABLE,
) -> None:
    """Run a trace of rigid parallel jobs. Each job is a gang of equal pods with one processor per pod.

    With several sequences, each starts on an empty cluster. The figures are means over them, and a report draws the
    first sequence.
    """
    from batchsched.simulator import swf as trace_format
    from batchsched.simulator.comparison import window_starts

    read = trace_format.read(trace)
    rows = read.rows
    if not rows:
        raise InvalidInput("has no job that ran: no line with a run time and processors", file=str(trace))
    size = processors or read.processors
    if not size:
        raise typer.BadParameter(
            "the header of the trace does not state the number of processors; set --processors"
        )
    length = jobs or len(rows)
    if windows:
        begins = window_starts(windows, window_seed, window_below or len(rows) - length + 1)
    else:
        begins = _numbers(starts) if starts else (0,)
    beyond = [row for row in begins if row >= len(rows)]
    if beyond:
        raise typer.BadParameter(
            f"row {beyond[0]} is beyond the last row, {len(rows) - 1}", param_hint="--starts"
        )
    made = [
        partial(
            trace_format.workload,
            rows[start : start + length],
            size,
            f"{trace.stem}[{start}:{start + length}]",
        )
        for start in begins
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
    run_plan(plan, report, output)


def philly(
    trace: PhillyTrace,
    queues: VirtualClusters = None,
    first: First = None,
    last: Last = None,
    nodes: Nodes = 64,
    gpus_per_node: GpusPerNode = 8,
    pooled: Pooled = True,
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
    """Run Microsoft's Philly trace: gangs of pods that request up to all GPUs of a node."""
    from batchsched.simulator import philly as trace_format

    period = trace_format.Period(
        parse_time(first) if first else float("-inf"), parse_time(last) if last else float("inf")
    )
    rows = trace_format.read(trace, trace_format.read_queues(queues) if queues else (), period)
    if not rows:
        raise typer.BadParameter(
            "no job of the trace matches --queues, --first and --last; select more clusters "
            "or a longer period"
        )
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
    run_plan(plan, report, output)


def generate(
    gangs: Gangs = 1000,
    nodes: Nodes = 32,
    gpus_per_node: GpusPerNode = 8,
    load: Load = 0.9,
    queues: Queues = 4,
    overestimate: Overestimate = 0.0,
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
    """Generate a machine-learning workload from a seed, and run it."""
    from batchsched.lab.simulation import generated
    from batchsched.simulator.generator import Recipe

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
    run_plan(plan, report, output)


def manifests(
    files: Files,
    runtime: Runtime = HOUR,
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
    """Run a cluster of manifests until all its gangs have finished, both the running and the pending ones.

    A gang runs for its expectedRuntimeSeconds. The profile decides as in `batchsched decide`.
    """
    import time

    from batchsched.manifests.reader import read
    from batchsched.simulator import from_snapshot as given

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
    run_plan(plan, report, output)


def _ordered() -> Profile:
    return Profile(selection="ordered")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a list of whole numbers; expected such as 0,1000", param_hint="--starts"
        ) from error


COMMANDS: Final[tuple[tuple[Callable[..., None], str], ...]] = (
    (
        swf,
        """Examples:

batchsched simulate swf lublin_256.swf --policy fcfs --policy saf --jobs 1024 --starts 1981,2756 --report report.html

batchsched simulate swf lublin_256.swf --policy saf --policy headroom:share=0.25 --jobs 1024 --windows 200
""",
    ),
    (
        philly,
        """Examples:

batchsched simulate philly philly.csv.gz --policy fcfs --policy sjf

batchsched simulate philly philly.csv.gz --policy headroom:share=0.0625 --backfill easy
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
"""Commands of `batchsched simulate`, one per kind of workload, each with its examples."""

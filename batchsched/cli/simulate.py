"""`batchsched simulate`: simulate a workload in virtual time under one or more policies."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from batchsched.cli.options import (
    Config,
    Files,
    Format,
    Now,
    OutputFormat,
    ProfileName,
    Seed,
    SessionSeed,
    parse_time,
    parse_yaml_value,
)
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
    SelectionChoice,
    SelectionOption,
    Starts,
    SwfTrace,
    VirtualClusters,
    Window,
    WindowBelow,
    Windows,
    WindowSeed,
)
from batchsched.config.schema import PolicySettings, Profile
from batchsched.errors import InvalidInput

if TYPE_CHECKING:
    from batchsched.lab.measures import RunOutcome
    from batchsched.lab.plan import PlannedRun
    from batchsched.lab.scenario import ClusterSpec, WorkloadSpec
    from batchsched.lab.scenario_checks import ComparedPolicy
    from batchsched.simulator.workload import Workload

HELP = "Run policies on a workload in virtual time."
HOUR: Final = 3600
IN_ORDER: Final = {"selection": "ordered"}


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
    output: Format = OutputFormat.TABLE,
) -> None:
    """Simulate a trace in the Standard Workload Format, such as those of the Parallel Workloads Archive.

    Each job is a gang of equal pods with one processor per pod.

    With several sequences, each starts on an empty cluster. The figures are means over them, and a report draws the
    first sequence.
    """
    from batchsched.lab.scenario import SwfSource
    from batchsched.lab.simulation import read_swf_trace, sample_window_start_rows

    read = read_swf_trace(trace)
    rows = len(read.rows)
    if not rows:
        raise InvalidInput("has no job that ran: no line with a run time and processors", file=str(trace))
    size = processors or read.processors
    if not size:
        raise typer.BadParameter(
            "the header of the trace does not state the number of processors; set --processors"
        )
    length = jobs or rows
    if windows:
        begins = sample_window_start_rows(windows, window_seed, window_below or rows - length + 1)
    else:
        begins = _numbers(starts) if starts else (0,)
    beyond = [row for row in begins if row >= rows]
    if beyond:
        raise typer.BadParameter(f"row {beyond[0]} is beyond the last row, {rows - 1}", param_hint="--starts")
    workloads = []
    for start in begins:
        source = SwfSource(trace=trace, processors=size, jobs=length, start=start)
        workloads.append(_workload(f"{trace.stem}[{start}:{start + length}]", swf=source))
    plan = SimulationPlan(
        trace.stem,
        workloads,
        policy or ["fcfs"],
        profile_for_simulation(config, profile),
        {**IN_ORDER, "backfill": backfill.value, "blocking": True, "session_window": session_window},
        seed,
        session_interval,
    )
    plan.run_and_print_results(processes, report, output)


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
    output: Format = OutputFormat.TABLE,
) -> None:
    """Simulate Microsoft's Philly trace: gangs of pods that request up to all GPUs of a node."""
    from batchsched.api.crd.podgroup import DEFAULT_QUEUE
    from batchsched.lab.scenario import ALL_NAMES, ClusterSpec, PhillySource
    from batchsched.lab.simulation import read_philly_jobs_and_queues
    from batchsched.simulator.philly import read_virtual_cluster_names

    clusters = read_virtual_cluster_names(queues) if queues else ()
    teams: dict[str, tuple[str, ...]] = {f"vc-{cluster}": (cluster,) for cluster in clusters}
    if pooled:
        teams = {DEFAULT_QUEUE: clusters or (ALL_NAMES,)}
    source = PhillySource(
        trace=trace, first=_moment(first, "--first"), last=_moment(last, "--last"), teams=teams
    )
    if not read_philly_jobs_and_queues(source)[0]:
        raise typer.BadParameter(
            "no job of the trace matches --queues, --first and --last; select more clusters "
            "or a longer period"
        )
    name = trace.stem.removesuffix(".csv")
    plan = SimulationPlan(
        name,
        [_workload(name, philly=source)],
        policy or ["fcfs"],
        profile_for_simulation(config, profile),
        {**IN_ORDER, "backfill": backfill.value, "blocking": blocking, "session_window": session_window},
        seed,
        session_interval,
        ClusterSpec(nodes=nodes, gpus_per_node=gpus_per_node),
    )
    plan.run_and_print_results(processes, report, output)


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
    selection: SelectionOption = SelectionChoice.ORDERED,
    backfill: BackfillOption = Backfill.EASY,
    session_window: Window = 500,
    session_interval: Interval = 0,
    processes: Processes = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: Seed = 0,
    report: Report = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Generate a machine-learning workload from a seed, and simulate it."""
    from batchsched.lab.scenario import ClusterSpec, GeneratedSource, NodeFailureSettings
    from batchsched.simulator.generator import zipf_queue_shares

    failures = None
    if hours_between_failures is not None:
        failures = NodeFailureSettings(hours_between=hours_between_failures, hours_to_repair=hours_to_repair)
    source = GeneratedSource(
        gangs=gangs, load=load, overestimate=overestimate, shares=dict(zipf_queue_shares(queues))
    )
    plan = SimulationPlan(
        f"generated-{seed}",
        [_workload(f"generated-{seed}", generate=source)],
        policy or ["priority"],
        profile_for_simulation(config, profile),
        {"selection": selection.value, "backfill": backfill.value, "session_window": session_window},
        seed,
        session_interval,
        ClusterSpec(nodes=nodes, gpus_per_node=gpus_per_node, failures=failures),
    )
    plan.run_and_print_results(processes, report, output)


def manifests(
    files: Files,
    runtime: Runtime = HOUR,
    policy: Policies = None,
    session_interval: Interval = 0,
    processes: Processes = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: SessionSeed = None,
    now: Now = None,
    report: Report = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Simulate the cluster that manifests describe until all its running and pending gangs have finished.

    A gang runs for its expectedRuntimeSeconds. The profile decides as in `batchsched decide`; a recorded session
    states its profile, seed and time, unless options differ.
    """
    from batchsched.cli.session_input import print_warnings, read_session_input
    from batchsched.scheduler.cluster_reader import read_snapshot_from_files
    from batchsched.simulator.workload import workload_of_snapshot

    cluster_files, settings = read_session_input(files, config, profile, now)
    chosen = without_extenders(settings.profile)
    reading = read_snapshot_from_files(cluster_files, replace(settings, profile=chosen))
    print_warnings([f"warning: {warning}" for warning in reading.warnings])
    name = ", ".join(str(file) for file in files)
    prepared = workload_of_snapshot(reading.snapshot, chosen.scheduler_name, settings.now, runtime, name)
    plan = SimulationPlan(
        name,
        [_workload(name)],
        policy or (),
        chosen,
        {},
        cluster_files.session_seed(seed),
        session_interval,
        prepared=prepared,
    )
    plan.run_and_print_results(processes, report, output)


def _workload(name: str, **source: Any) -> "WorkloadSpec":
    """Return a workload with the given source; its name may be longer than names in scenarios."""
    from batchsched.lab.scenario import WorkloadSpec

    return WorkloadSpec.model_construct(name=name, **source)


def _moment(text: str | None, option: str) -> datetime | None:
    """Parse the time of an option.

    Raises:
      BadParameter: the text is no time.
    """
    if not text:
        return None
    try:
        return datetime.fromtimestamp(parse_time(text), UTC)
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint=option) from error


def _numbers(text: str) -> tuple[int, ...]:
    """Parse the numbers of rows in `--starts`.

    Raises:
      BadParameter: the text is no list of numbers from 0 on.
    """
    try:
        rows = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a list of whole numbers; expected such as 0,1000", param_hint="--starts"
        ) from error
    if min(rows) < 0:
        raise typer.BadParameter(f"there is no row {min(rows)}; rows count from 0", param_hint="--starts")
    return rows


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """The workloads that `batchsched simulate` runs, and the policies under which it runs each of them.

    Args:
      name: the name in tables.
      workloads: the workloads; each runs under each policy.
      policies: the policies, as on the command line.
      base: the profile that supplies all other settings.
      changes: settings that replace those of the profile.
      seed: the seed of workloads and sessions.
      interval: minimum seconds between two sessions.
      cluster: the cluster, for workloads without one.
      prepared: the workload itself, if its source can be read only once.
    """

    name: str
    workloads: Sequence["WorkloadSpec"]
    policies: Sequence[str]
    base: Profile
    changes: Mapping[str, Any]
    seed: int
    interval: int
    cluster: "ClusterSpec | None" = None
    prepared: "Workload | None" = None

    def run_and_print_results(self, processes: int | None, report: Path | None, output: OutputFormat) -> None:
        """Run all workloads under all policies, write the report if a path is given, and print the results.

        The report draws only the first workload, because workloads share neither time nor nodes.
        """
        from batchsched.cli.outcomes import print_simulation_result, write_simulation_report
        from batchsched.cli.session_input import print_warnings
        from batchsched.lab.plan import PlannedRun
        from batchsched.lab.scenario import ClusterSpec
        from batchsched.lab.scenario_checks import indistinct_policy_warnings

        compared = parse_compared_policies(self.policies, self.base, self.changes)
        if self.policies:
            _check_policies(compared)
        print_warnings([f"warning: {line}" for line in indistinct_policy_warnings(compared)])
        runs = [
            PlannedRun(
                workload=workload,
                policy=policy.name,
                cluster=self.cluster or ClusterSpec(),
                profile=policy.profile,
                seed=self.seed,
                interval=self.interval,
                prepared=self.prepared,
            )
            for policy in compared
            for workload in self.workloads
        ]
        count = len(self.workloads)
        # Only what is drawn keeps its series: hundreds of runs with all series do not fit in memory.
        drawn = self.workloads[0].name if report is not None or count == 1 else None
        outcomes = _outcomes(runs, drawn, processes or os.cpu_count() or 1)
        policies = [outcomes[first : first + count] for first in range(0, len(runs), count)]
        if report is not None:
            write_simulation_report(report, runs[::count], [runs[0] for runs in policies], count)
        print_simulation_result(self.name, policies, output)


def _outcomes(runs: Sequence["PlannedRun"], drawn: str | None, processes: int) -> list["RunOutcome"]:
    """Execute runs in parallel with a progress bar, and return their outcomes in the order of the runs.

    Args:
      runs: the runs.
      drawn: name of the workload of which outcomes keep placements and series.
      processes: number of parallel processes.
    """
    from batchsched.cli.session import CommandTelemetry
    from batchsched.lab.simulation import map_runs
    from batchsched.lab.workers import open_workers

    outcomes: dict[int, RunOutcome] = {}
    with closing(CommandTelemetry()) as stopwatch, open_workers(None, min(processes, len(runs))) as pool:
        for index, outcome in map_runs(partial(_outcome, drawn=drawn), runs, pool):
            outcomes[index] = outcome
            stopwatch.on_progress(len(outcomes), len(runs), "runs")
    return [outcomes[index] for index in range(len(runs))]


def _outcome(run: "PlannedRun", drawn: str | None) -> "RunOutcome":
    from batchsched.lab.simulation import simulate_run

    outcome = simulate_run(run)
    return outcome if run.workload.name == drawn else outcome.without_placements_and_series()


def parse_compared_policies(
    policies: Sequence[str], base: Profile, changes: Mapping[str, Any]
) -> "tuple[ComparedPolicy, ...]":
    """Parse the `--policy` options of a simulation into policies, each with its whole profile.

    Args:
      policies: names, with optional arguments: `headroom:share=0.25,patience=3`. Empty: the profile's own policy.
      base: the profile that supplies all other settings.
      changes: settings that replace those of the profile.

    Raises:
      BadParameter: an argument does not have the form NAME=VALUE.
    """
    from batchsched.lab.scenario_checks import ComparedPolicy

    made = []
    for text in policies or [base.policy.name]:
        name, _, arguments = text.partition(":")
        args = dict(_argument(argument) for argument in arguments.split(",")) if arguments else {}
        policy = (
            base.policy
            if not arguments and name == base.policy.name
            else PolicySettings(name=name, args=args)
        )
        made.append(ComparedPolicy(text, base.model_copy(update={**changes, "policy": policy})))
    return tuple(made)


def _check_policies(policies: "Sequence[ComparedPolicy]") -> None:
    """Check that the policies exist and accept their arguments.

    Raises:
      BadParameter: a policy does not exist, or an argument is invalid.
    """
    from batchsched.lab.scenario_checks import check_gang_orders

    try:
        check_gang_orders(policies)
    except InvalidInput as error:
        raise typer.BadParameter(str(error).removeprefix("policy.name: "), param_hint="--policy") from error


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter(
            f"{text!r} is not an argument of a policy; expected NAME=VALUE", param_hint="--policy"
        )
    return name.strip(), parse_yaml_value(value, "--policy")


def profile_for_simulation(config: Path | None, name: str | None) -> Profile:
    """Return the profile that a simulation uses, with its extenders removed.

    The profile is read from the configuration file. Without a file, it is the default profile.

    Raises:
      InvalidInput: the file cannot be used, or there is no profile of that name.
    """
    from batchsched.cli.session_input import profile_for_command

    return without_extenders(profile_for_command(config, name))


def without_extenders(profile: Profile) -> Profile:
    """Return the profile without its extenders; print a warning if it has any."""
    if profile.extenders:
        print(
            "warning: a simulation does not call extenders, because they do not know the simulated cluster",
            file=sys.stderr,
        )
    return profile.model_copy(update={"extenders": ()})


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

batchsched simulate manifests examples/ --runtime 600 -o json

batchsched dump --to - | batchsched simulate manifests - --report report.html
""",
    ),
)
"""Commands of `batchsched simulate`, one per kind of workload, each with its examples."""

"""Run the workloads of `batchsched simulate` under policies, and show tables, data and a report."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchsched.cli.options import Output
from batchsched.cli.trials import PolicyRuns, print_trials, profiles_of_policies, write_report
from batchsched.config.schema import Profile

if TYPE_CHECKING:
    from batchsched.simulator.workload import Workload


@dataclass(frozen=True, slots=True)
class Plan:
    """The workloads and policies to run. Workloads are functions, so that each worker process creates its own."""

    name: str
    workloads: Sequence["Callable[[], Workload]"]
    policies: Sequence[str]
    base: Profile
    changes: dict[str, Any]
    seed: int
    interval: int
    processes: int | None


def run_plan(plan: Plan, report: Path | None, output: Output) -> None:
    """Run a plan, write the report if a path is given, and print the results.

    The report draws only the first workload, because workloads share neither time nor nodes.
    """
    trials = _run(plan, detailed=1 if report is not None or len(plan.workloads) == 1 else 0)
    if report is not None:
        write_report(report, trials, plan.workloads[0](), plan.seed)
    print_trials(trials, output, plan.name)


def _run(plan: Plan, detailed: int) -> tuple[PolicyRuns, ...]:
    """Run every workload under every policy, and return the results by policy.

    Args:
      plan: the workloads and policies.
      detailed: number of workloads, counted from the first, that keep the detail which drawing requires.
    """
    from batchsched.cli.session import Stopwatch
    from batchsched.lab.simulation import Experiment, simulate_all, window_of
    from batchsched.simulator.run import RunSettings

    profiles = profiles_of_policies(plan.policies, plan.base, plan.changes)
    experiments = [
        Experiment(
            workload,
            named.profile,
            RunSettings(named.name, plan.seed, plan.interval, window_of(named.profile)),
            detail=number < detailed,
        )
        for named in profiles
        for number, workload in enumerate(plan.workloads)
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
    return tuple(
        PolicyRuns(named.name, results[index * count : (index + 1) * count])
        for index, named in enumerate(profiles)
    )

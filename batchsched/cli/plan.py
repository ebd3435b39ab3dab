"""What `batchsched simulate` runs: workloads under policies, shown as tables, data and a report."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchsched.cli.options import Output
from batchsched.cli.trials import Tried, choices, print_trials, write_report
from batchsched.config.schema import Profile

if TYPE_CHECKING:
    from batchsched.simulator.workload import Workload


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


def show(plan: Plan, report: Path | None, output: Output) -> None:
    """Run a plan, write the report where one is wanted, and print what came out.

    Of several workloads the report draws the first one: gangs of different ones share no time and no nodes.
    """
    trials = _run(plan, detailed=1 if report is not None or len(plan.workloads) == 1 else 0)
    if report is not None:
        write_report(report, trials, plan.workloads[0](), plan.seed)
    print_trials(trials, output, plan.name)


def _run(plan: Plan, detailed: int) -> tuple[Tried, ...]:
    """Run every workload under every policy, and give the results back policy by policy.

    Args:
      plan: what to run.
      detailed: how many of the workloads, from the first on, are to be drawn.
    """
    from batchsched.cli.stopwatch import Stopwatch
    from batchsched.lab.simulation import Experiment, simulate_all, window_of
    from batchsched.simulator.run import RunSettings

    tried = choices(plan.policies, plan.base, plan.changes)
    experiments = [
        Experiment(
            workload,
            one.profile,
            RunSettings(one.name, plan.seed, plan.interval, window_of(one.profile)),
            detail=number < detailed,
        )
        for one in tried
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
    return tuple(Tried(one.name, results[at * count : (at + 1) * count]) for at, one in enumerate(tried))

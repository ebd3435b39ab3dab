"""Simulated runs of the real scheduler: the sessions read the simulated cluster.

Runs are independent, so several run in parallel, each in its own process. The results keep the order of the runs.
"""

import gc
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import active_children, get_context
from threading import current_thread, main_thread

from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.queues.usage_history import UsageHistory
from batchsched.session.session import Session
from batchsched.simulator.generator import Recipe, generate
from batchsched.simulator.outages import draw_outages
from batchsched.simulator.result import QueueSeries, RunResult, Series
from batchsched.simulator.run import Progress, RunSettings, run
from batchsched.simulator.workload import Workload

_YOUNG_OBJECTS = 50_000
"""Objects between two collections of the youngest generation; reference counts free most objects of a run."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A run to simulate.

    Args:
      workload: Creates the workload in the process of the run.
      profile: The profile.
      settings: The settings of the simulator.
      detail: Whether to keep placements and series; without them, hundreds of results fit in memory.
    """

    workload: Callable[[], Workload]
    profile: Profile
    settings: RunSettings
    detail: bool = True


def simulate(
    workload: Workload, profile: Profile, settings: RunSettings, progress: Progress | None = None
) -> RunResult:
    """Simulate a workload under a profile.

    Raises:
      InvalidInput: The profile names an unknown plugin or policy, or has invalid arguments.
    """
    return run(
        workload,
        partial(_follow, profile=profile, past=UsageHistory({}, profile.usage_half_life_seconds)),
        settings,
        progress,
    )


def simulate_all(
    experiments: Sequence[Experiment], processes: int, progress: Progress | None = None
) -> tuple[RunResult, ...]:
    """Simulate many runs in `processes` processes; `progress` receives the number of finished runs.

    Raises:
      InvalidInput: As for `simulate`.
    """
    results = []
    if processes <= 1 or len(experiments) <= 1:
        for experiment in experiments:
            results.append(_make(experiment))
            if progress is not None:
                progress(len(results), len(experiments))
        return tuple(results)
    with ProcessPoolExecutor(min(processes, len(experiments)), get_context("spawn")) as pool:
        with _deaf_to_interrupts():
            made = pool.map(_make, experiments)
        try:
            for result in made:
                results.append(result)
                if progress is not None:
                    progress(len(results), len(experiments))
        except KeyboardInterrupt:
            for child in active_children():
                child.terminate()
            raise
    return tuple(results)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let new processes ignore Ctrl-C: otherwise each of them would print a traceback."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def generated(recipe: Recipe, seed: int, failures: tuple[float, float] | None = None) -> Workload:
    """Generate a workload, and node failures until the last possible end of a gang.

    Args:
      recipe: The recipe of the workload.
      seed: The seed of workload and failures.
      failures: Mean seconds between failures of a node, and to repair; None for no failures.
    """
    made = generate(recipe, seed)
    if failures is None:
        return made
    last = max(one.at + one.runtime for one in made.arrivals)
    outages = draw_outages(made.cluster.nodes, *failures, period=(made.arrivals[0].at, last), seed=seed)
    return replace(made, outages=outages)


def _follow(snapshot: Snapshot, profile: Profile, past: UsageHistory) -> Session:
    return Session(snapshot, profile, past=past, brief=True)


def window_of(profile: Profile) -> int | None:
    """Return the maximum number of gangs of one session under a profile, or None without such a limit.

    A session in strict order considers one window; a joint session divides the queue into windows by itself.
    """
    return profile.session_window if profile.selection == "ordered" else None


@contextmanager
def rare_collections() -> Iterator[None]:
    """Make garbage collections rare."""
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _make(experiment: Experiment) -> RunResult:
    with rare_collections():
        result = simulate(experiment.workload(), experiment.profile, experiment.settings)
    if experiment.detail:
        return result
    gangs = tuple(replace(one, placements=()) for one in result.gangs)
    return replace(result, gangs=gangs, series=Series((), {}, {}, (), ()), queues=QueueSeries())

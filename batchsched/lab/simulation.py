"""Simulated runs with the real scheduler: the simulator is handed sessions that follow its cluster.

Runs do not depend on each other, so that several go at once, each in a process of its own; results come in the order
in which the runs were stated, whatever process was first.
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
"""Objects between two looks of the garbage collector: most objects of a run die without it."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run, before it is made.

    Args:
      workload: makes the workload, in the process that runs it.
      profile: how to schedule.
      settings: how to run.
      detail: keep gangs' placements and the series; without, a result is small enough to have hundreds.
    """

    workload: Callable[[], Workload]
    profile: Profile
    settings: RunSettings
    detail: bool = True


def simulate(
    workload: Workload, profile: Profile, settings: RunSettings, progress: Progress | None = None
) -> RunResult:
    """Run a workload under a profile.

    Raises:
      InvalidInput: the profile names a plugin or a policy that does not exist, or arguments that it refuses.
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
    """Make many runs, `processes` at a time; `progress` is told how many are through.

    Raises:
      InvalidInput: as `simulate`.
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
    """Let processes that begin here inherit that they ignore Ctrl-C: they would all print where they were."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def generated(recipe: Recipe, seed: int, failures: tuple[float, float] | None = None) -> Workload:
    """Draw a workload, and failures of its nodes until the last gang could have ended.

    Args:
      recipe: what to draw.
      seed: of both draws.
      failures: mean seconds between two failures of a node, and until it is back; None: no node fails.
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
    """Return the window of a run under a profile.

    A session in strict order looks at its window only; a joint one goes through window after window by itself.
    """
    return profile.session_window if profile.selection == "ordered" else None


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector look seldom."""
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

"""Decides the session of a command, over files or a live cluster, and measures how long it takes."""

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec
import typer
from typing_extensions import override

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.cli import ExitCode
from batchsched.cli.live_cluster import LiveClusterOptions, create_scheduler_from_live_cluster
from batchsched.cli.session_input import (
    name_configuration_in_errors,
    print_warnings,
    profile_for_command,
    read_session_input,
    warn_of_ignored_policy,
)
from batchsched.config.schema import Profile
from batchsched.manifests.reader import format_set_aside_object
from batchsched.ports.external import Telemetry
from batchsched.record.cluster_files import SessionSettings
from batchsched.scheduler.cluster_reader import load_offline_cluster, read_snapshot_from_files

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from batchsched.record.external_answers import ExternalAnswers
    from batchsched.scheduler.app import SchedulerApp
    from batchsched.scheduler.offline_cluster import OfflineCluster

Timings = Mapping[tuple[str, str], tuple[int, float]]


@dataclass(frozen=True, slots=True)
class DecidedSession:
    """A session that a command has decided: its input, its decision, and how long it took.

    Args:
      now: seconds since 1970.
      answers: the recorded answers of extenders.
      seconds: the duration of the session.
      stages: by stage, its duration in seconds.
      timings: by plugin and extension point, the number of measured calls and their duration in seconds.
    """

    snapshot: Snapshot
    profile: Profile
    now: float
    seed: int
    decision: Decision
    answers: "ExternalAnswers"
    seconds: float = 0.0
    stages: Mapping[str, float] = field(default_factory=dict)
    timings: Timings = field(default_factory=dict)

    def with_explained_refusals(self, only: Collection[str] | None = None) -> "DecidedSession":
        """Return the session with explanations added to the refusals of gangs.

        An explanation states whether the gang can ever start, and which changes would help. Recorded sessions do not
        contain explanations.

        Args:
          only: `namespace/name` of the gangs to explain; None for all refused gangs.
        """
        from batchsched.session.explanation.explain import explain_refusals
        from batchsched.session.explanation.verification import MAX_WORK_PER_GANG, DecidedInput
        from batchsched.solver.relaxation.budget import ExplanationBudget

        # Extenders answer for the recorded input only, and a plugin that hung once would hang again.
        if self.profile.extenders or self.answers.overdue:
            return self
        decided = DecidedInput(self.snapshot, self.profile, self.now, self.seed, self.decision)
        with closing(CommandTelemetry()) as stopwatch:
            budget = ExplanationBudget(MAX_WORK_PER_GANG) if only is not None and len(only) == 1 else None
            decision = explain_refusals(decided, budget, only, stopwatch)
        return replace(self, decision=decision)

    def decision_with_durations(self) -> Decision:
        """Return the decision with the measured durations of the session and of its stages."""
        solver = msgspec.structs.replace(self.decision.solver, seconds=self.seconds, stages=dict(self.stages))
        return msgspec.structs.replace(self.decision, solver=solver)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: 3 if invalid objects of the input were ignored, otherwise 0."""
        return ExitCode.SET_ASIDE if self.decision.set_aside else ExitCode.OK


def decide_session_over_files(
    files: Sequence[Path], config: Path | None, profile_name: str | None, seed: int | None, now: float | None
) -> DecidedSession:
    """Read a cluster from files and decide one session over it.

    Objects that are set aside are printed on standard error. A recorded session states its seed, unless `seed` does.

    Raises:
      BadParameter: a file does not exist.
      CommandError: the files contain nothing usable.
      InvalidInput: the configuration cannot be used.
    """
    cluster_files, settings = read_session_input(files, config, profile_name, now)
    recorded = cluster_files.session
    answers = None
    if recorded is not None:
        # The extenders answer as they did, unless another input asks them something else.
        answers = (
            recorded.answers if settings.profile is recorded.profile and not cluster_files.manifests else None
        )
    with _without_garbage_collection(), closing(CommandTelemetry()) as stopwatch:
        reading = read_snapshot_from_files(cluster_files, settings, stopwatch)
        with name_configuration_in_errors(config, profile_name):
            session = _decide(
                reading.snapshot, settings, cluster_files.session_seed(seed), stopwatch, answers
            )
    print_warnings([f"set aside: {format_set_aside_object(record)}" for record in session.decision.set_aside])
    print_warnings([f"warning: {warning}" for warning in reading.warnings])
    warn_of_ignored_policy(session.snapshot, session.profile, config)
    return session


def decide_live_session(access: LiveClusterOptions, seed: int | None) -> DecidedSession:
    """Decide one session over the current state of a cluster. The default of `seed` is 0.

    Raises:
      CommandError: no cluster can be reached, or the API server does not list a required resource.
      InvalidInput: the configuration cannot be used.
    """
    profile = profile_for_command(access.config, access.profile)
    service = asyncio.run(create_scheduler_from_live_cluster(access, profile))
    session = _decide_live(service, SessionSettings(profile, time.time()), seed or 0)
    warn_of_ignored_policy(session.snapshot, profile, access.config)
    return session


def decide_what_if_sessions(
    access: LiveClusterOptions,
    files: Sequence[Path],
    cluster: Sequence[Path],
    seed: int | None,
    now: float | None,
) -> tuple[DecidedSession, DecidedSession, list[str]]:
    """Decide one session over a cluster as it is, and one after the objects in `files` were added to it.

    Args:
      access: the live cluster.
      files: the objects to add.
      cluster: the files of the cluster; empty: the live cluster.
      seed: the seed of both sessions; None: that of the recorded session, otherwise 0.
      now: the time of both sessions; None: that of the cluster.

    Returns:
      Both sessions, and the keys of the gangs in the files.

    Raises:
      CommandError: as `decide_live_session`, or the files contain nothing to schedule.
      InvalidInput: the configuration or an object cannot be used.
    """
    from batchsched.scheduler.what_if_cluster import WhatIfCluster

    decide: Callable[[], DecidedSession]
    if cluster:
        cluster_files, settings = read_session_input(cluster, access.config, access.profile, now)
        offline = load_offline_cluster(cluster_files, settings)
        service, namespace = offline.service, access.stated_namespace or "default"
        decide = partial(_decide_offline, offline, cluster_files.session_seed(seed))
    else:
        profile = profile_for_command(access.config, access.profile)
        service, namespace = (
            asyncio.run(create_scheduler_from_live_cluster(access, profile)),
            access.namespace,
        )
        settings = SessionSettings(profile, time.time() if now is None else now)
        decide = partial(_decide_live, service, settings, seed or 0)
    before = decide()
    supposed = WhatIfCluster(service, settings.profile.scheduler_name, settings.now, namespace)
    supposed.add_objects_from_files(files)
    print_warnings([f"warning: {line}" for line in supposed.warnings])
    warn_of_ignored_policy(before.snapshot, settings.profile, access.config)
    return before, decide(), supposed.added_gang_keys()


def _decide_live(service: "SchedulerApp", settings: SessionSettings, seed: int) -> DecidedSession:
    """Decide a session over the objects that were listed from a live cluster."""
    from batchsched.scheduler.live_snapshot import snapshot_of_cluster

    with closing(CommandTelemetry()) as stopwatch:
        return _decide(snapshot_of_cluster(service), settings, seed, stopwatch)


def _decide_offline(cluster: "OfflineCluster", seed: int) -> DecidedSession:
    """Decide a session over a cluster that was read from files."""
    with closing(CommandTelemetry()) as stopwatch:
        return _decide(cluster.snapshot(), cluster.settings, seed, stopwatch)


def _decide(
    snapshot: Snapshot,
    settings: SessionSettings,
    seed: int,
    stopwatch: "CommandTelemetry",
    recorded: "ExternalAnswers | None" = None,
) -> DecidedSession:
    """Decide a session with extenders and plugin deadlines, or with the recorded answers of both."""
    from batchsched.runner.session_runner import SessionRunner, shared_solver_processes
    from batchsched.session.session import decide

    profile, now = settings.profile, settings.now
    with stopwatch.stage_span("session"):
        if recorded is not None:
            outside = recorded.create_replay_clients()
            decision, answers = (
                decide(snapshot, profile, now, seed, telemetry=stopwatch, outside=outside),
                recorded,
            )
        else:
            workers = shared_solver_processes(profile.solver.workers)
            runner = SessionRunner(profile, telemetry=stopwatch, workers=workers)
            decision, answers = runner.decide_from_snapshot(snapshot, now, seed), runner.answers
    return DecidedSession(
        snapshot,
        profile,
        now,
        seed,
        decision,
        answers,
        seconds=stopwatch.stage_seconds("session"),
        stages=stopwatch.seconds_by_stage,
        timings=stopwatch.calls,
    )


def check_not_set_aside(session: DecidedSession, *objects: str) -> None:
    """Raise `BadParameter` if a session set aside one of the given objects, such as `Queue research`.

    Args:
      session: the session.
      objects: the kind and the name of each object, with the namespace if there is one.

    Raises:
      BadParameter: an object was set aside.
    """
    for record in session.decision.set_aside:
        if record.object in objects:
            place = f"{record.field}: " if record.field else ""
            raise typer.BadParameter(f"{record.object} was set aside: {place}{record.message}")


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector: a command runs one session, and scanning millions of live objects costs time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_BAR_DELAY_SECONDS = 0.5
"""Seconds before a progress bar appears; shorter work shows none."""
_PROGRESS_LINE_SECONDS = 10.0
"""Seconds between two lines about the progress if standard error is not a terminal."""
_DIGITS = 6


class CommandTelemetry(Telemetry):
    """A clock that measures how long the stages of a command take, and shows their progress on a terminal.

    The time of a nested stage counts for both stages.

    Args:
      logs_progress: whether the progress is printed as lines if standard error is no terminal. Only commands that
        run for minutes do so: in the output of a short command, such a line looks like a failure.
    """

    def __init__(self, *, logs_progress: bool = False) -> None:
        self._logs_progress = logs_progress
        self._seconds: dict[str, float] = {}
        self._begun = self._logged = perf_counter()
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._logged_units: set[str] = set()
        self.calls: dict[tuple[str, str], tuple[int, float]] = {}
        """By plugin and point: the number of sampled calls, and their duration in seconds."""

    @property
    def seconds_by_stage(self) -> dict[str, float]:
        """The total seconds of each stage of the command, in the order in which the stages first ended."""
        return {name: round(seconds, _DIGITS) for name, seconds in self._seconds.items()}

    def stage_seconds(self, stage: str) -> float:
        """Return the total seconds of one stage, or 0 if the stage did not run."""
        return round(self._seconds.get(stage, 0.0), _DIGITS)

    @override
    @contextmanager
    def stage_span(self, name: str) -> Iterator[None]:
        begun = perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + perf_counter() - begun

    @override
    def gang_span(self, pod_group: str) -> AbstractContextManager[None]:
        """Return a context manager that does nothing: commands print only the times of stages, not of gangs."""
        return nullcontext()

    @override
    def on_progress(self, done: int, total: int, unit: str) -> None:
        if not sys.stderr.isatty():
            if self._logs_progress:
                self._log_progress(done, total, unit)
            return
        if self._bar is None:
            if perf_counter() - self._begun < _BAR_DELAY_SECONDS:
                return
            self._bar = _progress_bar()
            self._bar.start()
        if unit not in self._tasks:
            self._tasks[unit] = self._bar.add_task(unit, total=total or None)
        self._bar.update(self._tasks[unit], completed=done, total=total or None)

    def _log_progress(self, done: int, total: int, unit: str) -> None:
        """Print the progress as a line if standard error is no terminal, at long intervals and at the end."""
        now = perf_counter()
        is_end = unit in self._logged_units and done == total
        if now - self._logged < _PROGRESS_LINE_SECONDS and not is_end:
            return
        self._logged = now
        self._logged_units.add(unit)
        print(f"{unit}: {done} of {total}" if total else f"{unit}: {done}", file=sys.stderr, flush=True)

    @override
    @contextmanager
    def plugin_span(self, plugin: str, point: str) -> Iterator[None]:
        begun = perf_counter()
        try:
            yield
        finally:
            calls, seconds = self.calls.get((plugin, point), (0, 0.0))
            self.calls[plugin, point] = (calls + 1, seconds + perf_counter() - begun)

    def close(self) -> None:
        """Remove the progress bar from the terminal."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = None


def _progress_bar() -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )

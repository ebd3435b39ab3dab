"""One session of a command: read the input, decide, and return the decision with timings and extender answers."""

import gc
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from batchsched.api.crd.validation import nearest
from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.cli.exit import ExitCode
from batchsched.cli.stopwatch import Stopwatch
from batchsched.config.load import load_with_warnings
from batchsched.config.schema import BatchSchedulerConfiguration, Profile
from batchsched.errors import InvalidInput
from batchsched.manifests.reader import read, sentence

if TYPE_CHECKING:
    from batchsched.record.answers import Answers

Timings = Mapping[tuple[str, str], tuple[int, float]]

_MOST_SHOWN = 50
"""Maximum number of set-aside objects and of warnings on standard error; the decision contains all of them."""


@dataclass(frozen=True, slots=True)
class DecidedSession:
    """A session that a command decided, with its input and its decision.

    Args:
      now: seconds since 1970.
      answers: the recorded answers of extenders.
      timings: by plugin and point, the number of measured calls and their duration in seconds.
    """

    snapshot: Snapshot
    profile: Profile
    now: float
    seed: int
    decision: Decision
    answers: "Answers"
    timings: Timings = field(default_factory=dict)

    @property
    def exit_code(self) -> ExitCode:
        """Exit code 3 if parts of the input were set aside, otherwise 0."""
        return ExitCode.SET_ASIDE if self.decision.set_aside else ExitCode.OK


def run_session(
    files: Sequence[Path], config: Path | None, profile_name: str | None, seed: int, now: float | None
) -> DecidedSession:
    """Read manifests and decide one session over them; print set-aside objects on standard error.

    Raises:
      UnusableInput: the files contain nothing usable.
      InvalidInput: the configuration cannot be used.
    """
    profile = profile_of(config, profile_name)
    stopwatch = Stopwatch()
    moment = time.time() if now is None else now
    with _without_garbage_collection():
        try:
            reading = read(files, stopwatch, scheduler_name=profile.scheduler_name)
            decision, answers = decide_with_timings(reading.snapshot, profile, moment, seed, stopwatch)
        finally:
            stopwatch.close()
    print_warnings([f"set aside: {sentence(record)}" for record in decision.set_aside])
    print_warnings([f"warning: {warning}" for warning in reading.warnings])
    return DecidedSession(reading.snapshot, profile, moment, seed, decision, answers, stopwatch.calls)


def profile_of(config: Path | None, name: str | None) -> Profile:
    """Return the profile of a command; print settings without effect on standard error.

    Raises:
      InvalidInput: the file cannot be used, or it has no profile of that name.
    """
    if config is None:
        return profile_named(BatchSchedulerConfiguration(), name, None)
    from batchsched.framework.runtime.registry import standard

    configuration, warnings = load_with_warnings(config)
    profile = profile_named(configuration, name, config)
    absent = standard().passed_over(profile)
    lines = [
        *warnings,
        *([f"{config}: not installed, and ignored: {', '.join(absent)}"] if absent else []),
    ]
    print_warnings([f"warning: {line}" for line in lines])
    return profile


def profile_named(configuration: BatchSchedulerConfiguration, name: str | None, file: Path | None) -> Profile:
    """Return the profile with a scheduler name; without a name, the first profile.

    Raises:
      InvalidInput: there is no profile of that name.
    """
    if name is None:
        return configuration.profiles[0]
    for profile in configuration.profiles:
        if profile.scheduler_name == name:
            return profile
    names = [profile.scheduler_name for profile in configuration.profiles]
    raise InvalidInput(
        f"there is no profile {name!r}; {nearest(name, names)}", file=str(file or ""), field="profiles"
    )


def decide_with_timings(
    snapshot: Snapshot, profile: Profile, now: float, seed: int, stopwatch: Stopwatch
) -> "tuple[Decision, Answers]":
    """Decide with extenders and time limits; return the decision and the recorded answers."""
    from batchsched.runner.session_runner import SessionRunner

    runner = SessionRunner(profile)
    with stopwatch.stage("session"):
        decision = runner.decide(snapshot, now, seed, stopwatch)
    return with_timings(decision, stopwatch), runner.answers


def with_timings(decision: Decision, stopwatch: Stopwatch) -> Decision:
    """Return the decision with the seconds of the session and of its stages."""
    from msgspec.structs import replace

    account = replace(decision.solver, seconds=stopwatch.seconds("session"), stages=stopwatch.stages)
    return replace(decision, solver=account)


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


def print_warnings(lines: Sequence[str]) -> None:
    """Write at most `_MOST_SHOWN` lines to standard error, and the number of the others."""
    for line in lines[:_MOST_SHOWN]:
        print(line, file=sys.stderr)
    if len(lines) > _MOST_SHOWN:
        print(f"and {len(lines) - _MOST_SHOWN} more", file=sys.stderr)

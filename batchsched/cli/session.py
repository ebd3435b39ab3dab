"""One session of a command: read the input, decide, and add timings and answers of extenders."""

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
"""Set-aside objects and warnings on standard error; the decision itself has them all."""


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
        """3 where a part of the input was set aside, otherwise 0."""
        return ExitCode.SET_ASIDE if self.decision.set_aside else ExitCode.OK


def run_session(
    files: Sequence[Path], config: Path | None, profile_name: str | None, seed: int, now: float | None
) -> DecidedSession:
    """Read manifests and decide one session over them; tell on standard error what was set aside.

    Raises:
      UnusableInput: nothing in the files can be used.
      InvalidInput: the configuration cannot be used.
    """
    profile = profile_of(config, profile_name)
    stopwatch = Stopwatch()
    moment = time.time() if now is None else now
    with _without_garbage_collection():
        try:
            reading = read(files, stopwatch, scheduler_name=profile.scheduler_name)
            decision, answers = timed(reading.snapshot, profile, moment, seed, stopwatch)
        finally:
            stopwatch.close()
    tell([f"set aside: {sentence(one)}" for one in decision.set_aside])
    tell([f"warning: {warning}" for warning in reading.warnings])
    return DecidedSession(reading.snapshot, profile, moment, seed, decision, answers, stopwatch.calls)


def profile_of(config: Path | None, name: str | None) -> Profile:
    """Read the profile that a command works with; tell on standard error what in the file has no effect.

    Raises:
      InvalidInput: the file cannot be used, or has no profile of that name.
    """
    if config is None:
        return chosen(BatchSchedulerConfiguration(), name, None)
    from batchsched.framework.runtime.registry import standard

    configuration, warnings = load_with_warnings(config)
    profile = chosen(configuration, name, config)
    absent = standard().passed_over(profile)
    lines = [
        *warnings,
        *([f"{config}: not installed, and passed over: {', '.join(absent)}"] if absent else []),
    ]
    tell([f"warning: {line}" for line in lines])
    return profile


def chosen(configuration: BatchSchedulerConfiguration, name: str | None, file: Path | None) -> Profile:
    """Pick the profile of a scheduler name, or the first one.

    Raises:
      InvalidInput: there is none of that name.
    """
    if name is None:
        return configuration.profiles[0]
    for profile in configuration.profiles:
        if profile.scheduler_name == name:
            return profile
    known = [profile.scheduler_name for profile in configuration.profiles]
    raise InvalidInput(
        f"there is no profile {name!r}; {nearest(name, known)}", file=str(file or ""), field="profiles"
    )


def timed(
    snapshot: Snapshot, profile: Profile, now: float, seed: int, stopwatch: Stopwatch
) -> "tuple[Decision, Answers]":
    """Decide in the world as it is; returns the decision, and what the world said."""
    from batchsched.runner.session_runner import SessionRunner

    meeting = SessionRunner(profile)
    with stopwatch.stage("session"):
        decision = meeting.decide(snapshot, now, seed, stopwatch)
    return accounted(decision, stopwatch), meeting.answers


def accounted(decision: Decision, stopwatch: Stopwatch) -> Decision:
    """Add the seconds of the session and of its stages to the account."""
    from msgspec.structs import replace

    account = replace(decision.solver, seconds=stopwatch.seconds("session"), stages=stopwatch.stages)
    return replace(decision, solver=account)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep the collector off: a command lives for one session, and a cluster is millions of live objects."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def tell(lines: Sequence[str]) -> None:
    """Write lines to standard error, not too many of them."""
    for line in lines[:_MOST_SHOWN]:
        print(line, file=sys.stderr)
    if len(lines) > _MOST_SHOWN:
        print(f"and {len(lines) - _MOST_SHOWN} more", file=sys.stderr)

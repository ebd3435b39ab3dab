"""Reservations on a batch trace: what backfilling around them is worth, and whether they hold."""

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean as mean
from typing import Any, Final

from batchsched.model.decision import Decision
from batchsched.model.meta import seconds
from batchsched.model.snapshot import Snapshot
from batchsched.session.follow import Follower
from batchsched.settings.schema import Profile
from batchsched.sim.result import RunResult
from batchsched.sim.run import RunSettings, run
from batchsched.sim.swf import Swf, read, workload

MODES: Final[dict[str, dict[str, Any]]] = {
    "in turn": {"selection": "ordered", "blocking": True, "backfill": "none"},
    "whoever fits": {"selection": "ordered", "blocking": False, "backfill": "none"},
    "reserved": {"selection": "ordered", "blocking": True, "backfill": "easy"},
}
"""How gangs pass each other: not at all, freely, or around the head's reservation."""
CLOSE: Final = 0.1
"""An estimate is good when it is off by no more than this part of the wait that was left."""


@dataclass(slots=True)
class Promises:
    """Every reservation that sessions made: by gang, (when it was made, the start it names)."""

    made: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def follower(self, snapshot: Snapshot, profile: Profile) -> "Watched":
        """Return a scheduler whose reservations are noted."""
        return Watched(Follower(snapshot, profile), self)

    def note(self, decision: Decision, now: float) -> None:
        """Take in what a session reserved."""
        for one in decision.reservations:
            self.made.setdefault(one.pod_group, []).append((now, seconds(one.start)))


class Watched:
    """A scheduler that tells of its reservations, and is otherwise the one it wraps."""

    def __init__(self, scheduler: Follower, promises: Promises) -> None:
        self._scheduler, self._promises = scheduler, promises

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def decide(self, now: float, seed: int) -> Decision:
        """Decide, and note the reservations."""
        decision = self._scheduler.decide(now, seed)
        self._promises.note(decision, now)
        return decision


def play(trace: Swf, policy: str, mode: str, exact: bool) -> tuple[RunResult, Promises]:
    """Run a trace under a policy in one of the modes."""
    rows = [replace(row, estimate=row.runtime) for row in trace.rows] if exact else list(trace.rows)
    profile = Profile.model_validate(MODES[mode] | {"policy": {"name": policy}})
    promises = Promises()
    result = run(
        workload(rows, trace.processors, "swf"),
        lambda snapshot: promises.follower(snapshot, profile),
        RunSettings(policy, window=profile.session_window),
    )
    return result, promises


def kept(result: RunResult, promises: Promises) -> tuple[int, int, int, int]:
    """Count (first reservations, those whose gang started no later, all estimates, those within a tenth)."""
    started = {gang.key: gang.started for gang in result.gangs}
    first = in_time = every = close = 0
    for key, made in promises.made.items():
        start = started[key]
        if start is None:
            continue
        first += 1
        in_time += start <= made[0][1]
        for now, named in made:
            every += 1
            close += abs(named - start) <= max(1.0, CLOSE * (start - now))
    return first, in_time, every, close


def main(arguments: list[str]) -> int:
    """Play a trace under each policy, without backfilling and with, and say what was promised and kept."""
    parser = argparse.ArgumentParser(prog="backfill", description=__doc__)
    parser.add_argument("trace", type=Path, help="in the Standard Workload Format")
    parser.add_argument("--policy", nargs="+", default=["fcfs", "sjf", "saf"])
    parser.add_argument("--jobs", type=int, default=1024)
    parser.add_argument(
        "--skip", type=int, nargs="+", default=[0], help="rows before the first; several windows"
    )
    parser.add_argument("--estimated", action="store_true", help="take run times as users stated them")
    chosen = parser.parse_args(arguments)
    whole = read(chosen.trace)
    for policy in chosen.policy:
        slowdowns: dict[str, list[float]] = {mode: [] for mode in MODES}
        worst: dict[str, list[float]] = {mode: [] for mode in MODES}
        counts = [0, 0, 0, 0]
        for skip in chosen.skip:
            trace = replace(whole, rows=whole.rows[skip : skip + chosen.jobs])
            for mode in MODES:
                result, promises = play(trace, policy, mode, not chosen.estimated)
                metrics = result.metrics()
                slowdowns[mode].append(metrics.mean_slowdown)
                worst[mode].append(metrics.worst_slowdown)
                counts = [a + b for a, b in zip(counts, kept(result, promises), strict=True)]
        for mode in MODES:
            print(
                f"{policy:6} {mode:12} mean slowdown {mean(slowdowns[mode]):9.2f}, worst {mean(worst[mode]):9.0f}"
            )
        print(
            f"{policy:6} {counts[1]} of {counts[0]} heads no later than first reserved; "
            f"{counts[3]} of {counts[2]} estimates within a tenth"
        )
    return 0

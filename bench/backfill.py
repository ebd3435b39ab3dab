"""Reservations on a batch trace: how much backfilling around them gains, and whether gangs start as reserved."""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean as mean
from typing import Any, Final

from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.session import Session
from batchsched.simulator.result import RunMetrics, RunResult
from batchsched.simulator.run import RunSettings, simulate_workload
from batchsched.simulator.swf import SwfTrace, create_workload, read_trace

ORDERED: Final[dict[str, dict[str, Any]]] = {
    "in turn": {"selection": "ordered", "blocking": True, "backfill": "none"},
    "any that fits": {"selection": "ordered", "blocking": False, "backfill": "none"},
    "reserved": {"selection": "ordered", "backfill": "easy"},
    "kept": {"selection": "ordered", "backfill": "kept"},
}
"""How gangs pass each other: not at all, freely, around the head's reservation, or around one that is kept."""
WEIGHT: Final[dict[str, dict[str, Any]]] = {
    "any that fits": {"selection": "weight", "backfill": "none"},
    "reserved": {"selection": "weight", "backfill": "easy"},
    "kept": {"selection": "weight", "backfill": "kept"},
}
"""The same where the solver chooses by weight."""
CLOSE: Final = 0.1
"""An estimate is good when it is off by no more than this part of the wait that was left."""
Counts = Counter[str]


@dataclass(slots=True)
class Promises:
    """All reservations of the sessions: by gang, pairs of the time of the session and the reserved start."""

    made: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def follower(self, snapshot: Snapshot, profile: Profile) -> "Watched":
        """Return a scheduler with recorded reservations."""
        return Watched(Session(snapshot, profile), self)

    def note(self, decision: Decision, now: float) -> None:
        """Record the reservations of a session."""
        for one in decision.reservations:
            self.made.setdefault(one.pod_group, []).append((now, parse_timestamp(one.start)))


class Watched:
    """A scheduler that records its reservations, and otherwise delegates to the wrapped one."""

    def __init__(self, scheduler: Session, promises: Promises) -> None:
        self._scheduler, self._promises = scheduler, promises

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def decide(self, now: float, seed: int) -> Decision:
        """Decide, and record the reservations."""
        decision = self._scheduler.decide(now, seed)
        self._promises.note(decision, now)
        return decision


def play(trace: SwfTrace, profile: Profile, exact: bool) -> tuple[RunResult, Promises]:
    """Run a trace under a profile."""
    rows = [replace(row, estimate=row.runtime) for row in trace.rows] if exact else list(trace.rows)
    promises = Promises()
    result = simulate_workload(
        create_workload(rows, trace.processors, "swf"),
        lambda snapshot: promises.follower(snapshot, profile),
        RunSettings(profile.policy.name, window=profile.session_window),
    )
    return result, promises


def kept(result: RunResult, promises: Promises) -> Counts:
    """Return the number of reservations, and of those that were kept."""
    started = {gang.key: gang.started for gang in result.gangs}
    counts: Counts = Counter()
    for key, made in promises.made.items():
        start = started[key]
        if start is None:
            continue
        counts["heads"] += 1
        counts["in time"] += start <= made[0][1]
        for now, named in made:
            counts["estimates"] += 1
            counts["close"] += abs(named - start) <= max(1.0, CLOSE * (start - now))
    return counts


def told(counts: Counts) -> str:
    """Return a line with the reservations that were made and kept."""
    return (
        f"{counts['in time']} of {counts['heads']} heads no later than first reserved, "
        f"{counts['close']} of {counts['estimates']} estimates within a tenth"
    )


def summary(played: Sequence[RunMetrics]) -> str:
    """Return the means of slowdowns, waits, use and makespan over windows of a trace, in one line."""
    used = mean(max(metrics.utilisation.values(), default=0.0) for metrics in played)
    return (
        f"mean slowdown {mean(metrics.mean_slowdown for metrics in played):9.2f}, "
        f"worst {mean(metrics.worst_slowdown for metrics in played):9.0f}, "
        f"mean wait {mean(metrics.mean_wait for metrics in played) / 3600:6.2f} h, used {used:6.1%}, "
        f"makespan {mean(metrics.makespan for metrics in played) / 86400:6.2f} d"
    )


def main(arguments: list[str]) -> int:
    """Simulate a trace under each policy with and without backfilling, and print which reservations were kept."""
    parser = argparse.ArgumentParser(prog="python -m bench backfill", description=__doc__)
    parser.add_argument("trace", type=Path, help="in the Standard Workload Format")
    parser.add_argument("--policy", nargs="+", default=["fcfs", "sjf", "saf", "headroom"])
    parser.add_argument("--selection", choices=("ordered", "weight"), default="ordered")
    parser.add_argument("--promise", type=float, default=50.0, help="the slowdown from which a start is kept")
    parser.add_argument("--modes", nargs="+", help="only some ways to pass each other")
    parser.add_argument("--jobs", type=int, default=1024)
    parser.add_argument(
        "--skip", type=int, nargs="+", default=[0], help="rows before the first; several windows"
    )
    parser.add_argument("--estimated", action="store_true", help="take run times as users stated them")
    chosen = parser.parse_args(arguments)
    whole = read_trace(chosen.trace)
    modes = ORDERED if chosen.selection == "ordered" else WEIGHT
    for policy in chosen.policy:
        for mode in chosen.modes or modes:
            stated = {"policy": {"name": policy}, "promiseSlowdown": chosen.promise}
            profile = Profile.model_validate(modes[mode] | stated)
            played, counts = [], Counts()
            for skip in chosen.skip:
                trace = replace(whole, rows=whole.rows[skip : skip + chosen.jobs])
                result, promises = play(trace, profile, not chosen.estimated)
                played.append(result.metrics())
                counts += kept(result, promises)
            figures = f"{policy:8} {mode:12} {summary(played)}"
            print(f"{figures}; {told(counts)}" if counts else figures, flush=True)
    return 0

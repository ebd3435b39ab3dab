"""Sessions that begin with a start: an instance of which a small part changed, solved with and without it.

The change: in a share of the nodes other pods run, and the same share of the gangs is replaced by others. The start is
the answer to the instance before the change. Both sessions are solved in turn, so that a busy machine slows both.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from batchsched.solver.objective import TIER_TOLERANCE
from batchsched.solver.problem import Solution, SolverBudget
from batchsched.solver.stage import solve_problem
from batchsched.solver.start import NO_PLACEMENTS, WarmStart
from batchsched.solver.verify import find_solution_faults
from bench.solver.instances import Fill, Instance
from bench.solver.problems import to_problem

REPEATS: Final = 3
"""How often each of both sessions is solved; the median counts."""


@dataclass(frozen=True, slots=True)
class WarmResult:
    """One instance before and after the change.

    Args:
      seed: the instance.
      last_gap: the gap of the answer before the change.
      fresh, warm: objectives by tier after the change, without and with the start.
      fresh_gap, warm_gap: the gaps of both.
      fresh_cpu, warm_cpu: median CPU seconds.
      tier: the highest tier in which both differ, -1 if none does.
      gain: by how much the answer with the start is better in this tier, as a share.
    """

    seed: int
    last_gap: float
    fresh: list[float]
    warm: list[float]
    fresh_gap: float
    warm_gap: float
    fresh_cpu: float
    warm_cpu: float
    tier: int
    gain: float

    @property
    def ratio(self) -> float:
        """The CPU time with the start as a share of that without it."""
        return self.warm_cpu / self.fresh_cpu


def change_instance(instance: Instance, other: Instance, fill: Fill, share: float, seed: int) -> Instance:
    """Return the instance with other pods on a share of its nodes, and a share of its gangs taken from another one."""
    rng = np.random.default_rng([seed, 77])
    nodes, gangs = list(instance.nodes), list(instance.gangs)
    for index in _draw(rng, len(nodes), share):
        nodes[index] = replace(nodes[index], used=fill(nodes[index].type, rng))
    for index in _draw(rng, len(gangs), share):
        gangs[index] = replace(other.gangs[index], name=f"new-{gangs[index].name}")
    return replace(instance, nodes=tuple(nodes), gangs=tuple(gangs))


def _draw(rng: np.random.Generator, count: int, share: float) -> list[int]:
    chosen: list[int] = rng.choice(count, max(1, round(share * count)), replace=False).tolist()
    return chosen


def start_of(solution: Solution, instance: Instance, changed: Instance) -> WarmStart:
    """Return the start that a solution of one instance is for another one with the same nodes."""
    number = {key: index for index, key in enumerate(_classes(changed))}
    index = np.array([number.get(key, -1) for key in _classes(instance)], np.int32)[solution.classes]
    kept = index >= 0
    return WarmStart(index[kept], solution.nodes[kept], solution.counts[kept], solution.gap, solution.prices)


def _classes(instance: Instance) -> list[tuple[str, int]]:
    return [(gang.name, number) for gang in instance.gangs for number in range(len(gang.templates))]


def measure_start(instance: Instance, changed: Instance, budget: SolverBudget, seed: int) -> WarmResult:
    """Solve the changed instance with and without a start, in turn, and compare the answers."""
    last = solve_problem(to_problem(instance), budget, start=NO_PLACEMENTS)
    problem = to_problem(changed)
    start = start_of(last, instance, changed)
    fresh_seconds, warm_seconds = list[float](), list[float]()
    for _ in range(REPEATS):
        fresh = _timed(lambda: solve_problem(problem, budget), fresh_seconds)
        warm = _timed(lambda: solve_problem(problem, budget, start=start), warm_seconds)
    for answer in (fresh, warm):
        if faults := find_solution_faults(problem, answer):
            raise AssertionError(f"seed {seed}: {faults}")
    tier, gain = _first_difference(warm, fresh)
    return WarmResult(
        seed,
        last.gap,
        fresh.objective.tolist(),
        warm.objective.tolist(),
        fresh.gap,
        warm.gap,
        statistics.median(fresh_seconds),
        statistics.median(warm_seconds),
        tier,
        gain,
    )


def _timed(session: Callable[[], Solution], seconds: list[float]) -> Solution:
    begun = time.process_time()
    answer = session()
    seconds.append(time.process_time() - begun)
    return answer


def _first_difference(warm: Solution, fresh: Solution) -> tuple[int, float]:
    for tier, (value, other) in enumerate(
        zip(warm.objective.tolist(), fresh.objective.tolist(), strict=True)
    ):
        if abs(value - other) > TIER_TOLERANCE * max(value, other):
            return tier, (value / other - 1 if other else 1.0)
    return -1, 0.0


def show_starts(results: Iterable[WarmResult], output: str) -> None:
    """Print a line per instance, and the medians."""
    rows = list(results)
    if output == "json":
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(
        f"{'seed':>6} {'last gap':>8} {'fresh gap':>9} {'warm gap':>8} {'fresh s':>8} {'warm s':>8} {'ratio':>6}"
    )
    for row in rows:
        text = "equal" if row.tier < 0 else f"tier {row.tier + 1} {row.gain:+.2%}"
        print(f"{row.seed:>6} {_numbers(row)}  {text}")
    median = {
        name: statistics.median(getattr(row, name) for row in rows)
        for name in ("last_gap", "fresh_gap", "warm_gap", "fresh_cpu", "warm_cpu", "ratio")
    }
    worse = sum(row.gain < 0 for row in rows)
    print(
        f"median {median['last_gap']:8.2%} {median['fresh_gap']:9.2%} {median['warm_gap']:8.2%}"
        f" {median['fresh_cpu']:8.3f} {median['warm_cpu']:8.3f} {median['ratio']:6.2f}"
        f"  {len(rows) - worse} of {len(rows)} equal or better"
    )


def _numbers(row: WarmResult) -> str:
    return (
        f"{row.last_gap:8.2%} {row.fresh_gap:9.2%} {row.warm_gap:8.2%}"
        f" {row.fresh_cpu:8.3f} {row.warm_cpu:8.3f} {row.ratio:6.2f}"
    )

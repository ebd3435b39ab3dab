"""Small sessions against their optimum, which a long run of the exact model proves.

Compared are the answer of the session, and that of the tiered stage, which larger sessions use. An answer is within the
tolerance if it is no more than this below the optimum in the highest tier that differs. The bound of a tier holds for
what the answer places in the tiers above, so that it is compared with the optimum up to the first tier that differs.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

from batchsched.solver.exact import solve_exact
from batchsched.solver.objective import TIER_TOLERANCE, compare_objectives_by_tier
from batchsched.solver.problem import Problem, Solution, SolverBudget
from batchsched.solver.stage import solve_problem
from bench.solver.problems import to_problem
from bench.solver.small import small

TOLERANCE: Final = 0.005
"""How far below the optimum an answer may be, as a share of the tier that decides."""
PROVED_GAP: Final = 1e-4
"""The exact model has proved the optimum if no tier's bound is further above its value than this."""
LONG_RUN_UNITS: Final = 60.0
"""Deterministic units of the exact model; the session has 2."""
GUARD_SECONDS: Final = 1e6
"""The wall clock decides nothing, also on a busy machine: solutions and proofs depend on the units alone."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How an answer compares with the optimum.

    Args:
      stage: the step of the solver that found it.
      tier: the highest tier that differs from the optimum; -1 if none does.
      below: how far below the optimum it is in this tier; negative if above, which only an open instance can have.
      low_bounds: tiers with a bound below the optimum.
      gap: the gap that the answer reports.
    """

    stage: str
    tier: int
    below: float
    low_bounds: tuple[int, ...]
    gap: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One instance: whether its optimum is proved, and how the answers compare with it."""

    seed: int
    nodes: int
    gangs: int
    classes: int
    proved: bool
    units: float
    session: Answer
    tiered: Answer


def compare_with_optimum(seed: int, units: float = LONG_RUN_UNITS) -> Compared:
    """Solve a small instance as a session does, by the tiered stage alone, and to the optimum."""
    problem = to_problem(small(seed))
    session = solve_problem(problem, SolverBudget(guard_seconds=GUARD_SECONDS))
    tiered = solve_problem(problem, SolverBudget(guard_seconds=GUARD_SECONDS, exact_variables=0))
    # The session may end at its own bounds; those that are compared come from the exact model alone.
    optimum = find_optimum(problem, (session, tiered), units)
    proved = bool((optimum.bound <= optimum.objective * (1 + PROVED_GAP)).all())
    sizes = len(problem.nodes.free), len(problem.gangs.need), len(problem.classes.count)
    answers = compare_answer(session, optimum), compare_answer(tiered, optimum)
    return Compared(seed, *sizes, proved, optimum.effort, *answers)


def find_optimum(problem: Problem, answers: Iterable[Solution], units: float) -> Solution:
    """Solve a problem by the exact model with many units, from the best of the answers."""
    best: Solution | None = None
    for answer in answers:
        if best is None or compare_objectives_by_tier(answer.objective, best.objective) > 0:
            best = answer
    return solve_exact(problem, SolverBudget(deterministic=units, guard_seconds=GUARD_SECONDS), 0, best)


def compare_answer(answer: Solution, optimum: Solution) -> Answer:
    """Compare an answer and its bounds with the optimum, tier by tier."""
    low = []
    values = zip(optimum.objective.tolist(), answer.objective.tolist(), answer.bound.tolist(), strict=True)
    for tier, (most, value, bound) in enumerate(values):
        if bound < most * (1 - TIER_TOLERANCE):
            low.append(tier)
        if abs(most - value) > TIER_TOLERANCE * max(most, value):
            below = 1 - value / most if most else -value
            return Answer(answer.stage, tier, below, tuple(low), answer.gap)
    return Answer(answer.stage, -1, 0.0, tuple(low), answer.gap)


def measure_small(seeds: Iterable[int], units: float, output: str) -> int:
    """Compare each instance with its optimum and print the result; 1 if a proved one misses the tolerance."""
    results = []
    for seed in seeds:
        results.append(compare_with_optimum(seed, units))
        if output == "table":
            print(_line(results[-1]), flush=True)
    if output == "json":
        print(json.dumps([asdict(one) for one in results]))
    proved = [one for one in results if one.proved]
    if output == "table":
        print(f"{len(proved)} of {len(results)} optima are proved with {units:g} units")
    missed = False
    for name in ("session", "tiered"):
        answers: list[Answer] = [getattr(one, name) for one in proved]
        if output == "table":
            print(f"{name:>8}: {_summary(answers)}")
        missed |= name == "session" and any(a.below > TOLERANCE or a.low_bounds for a in answers)
    return int(missed)


def _summary(answers: list[Answer]) -> str:
    equal = sum(answer.tier < 0 for answer in answers)
    within = sum(answer.below <= TOLERANCE for answer in answers)
    worst = max((answer.below for answer in answers), default=0.0)
    low = sum(bool(answer.low_bounds) for answer in answers)
    return (
        f"{equal} equal to the optimum, {within} within {TOLERANCE:.1%}, worst {worst:.2%} below; "
        f"{low} with a bound below the optimum"
    )


def _line(one: Compared) -> str:
    parts = []
    for answer in (one.session, one.tiered):
        text = "equal" if answer.tier < 0 else f"tier {answer.tier} {-answer.below:+.2%}"
        low = " LOW BOUND" if answer.low_bounds else ""
        parts.append(f"{answer.stage:>10} {text:<14} gap {answer.gap:6.2%}{low}")
    proof = "proved" if one.proved else "open"
    size = f"{one.nodes:>3} nodes {one.gangs:>2} gangs {one.classes:>3} classes"
    return f"{one.seed:>5} {size}  {proof:<6} {one.units:5.1f} units  " + "  ".join(parts)

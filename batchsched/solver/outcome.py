"""From a packing to a `Solution`, and which of two solutions is better."""

import numpy as np

from batchsched.solver.objective import higher, tier_values, tiers
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import FloatArray, IndexArray, IntArray, Problem, Solution


def objective(problem: Problem, placed: IntArray) -> FloatArray:
    """Σ weight over placed pods of each tier, [T], from pods placed per class, [C]."""
    value = problem.classes.weight * placed
    found = np.bincount(problem.gangs.tier[problem.classes.gang], weights=value, minlength=tiers(problem))
    return found.astype(np.float64)


def ceiling(problem: Problem) -> FloatArray:
    """The objective of each tier if every allowed gang were placed to its last pod, [T]: a crude bound."""
    return objective(problem, np.where(problem.gangs.allowed[problem.classes.gang], problem.classes.count, 0))


def placed_per_class(problem: Problem, classes: IndexArray, counts: IndexArray) -> IntArray:
    """Pods placed of each class, [C], from the triples of a solution."""
    placed = np.zeros(len(problem.classes.count), np.int64)
    np.add.at(placed, classes, counts)
    return placed


def to_solution(packing: Packing, stage: str) -> Solution:
    """What a packing holds, as a solution with the crude bound."""
    problem = packing.problem
    classes, nodes, counts = packing.room.triples()
    value = tier_values(problem, classes, counts)
    bound = np.maximum(value, ceiling(problem))
    return Solution(classes, nodes, counts, packing.taken.copy(), value, bound, stage)


def compare(a: Solution, b: Solution) -> int:
    """1 when `a` is better, -1 when `b` is, 0 when tier values and the number of gangs are equal."""
    return higher(a.objective, b.objective) or int(np.sign(int(a.taken.sum()) - int(b.taken.sum())))

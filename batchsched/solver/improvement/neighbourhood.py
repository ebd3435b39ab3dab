"""Neighbourhoods of a solution: the gangs that one step of the improvement places again.

A step for a tier takes gangs of this tier and of lower ones, so that no tier waits for those above. The first steps
take all of them: the rounds planned these tiers before the places of the tiers above were known. Later steps take the
refused gangs and a random part of the others.

Shapes: C classes, G gangs, N nodes.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.solver.problem import NONE, IntArray, Problem, Solution

MAX_PAIRS: Final = 2_500_000
"""Maximum pairs of a pod class and a node in one neighbourhood: it bounds the time of a step on large clusters."""
KEPT_SHARE: Final = 0.5
"""Share of the placed gangs that keep their nodes in a neighbourhood of the later cycles."""


@dataclass(frozen=True, slots=True, eq=False)
class GangNeighbourhood:
    """The gangs that one improvement step of the solver places again.

    `gangs` contains their indexes in ascending order. `complete` is True if they are all gangs of a tier and of the
    tiers below.
    """

    gangs: IntArray
    complete: bool


class NeighbourhoodChooser:
    """The component that chooses at random which gangs each improvement step of the solver places again.

    Equal seeds give equal choices.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem, self._seed = problem, seed
        self._classes = np.bincount(problem.classes.gang, minlength=len(problem.gangs.need))
        self._max_classes = MAX_PAIRS // max(1, len(problem.nodes.free))

    def count_class_node_pairs(self, neighbourhood: GangNeighbourhood) -> int:
        """Return the number of pod classes in a neighbourhood of gangs, multiplied by the number of nodes."""
        return int(self._classes[neighbourhood.gangs].sum()) * len(self._problem.nodes.free)

    def gangs_without_required_level(self) -> GangNeighbourhood:
        """Return all gangs of the problem that require no topology level.

        The rounds planned them before the gangs with a domain had their nodes.
        """
        problem = self._problem
        inside = problem.subgroups.gang[problem.subgroups.required != NONE]
        free = problem.gangs.allowed & (problem.gangs.required == NONE)
        free[inside] = False
        return GangNeighbourhood(np.flatnonzero(free), complete=False)

    def choose_neighbourhood(
        self, tier: int, step: int, solution: Solution, *, takes_all_gangs: bool
    ) -> GangNeighbourhood:
        """Choose gangs of a tier and of all lower tiers, which a step of the improvement then places again.

        They are the refused gangs and a random part of the placed ones, or all gangs with `takes_all_gangs`.

        Args:
          tier: the highest tier of the gangs.
          step: the number of the step; other steps take another part.
          solution: the solution that the step is to improve.
          takes_all_gangs: take all these gangs, if they are not too many. A step for all gangs of the session would
            only repeat the rounds, so it takes a part in any case.
        """
        gangs = self._problem.gangs
        random = np.random.default_rng([self._seed, step])
        eligible = gangs.allowed & (gangs.tier >= tier)
        drawn = random.random(len(eligible)) >= KEPT_SHARE
        part = eligible & (~solution.taken | drawn | (takes_all_gangs and tier > 0))
        order = np.flatnonzero(part)[random.permutation(int(part.sum()))]
        within = np.cumsum(self._classes[order]) <= self._max_classes
        chosen = np.sort(order[within])
        return GangNeighbourhood(chosen, complete=len(chosen) == int(eligible.sum()))

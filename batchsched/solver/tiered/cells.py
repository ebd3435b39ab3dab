"""Where a gang with a required topology level may be placed: candidate domains, and cells of nodes with a switch."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.solver.packing.gang_parts import GangMembers, SubgroupMembers
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, IndexArray, IntArray, Solution

MAX_BEST_FIT_DOMAINS: Final = 6
"""Maximum candidates that are the tightest domains that hold the gang."""
MAX_SCATTERED_DOMAINS: Final = 6
"""Maximum candidates that are chosen by a fixed hash, so that gangs do not crowd into the same domains."""


@dataclass(frozen=True, slots=True, eq=False)
class DomainCell:
    """Nodes that a gang's part may use if it chooses a domain.

    Args:
      areas: (level, domain) pairs; their rows count the cell's pods.
      nodes: the nodes, ascending.
      domain: the gang's domain, or -1; `inner` the part's domain, or -1.
    """

    areas: tuple[tuple[int, int], ...]
    nodes: IntArray
    domain: int
    inner: int = NONE


class CandidateDomains:
    """Candidate domains of gangs with a required level."""

    def __init__(self, packing: Packing, incumbent: Solution | None, complete: bool = False) -> None:
        """Compute containments of levels and the incumbent's domains; `complete`: all domains are candidates."""
        self._best = len(packing.problem.nodes.free) if complete else MAX_BEST_FIT_DOMAINS
        self._packing = packing
        self._problem = packing.problem
        self._kept = _domains_of(packing, incumbent) if incumbent is not None else {}
        levels = self._problem.nodes.levels
        self._inside = {
            (a, b): _containment(levels[a], levels[b])
            for a in range(len(levels))
            for b in range(len(levels))
            if a != b
        }

    def areas(self, level: int, domain: int) -> tuple[tuple[int, int], ...]:
        """Return the domain itself and every domain of another level that contains all of it."""
        result = [(level, domain)]
        for other in range(len(self._problem.nodes.levels)):
            if other != level:
                outer = int(self._inside[level, other][domain])
                if outer != NONE:
                    result.append((other, outer))
        return tuple(result)

    def of_gang(self, gang: int, members: GangMembers, every: bool = False) -> list[DomainCell]:
        """Return the cells of a gang with a required level: the candidates, or with `every` all that may hold it."""
        problem, packing = self._problem, self._packing
        level, pinned = int(problem.gangs.required[gang]), int(problem.gangs.pinned[gang])
        need = packing.needs[gang]
        if pinned != NONE:
            chosen = [pinned] if self._packing.domain_nodes(level, pinned).size else []
        else:
            fitting = packing.fitting_domains(
                members, max(need, 1) if need < members.pods else need, level, None
            )
            chosen = fitting if every else _choose(fitting, self._best, gang, self._kept.get((gang, NONE)))
        if every:
            return _anywhere(problem.nodes.levels[level], chosen, None)
        return [DomainCell(self.areas(level, d), packing.domain_nodes(level, d), d) for d in chosen]

    def of_part(
        self, gang: int, part: SubgroupMembers, outer: DomainCell | None, every: bool = False
    ) -> list[DomainCell]:
        """Return the cells of a part with a required level, inside a cell of its gang: the candidates, or all."""
        packing = self._packing
        within = None if outer is None else outer.nodes
        domain = NONE if outer is None else outer.domain
        if part.pinned != NONE:
            chosen = [part.pinned] if packing.domain_nodes(part.required, part.pinned).size else []
        else:
            pods = int(self._problem.classes.count[list(part.classes)].sum())
            members = GangMembers(part.classes, (part,), pods, levelled=True)
            rigid = self._packing.members(gang).pods == self._packing.needs[gang]
            least = pods if rigid else max(1, part.need)
            fitting = packing.fitting_domains(members, least, part.required, within)
            salt = gang + 7919 * (part.index + 1)
            chosen = (
                fitting if every else _choose(fitting, self._best, salt, self._kept.get((gang, part.index)))
            )
        if every:
            return _anywhere(self._problem.nodes.levels[part.required], chosen, within)
        result = []
        for d in chosen:
            nodes = packing.domain_nodes(part.required, d)
            if within is not None:
                nodes = np.intersect1d(nodes, within, assume_unique=True)
            areas = self.areas(part.required, d) + (() if outer is None else outer.areas)
            result.append(DomainCell(tuple(dict.fromkeys(areas)), nodes, domain, d))
        return result


def _anywhere(ids: IndexArray, domains: list[int], within: IntArray | None) -> list[DomainCell]:
    """One cell of all nodes in any of these domains, for bounds; none if there are no domains."""
    if not domains:
        return []
    nodes = np.flatnonzero(np.isin(ids, domains)) if within is None else within[np.isin(ids[within], domains)]
    return [DomainCell((), nodes, NONE)]


def _choose(fitting: list[int], best: int, salt: int, kept: int | None) -> list[int]:
    """The tightest domains, some chosen by a fixed hash, and the incumbent's."""
    if len(fitting) <= best + MAX_SCATTERED_DOMAINS:
        chosen = list(fitting)
    else:
        rest = sorted(fitting[best:], key=lambda d: ((d + 1) * 2654435761 + salt * 40503) % 2**32)
        chosen = fitting[:best] + rest[:MAX_SCATTERED_DOMAINS]
    if kept is not None and kept not in chosen:
        chosen.append(kept)
    return chosen


def _domains_of(packing: Packing, incumbent: Solution) -> dict[tuple[int, int], int]:
    """The domains of gangs and parts with a required level in a solution: (gang, part or -1) to domain."""
    problem = packing.problem
    result: dict[tuple[int, int], int] = {}
    for class_index, node in zip(incumbent.classes.tolist(), incumbent.nodes.tolist(), strict=True):
        g, s = int(problem.classes.gang[class_index]), int(problem.classes.subgroup[class_index])
        if problem.gangs.required[g] != NONE:
            result[g, NONE] = int(problem.nodes.levels[problem.gangs.required[g], node])
        if s != NONE and problem.subgroups.required[s] != NONE:
            result[g, s] = int(problem.nodes.levels[problem.subgroups.required[s], node])
    return result


def _containment(inner: IntArray, outer: IntArray) -> IntArray:
    """For each inner domain the outer domain that contains all its nodes, or -1."""
    size = int(inner.max(initial=-1)) + 1
    low = np.full(size, np.iinfo(np.int64).max)
    high = np.full(size, NONE, np.int64)
    named = inner >= 0
    np.minimum.at(low, inner[named], outer[named])
    np.maximum.at(high, inner[named], outer[named])
    return np.where(low == high, high, NONE)

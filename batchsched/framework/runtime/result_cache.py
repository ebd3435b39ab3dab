"""What plugins said of a class and what of it still stands: only nodes that moved since are asked about again.

A node moves when a pod comes to it or leaves it, or when the Node object changes. Whoever keeps a `ClassResults` from
pod to pod, or from session to session, gets the same answers as without one, and pays for the nodes that moved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from batchsched.framework.cycle_state import CycleState
from batchsched.framework.interface import ScorePlugin
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime.scorer import PluginScorer, Scorer
from batchsched.framework.status import BoolArray, IndexArray, IntArray, Verdict
from batchsched.framework.traits import ResultScope

MANY = 2
"""Where more than every second node moved, all are asked about: one long array is cheaper than two."""
BYTES = 96
"""About what a class's arrays take for each node."""


@dataclass(slots=True, eq=False)
class CachedVerdict:
    """A Filter's verdict over all N nodes.

    Args:
      verdict: as the plugin gave it, in one go or node by node.
      fits: [N] nodes that it does not refuse.
      everyone: it refuses none.
      since: the generation of the moves that it hangs on when it was last true for certain.
    """

    verdict: Verdict
    fits: BoolArray
    everyone: bool
    since: int

    @classmethod
    def of(cls, verdict: Verdict, since: int) -> "CachedVerdict":
        """Keep a verdict over all nodes."""
        fits = verdict.fits
        return cls(verdict, fits, bool(fits.all()), since)

    def amended(self, moved: IndexArray, part: Verdict, since: int) -> "CachedVerdict | None":
        """Return what stands after `part` was said of the nodes that moved; None when that cannot be pieced together.

        What was kept is not changed: scans of earlier pods go on showing it.
        """
        whole = self.verdict
        accepted = not part.reasons or not part.refused.any()
        if accepted and (self.everyone or self.fits[moved].all()):
            self.since = since
            return self
        places = [whole.reasons.index(one) for one in part.reasons if one in whole.reasons]
        if len(places) < len(part.reasons) or places != sorted(places):
            return None
        refused, unresolvable = whole.refused.copy(), whole.unresolvable.copy()
        refused[:, moved] = False
        for place, row in zip(places, part.refused, strict=True):
            refused[place, moved] = row
        unresolvable[moved] = part.unresolvable
        fits = self.fits.copy()
        fits[moved] = part.fits
        verdict = Verdict(whole.reasons, refused, unresolvable)
        return CachedVerdict(verdict, fits, bool(fits.all()), since)


@dataclass(slots=True, eq=False)
class Scores:
    """What the Score plugins of one scope said.

    Args:
      scope: theirs.
      known: [N] nodes of which everything is known.
      plain: [N] weighted scores that need no normalising, added up.
      raw: plugin → [N] scores before they are normalised.
    """

    scope: ResultScope
    known: BoolArray
    plain: IntArray
    raw: dict[ScorePlugin, IntArray]

    @classmethod
    def nothing(cls, scorers: Sequence[Scorer], scope: ResultScope, count: int) -> "Scores":
        """Know nothing of `count` nodes."""
        normalized = [one.plugin for one in scorers if one.scope is scope and one.normalizing is not None]
        raw = {plugin: np.zeros(count, np.int64) for plugin in normalized}
        return cls(scope, np.zeros(count, np.bool_), np.zeros(count, np.int64), raw)


class CachedScores:
    """What Score plugins said of the nodes that they were asked about: those that fitted.

    Kinds, by scope: of a node to which a pod came those that look at Node objects are not asked again.
    """

    def __init__(self, scorers: Sequence[Scorer], table: NodeTable) -> None:
        count = len(table.nodes)
        self._scorers = tuple(scorers)
        self._kinds = tuple(
            Scores.nothing(scorers, scope, count)
            for scope in (
                ResultScope.NODE_OBJECT,
                ResultScope.ALL_NODE_OBJECTS,
                ResultScope.NODE_AND_ITS_PODS,
            )
            if any(one.scope is scope for one in scorers)
        )
        self._plain = np.zeros(count, np.int64)
        self._since = table.changes.generation, table.moves.generation
        self._feasible: IndexArray | None = None
        self._inside = np.zeros(count, np.bool_)
        self._normal = np.zeros(0, np.int64)
        self._stale = True

    def same(self, scorers: tuple[Scorer, ...]) -> bool:
        """Tell whether these are the plugins that were asked before."""
        return self._scorers == scorers

    def total(self, asking: PluginScorer, feasible: IndexArray, table: NodeTable) -> IntArray:
        """[n] Bring up to date what is known of the nodes that fit, and add up their scores."""
        same = self._feasible is feasible
        self._stale |= not same
        for kind in self._kinds:
            moved = self._moved(kind, table)
            # All that fitted before are known, but for those that moved.
            if same and not len(moved):
                continue
            kind.known[moved] = False
            wanted = moved[self._inside[moved]] if same else feasible[~kind.known[feasible]]
            self._stale |= self._ask(kind, asking, wanted, table)
        if self._stale:
            self._normal = self._normalized(asking, feasible, table)
            self._stale = False
        # Noted at the end: where a plugin broke, what it was to say is asked for again.
        if not same:
            self._feasible = feasible
            self._inside[:] = False
            self._inside[feasible] = True
        self._since = table.changes.generation, table.moves.generation
        if len(feasible) == len(self._plain):
            return self._plain + self._normal
        total: IntArray = self._plain.take(feasible)
        total += self._normal
        return total

    def _moved(self, kind: Scores, table: NodeTable) -> IndexArray:
        """[k] the nodes of which the plugins of a kind may say something else now."""
        if kind.scope is ResultScope.NODE_AND_ITS_PODS:
            return table.moves.since(self._since[1])
        if self._since[0] == table.changes.generation or kind.scope is ResultScope.NODE_OBJECT:
            return table.changes.since(self._since[0])
        return np.arange(len(table.nodes), dtype=np.int32)

    def _ask(self, kind: Scores, asking: PluginScorer, nodes: IndexArray, table: NodeTable) -> bool:
        """Ask about nodes of which not everything is known; tells whether a score that is to be normalised changed."""
        if not len(nodes):
            return False
        view = table.these(nodes)
        found = [(one, asking.raw(one, view)) for one in self._scorers if one.scope is kind.scope]
        plain = np.zeros(len(nodes), np.int64)
        changed = False
        for one, scores in found:
            raw = kind.raw.get(one.plugin)
            if raw is None:
                plain += scores if one.weight == 1 else one.weight * scores
            else:
                changed = changed or not np.array_equal(raw[view.where], scores)
                raw[view.where] = scores
        self._plain[view.where] += plain - kind.plain[view.where]
        kind.plain[view.where] = plain
        kind.known[view.where] = True
        return changed

    def _normalized(self, asking: PluginScorer, feasible: IndexArray, table: NodeTable) -> IntArray:
        total = np.zeros(len(feasible), np.int64)
        view = table.these(feasible)
        for kind in self._kinds:
            for one in self._scorers:
                if one.normalizing is not None and one.scope is kind.scope:
                    total += one.weight * asking.normal(one, kind.raw[one.plugin][feasible], view)
        return total


class ClassResults:
    """What the plugins said of one class over the nodes of one table."""

    def __init__(self) -> None:
        self._judged: dict[object, CachedVerdict] = {}
        self._ranked: CachedScores | None = None
        self._fits: BoolArray | None = None
        self._feasible = np.zeros(0, np.int32)
        self._prefiltered: tuple[int, CycleState] | None = None
        self._prescored: tuple[int, IndexArray, CycleState] | None = None

    def prefiltered(self, table: NodeTable) -> CycleState | None:
        """Return what PreFilters wrote that need not be asked again; None: all are asked."""
        known = self._prefiltered
        return known[1] if known is not None and known[0] == table.changes.generation else None

    def prefilter(self, table: NodeTable, lasting: CycleState) -> None:
        """Keep what PreFilters wrote, until a Node object changes."""
        self._prefiltered = table.changes.generation, lasting

    def prescored(self, table: NodeTable, feasible: IndexArray) -> CycleState | None:
        """Return what PreScores wrote of the nodes that `fitting` told, and need not be asked again; None: all are."""
        known = self._prescored
        same = known is not None and known[0] == table.changes.generation and known[1] is feasible
        return known[2] if known is not None and same else None

    def prescore(self, table: NodeTable, feasible: IndexArray, lasting: CycleState) -> None:
        """Keep what PreScores wrote of the nodes that fit, until a Node object changes."""
        self._prescored = table.changes.generation, feasible, lasting

    def judge(
        self, plugin: object, scope: ResultScope, table: NodeTable, ask: Callable[[Nodes], Verdict]
    ) -> CachedVerdict:
        """Return a Filter's verdict over all nodes; `ask` asks it about some of them."""
        known = self._judged.get(plugin)
        log = table.moves if scope is ResultScope.NODE_AND_ITS_PODS else table.changes
        if known is not None:
            if known.since == log.generation:
                return known
            moved = log.since(known.since)
            if scope is not ResultScope.ALL_NODE_OBJECTS and 0 < len(moved) * MANY <= len(table.nodes):
                amended = known.amended(moved, ask(table.these(moved)), log.generation)
                if amended is not None:
                    self._judged[plugin] = amended
                    return amended
        found = CachedVerdict.of(ask(table.all()), log.generation)
        if scope is not ResultScope.CLUSTER:
            self._judged[plugin] = found
        return found

    def fitting(self, fits: BoolArray) -> IndexArray:
        """[n] Return the nodes that fit, of all N: the very array of the last time where they are the same."""
        if self._fits is None or not np.logical_and.reduce(self._fits == fits):
            self._fits, self._feasible = fits, np.flatnonzero(fits).astype(np.int32)
        return self._feasible

    def rank(
        self, scorers: tuple[Scorer, ...], asking: PluginScorer, feasible: IndexArray, table: NodeTable
    ) -> IntArray:
        """[n] Return the total of Score plugins whose scope is not the cluster, for the nodes that fit.

        They are the array that `fitting` returned: of any other that is asked again what stands of that one. Nodes that
        do not fit are not asked about, nor do they count when scores are normalised.
        """
        if self._ranked is None or not self._ranked.same(scorers):
            self._ranked = CachedScores(scorers, table)
        return self._ranked.total(asking, feasible, table)


class ResultCache:
    """The standings of a table's classes; those that were not asked for in the longest time are forgotten.

    Args:
      table: whose nodes they speak of.
      most: bytes of arrays that they may have, more or less.
    """

    def __init__(self, table: NodeTable, most: int = 2**27) -> None:
        self._table = table
        self._most = most
        self._known: dict[int, tuple[PodClass, ClassResults]] = {}

    def forget(self) -> None:
        """Forget all: nodes have other places now."""
        self._known.clear()

    def of(self, pod: PodClass) -> ClassResults:
        """Return what stands of a class."""
        first = pod.first
        known = self._known.pop(id(first), None) or (first, ClassResults())
        self._known[id(first)] = known
        if len(self._known) > max(1, self._most // (BYTES * max(1, len(self._table.nodes)))):
            del self._known[next(iter(self._known))]
        return known[1]

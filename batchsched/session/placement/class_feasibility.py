"""The survey: what the pipeline says of every node for each class, before anything lands."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from batchsched.errors import PluginError
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime.plugin_call import name_of
from batchsched.framework.status import BoolArray, IntArray
from batchsched.session.tables.session_tables import SessionTables


@dataclass(frozen=True, slots=True, eq=False)
class ClassFeasibility:
    """One class, surveyed.

    Args:
      scan: PreFilter's and Filter's answers as things are.
      mask: [N] nodes that no filter refuses for good: those that refuse only until a pod lands stay in.
      lasting: [N] nodes that nothing but capacity and neighbours stands against: pods that end may clear them.
      score: [N] total score where mask holds, 0 elsewhere.
      failure: what broke, "" when nothing did; then the mask is empty.
      plugin: whose failure it was.
      steady: True when `lasting` follows from node and pod objects alone, and stays while they do.
      shrinking: True when landing pods can only take room away: no filter that was asked may change its mind.
    """

    scan: FilterResult | None
    mask: BoolArray
    lasting: BoolArray
    score: IntArray
    failure: str = ""
    plugin: str = ""
    steady: bool = False
    shrinking: bool = False


class FeasibilityByClass:
    """The surveys of a session's classes, made when they are first asked for."""

    def __init__(self, tables: SessionTables, *, scores: bool = True) -> None:
        self._tables = tables
        self._scores = scores
        self._steady = frozenset(name_of(one) for one in tables.pipeline.steady)
        self._static = self._steady - {name_of(one) for one in tables.pipeline.moving}
        self._shrinking = frozenset(name_of(one) for one in tables.pipeline.never_reopening)
        self._known: dict[int, tuple[PodClass, ClassFeasibility]] = {}

    def of(self, pod_class: PodClass) -> ClassFeasibility:
        """Return the survey of a class."""
        first = pod_class.first
        known = self._known.get(id(first))
        if known is None:
            known = self._known[id(first)] = (first, self._look(first))
        return known[1]

    def all(self, classes: Iterable[PodClass]) -> None:
        """Survey many classes."""
        for pod_class in classes:
            self.of(pod_class)

    def _look(self, pod_class: PodClass) -> ClassFeasibility:
        tables = self._tables
        count = len(tables.node_table.nodes)
        nothing = np.zeros(count, np.bool_)
        no_score = np.zeros(count, np.int64)
        try:
            standing = tables.result_cache.of(pod_class)
            scan = tables.pipeline.scan(pod_class, tables.node_table, standing)
            if not scan.status.ok:
                return ClassFeasibility(scan, nothing, nothing, no_score)
            mask = np.ones(count, np.bool_) if scan.outside is None else ~scan.outside
            lasting = mask.copy()
            for plugin, verdict in zip(scan.plugins, scan.verdicts, strict=True):
                if plugin in self._static:
                    lasting &= verdict.fits
                if plugin in self._steady:
                    mask &= verdict.fits
            asked = tables.pipeline.extenders.interested(pod_class.pod)
            steady = self._static.issuperset(scan.narrowed_by) and not asked
            shrinking = self._shrinking.issuperset(scan.plugins)
            # An extender is asked once for the class, so about all nodes that a pod of it may come to.
            for url, verdict in tables.pipeline.extenders.filter(pod_class.pod, mask, tables.node_table):
                scan = scan.refusing(((url, verdict),))
                mask &= verdict.fits
                lasting &= ~verdict.unresolvable
            score = no_score
            if self._scores and mask.any():
                feasible = standing.feasible_nodes(mask)
                score[feasible] = tables.pipeline.score(
                    pod_class, feasible, tables.node_table, scan.state, standing
                )
            return ClassFeasibility(
                scan,
                mask,
                lasting,
                score,
                steady=steady,
                shrinking=shrinking,
            )
        except PluginError as error:
            return ClassFeasibility(None, nothing, nothing, no_score, str(error), error.plugin)

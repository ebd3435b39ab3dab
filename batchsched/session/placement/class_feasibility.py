"""Feasibility of pod classes: what the pipeline says of every node for a class, before any pod of the session lands."""

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
    """The pipeline's answers for one class.

    Args:
      scan: the answers of PreFilter and Filter on the tables as they are; None if a plugin failed.
      mask: [N] nodes that no filter refuses permanently. A node stays in if it is only full, or may be accepted once
        another pod lands.
      lasting: [N] nodes that are refused by nothing but capacity and other pods, so pods that end may clear them.
      score: [N] total score where `mask` is set, 0 elsewhere.
      failure: message of the plugin's failure, "" for none; the masks are empty then.
      plugin: the plugin that failed.
      steady: True if `lasting` depends only on node and pod objects: it is valid as long as these do not change.
      shrinking: True if landing pods can only remove nodes: no filter that was asked accepts a node later.
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
    """Feasibility of the classes of a session, computed on first use.

    Answers depend on the pods on the tables. After pods landed, make a new object.

    Args:
      tables: nodes and pods as the session finds them.
      scores: also compute scores; victims are chosen without them.
    """

    def __init__(self, tables: SessionTables, *, scores: bool = True) -> None:
        self._tables = tables
        self._scores = scores
        pipeline = tables.pipeline
        self._steady_filters = frozenset(name_of(plugin) for plugin in pipeline.steady)
        """Filters that keep refusing a node whatever pod lands; capacity is not among them."""
        self._lasting_filters = self._steady_filters - {name_of(plugin) for plugin in pipeline.moving}
        """Filters that no pod on any node affects."""
        self._shrinking_filters = frozenset(name_of(plugin) for plugin in pipeline.never_reopening)
        # The class is part of the value: its id may be used again once it is gone.
        self._feasibility: dict[int, tuple[PodClass, ClassFeasibility]] = {}

    def of(self, pod_class: PodClass) -> ClassFeasibility:
        """Return the feasibility of a class; classes that differ in priority alone share it if no plugin reads it."""
        first = pod_class.first
        entry = self._feasibility.get(id(first))
        if entry is None:
            entry = self._feasibility[id(first)] = (first, self._compute(first))
        return entry[1]

    def all(self, classes: Iterable[PodClass]) -> None:
        """Compute the feasibility of many classes, so that their time counts for the current stage."""
        for pod_class in classes:
            self.of(pod_class)

    def _compute(self, pod_class: PodClass) -> ClassFeasibility:
        tables, pipeline = self._tables, self._tables.pipeline
        node_count = len(tables.node_table.nodes)
        no_node = np.zeros(node_count, np.bool_)
        score = np.zeros(node_count, np.int64)
        try:
            results = tables.result_cache.of(pod_class)
            scan = pipeline.scan(pod_class, tables.node_table, results)
            if not scan.status.ok:
                return ClassFeasibility(scan, no_node, no_node, score)
            mask = np.ones(node_count, np.bool_) if scan.outside is None else ~scan.outside
            lasting = mask.copy()
            for plugin, verdict in zip(scan.plugins, scan.verdicts, strict=True):
                if plugin in self._lasting_filters:
                    lasting &= verdict.fits
                if plugin in self._steady_filters:
                    mask &= verdict.fits
            asks_extender = pipeline.extenders.interested(pod_class.pod)
            steady = self._lasting_filters.issuperset(scan.narrowed_by) and not asks_extender
            shrinking = self._shrinking_filters.issuperset(scan.plugins)
            # An extender is asked once for the class, so about every node that a pod of it may get.
            for url, verdict in pipeline.extenders.filter(pod_class.pod, mask, tables.node_table):
                scan = scan.refusing(((url, verdict),))
                mask &= verdict.fits
                lasting &= ~verdict.unresolvable
            if self._scores and mask.any():
                feasible = results.feasible_nodes(mask)
                score[feasible] = pipeline.score(pod_class, feasible, tables.node_table, scan.state, results)
            return ClassFeasibility(
                scan,
                mask,
                lasting,
                score,
                steady=steady,
                shrinking=shrinking,
            )
        except PluginError as error:
            # A failing plugin costs the gangs of this class their place, not the session.
            no_score = np.zeros(node_count, np.int64)
            return ClassFeasibility(None, no_node, no_node, no_score, str(error), error.plugin)

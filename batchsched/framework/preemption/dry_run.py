"""Dry run of preemption on many nodes at once, if Node objects and requests alone decide.

One array for all nodes replaces a dry run on each: the free resources of a node follow from the requests of the
pods that are removed and added. If a Filter reads more than that, `NodeTrial` tries the nodes one after the other.
"""

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import ask, name_of
from batchsched.framework.status import SUCCESS, BoolArray, Code, IndexArray, IntArray, Status


class PreemptionCase(Nodes):
    """A view of n nodes with other requested amounts than the table has."""

    __slots__ = ("_nonzero", "_requested")

    def __init__(self, table: NodeTable, nodes: IndexArray, requested: IntArray, nonzero: IntArray) -> None:
        super().__init__(table, nodes, len(nodes))
        self._requested = requested
        self._nonzero = nonzero

    @property
    @override
    def requested(self) -> IntArray:
        """[n, R] requests of the pods that would be on each node."""
        return self._requested

    @property
    @override
    def nonzero(self) -> IntArray:
        """[n, 2] requested milli-CPU and bytes, with the defaults that scoring uses."""
        return self._nonzero


class PreemptionDryRun:
    """Dry run on several nodes with other pods on them. The table is not changed.

    Args:
      pipeline: the Filters to call.
      pod: the class of the pending pod.
      table: the nodes.
      state: the cycle state of the class.
      nodes: [n] the nodes, one for each row.
    """

    def __init__(
        self, pipeline: Pipeline, pod: PodClass, table: NodeTable, state: CycleState, nodes: Sequence[int]
    ) -> None:
        self.nodes = tuple(nodes)
        self._pod = pod
        self._table = table
        self._state = state
        self._filters = [one for one in pipeline.filters if name_of(one) not in state.skip_filter]
        self._counting = [one for one in self._filters if one in pipeline.moving]
        self._nodes_of_rows = np.asarray(self.nodes, np.int32)
        self._requested = table.requested[self._nodes_of_rows]
        self._nonzero = table.nonzero[self._nodes_of_rows]

    def add(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Add pods[i] to the node of rows[i]. A row may occur several times. The pods are on nodes of the table."""
        self._change(rows, pods, 1)

    def remove(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Remove pods[i] from the node of rows[i]."""
        self._change(rows, pods, -1)

    def _change(self, rows: IndexArray, pods: Sequence[Pod], sign: int) -> None:
        if not len(rows):
            return
        counted = [self._table.counted(pod) for pod in pods]
        requested = np.concatenate([one for one, _ in counted]).reshape(len(rows), -1)
        nonzero = np.concatenate([one for _, one in counted]).reshape(len(rows), -1)
        np.add.at(self._requested, rows, sign * requested)
        np.add.at(self._nonzero, rows, sign * nonzero)

    def refusals(self) -> list[Status]:
        """Call all Filters about every row. Return the first refusal of each row, or Success.

        Raises:
          PluginError: a plugin failed.
        """
        statuses = [SUCCESS] * len(self.nodes)
        everyone = np.arange(len(self.nodes), dtype=np.int32)
        view = self._view(everyone)
        fits = np.ones(len(self.nodes), np.bool_)
        for plugin in self._filters:
            answer = ask(plugin, "Filter", plugin.filter, self._pod, view, self._state)
            verdict = answers.verdict(plugin, answer, len(view))
            for row in np.flatnonzero(fits & ~verdict.fits).tolist():
                code = Code.UNRESOLVABLE if verdict.unresolvable[row] else Code.UNSCHEDULABLE
                statuses[row] = Status(code, verdict.reasons_at(row), name_of(plugin))
            fits &= verdict.fits
        return statuses

    def fits(self, rows: IndexArray) -> BoolArray:
        """[k] Return which of these rows still fit. All of them fitted before pods were added or removed.

        Raises:
          PluginError: a plugin failed.
        """
        view = self._view(rows)
        fits = np.ones(len(rows), np.bool_)
        for plugin in self._counting:
            answer = ask(plugin, "Filter", plugin.filter, self._pod, view, self._state)
            fits &= answers.verdict(plugin, answer, len(view)).fits
        return fits

    def _view(self, rows: IndexArray) -> PreemptionCase:
        return PreemptionCase(
            self._table, self._nodes_of_rows[rows], self._requested[rows], self._nonzero[rows]
        )

"""Many nodes at once, each as it would be with other pods on it, where counts and Node objects alone decide.

One array for all nodes takes the place of a trial of each: what is left of a node's resources follows from the requests
of the pods that leave it and come back. Where a Filter looks at more than that, nodes are tried one by one.
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
    """A view of n nodes on which other amounts are taken than the table says."""

    __slots__ = ("_nonzero", "_requested")

    def __init__(self, table: NodeTable, nodes: IndexArray, requested: IntArray, nonzero: IntArray) -> None:
        super().__init__(table, nodes, len(nodes))
        self._requested = requested
        self._nonzero = nonzero

    @property
    @override
    def requested(self) -> IntArray:
        """[n, R] what pods would have taken."""
        return self._requested

    @property
    @override
    def nonzero(self) -> IntArray:
        """[n, 2] milli-CPU and bytes that would be taken, with the defaults that scoring uses."""
        return self._nonzero


class PreemptionDryRun:
    """Some nodes as they would be with other pods on them. The table stays as it is.

    Args:
      pipeline: whose Filters are asked.
      pod: the class that is to fit.
      table: the nodes.
      state: of the class's cycle.
      nodes: [n] the nodes; a row for each.
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
        self._at = np.asarray(self.nodes, np.int32)
        self._requested = table.requested[self._at]
        self._nonzero = table.nonzero[self._at]

    def add(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Put pods[i] on the node of rows[i]; a row may come several times. The pods are on nodes of the table."""
        self._change(rows, pods, 1)

    def remove(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Take pods[i] off the node of rows[i]."""
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
        """Ask all Filters about every row; of each row the first refusal stands, or Success.

        Raises:
          PluginError: a plugin broke.
        """
        found = [SUCCESS] * len(self.nodes)
        everyone = np.arange(len(self.nodes), dtype=np.int32)
        view = self._view(everyone)
        fits = np.ones(len(self.nodes), np.bool_)
        for plugin in self._filters:
            stated = ask(plugin, "Filter", plugin.filter, self._pod, view, self._state)
            verdict = answers.verdict(plugin, stated, len(view))
            for row in np.flatnonzero(fits & ~verdict.fits).tolist():
                code = Code.UNRESOLVABLE if verdict.unresolvable[row] else Code.UNSCHEDULABLE
                found[row] = Status(code, verdict.reasons_at(row), name_of(plugin))
            fits &= verdict.fits
        return found

    def fits(self, rows: IndexArray) -> BoolArray:
        """[k] Tell which rows fit, of some that fitted before pods came or left.

        Raises:
          PluginError: a plugin broke.
        """
        view = self._view(rows)
        found = np.ones(len(rows), np.bool_)
        for plugin in self._counting:
            stated = ask(plugin, "Filter", plugin.filter, self._pod, view, self._state)
            found &= answers.verdict(plugin, stated, len(view)).fits
        return found

    def _view(self, rows: IndexArray) -> PreemptionCase:
        return PreemptionCase(self._table, self._at[rows], self._requested[rows], self._nonzero[rows])

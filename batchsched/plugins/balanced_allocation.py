"""NodeResourcesBalancedAllocation: prefers nodes on which the pod makes the use of resources more even."""

from collections.abc import Hashable
from typing import ClassVar, Final

import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.api.crd.base import StrictModel
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.interface import PreScorePlugin, ScorePlugin, SignaturePlugin
from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.plugin_support.scores import (
    CPU_AND_MEMORY,
    ResourceSpec,
    ScoredResources,
    all_positive,
    requested_amounts,
    scored_resources,
)
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import SKIP, SUCCESS, FloatArray, IntArray, Status
from batchsched.framework.traits import PluginTraits, ResultScope

SCORED: Final = StateKey[ScoredResources]("NodeResourcesBalancedAllocation/scored")
WITHOUT_AND_WITH: Final = np.array(((0,), (1,)))
"""[2, 1] how many times the pod counts: without it and with it."""
MIDDLE: Final = 50
"""Part of the score for the absolute balance. If the pod does not change a node's balance, the node scores 75."""


class BalancedAllocationArgs(StrictModel):
    """Arguments of NodeResourcesBalancedAllocation, as in kube-scheduler."""

    resources: tuple[ResourceSpec, ...] = Field(default=CPU_AND_MEMORY, min_length=1)


class BalancedAllocation(SignaturePlugin, PreScorePlugin, ScorePlugin):
    """Scores nodes higher if the pod makes the used fractions of their resources more even.

    Source: kube-scheduler's plugins/noderesources/balanced_allocation.go, the formula of 1.36.
    """

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    traits: ClassVar[PluginTraits] = PluginTraits(
        result_scope=ResultScope.NODE_AND_ITS_PODS, reads_priority=False
    )
    Args: ClassVar[type[BalancedAllocationArgs]] = BalancedAllocationArgs

    def __init__(self, args: BalancedAllocationArgs | None = None) -> None:
        self.args = args or BalancedAllocationArgs()

    @override
    def signature(self, pod: Pod) -> Hashable:
        """Return an empty signature, because the plugin reads nothing of a pod's spec except its requests.

        The pods of a class always have equal requests.
        """
        return ()

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        state.write(SCORED, self._scored(pod, nodes))
        # A pod without requests changes no balance; a score would send all such pods to one node.
        return (
            SUCCESS if any(requested_amounts(pod, nodes.table, self.args.resources, nonzero=False)) else SKIP
        )

    def _scored(self, pod: PodClass, nodes: Nodes) -> ScoredResources:
        return scored_resources(pod, nodes.table, self.args.resources, nonzero=False)

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        resources = state.read(SCORED) if state.has(SCORED) else self._scored(pod, nodes)
        if not resources:
            return np.full(len(nodes), MIDDLE + MIDDLE // 2, np.int64)
        before, after = balance_without_and_with_pod(resources, nodes)
        gain: IntArray = after - before
        return MIDDLE + (MIDDLE + gain) // 2


def balance_without_and_with_pod(resources: ScoredResources, nodes: Nodes) -> IntArray:
    """Return how evenly the resources of n nodes are used, as an array [2, n]: without and with the pod.

    An entry is 100 minus the standard deviation of the used fractions of the node's resources, in percent.

    The result is rounded down. Sums are computed in the order of the resources, so that they round as in
    kube-scheduler.
    """
    capacities = [one.allocatable(nodes) for one in resources]
    fractions = [
        np.minimum(
            (resource.requested(nodes) + resource.request * WITHOUT_AND_WITH) / np.maximum(capacity, 1), 1.0
        )
        for resource, capacity in zip(resources, capacities, strict=True)
    ]
    if len(resources) == 2 and all(all_positive(capacity) for capacity in capacities):
        return _percent(np.abs(fractions[0] - fractions[1]) / 2)
    offered = np.stack([capacity > 0 for capacity in capacities])[:, np.newaxis]
    used = np.where(offered, np.stack(fractions), 0.0)
    count = np.maximum(offered.sum(axis=0), 1)
    mean = _sum(used) / count
    deviation = np.sqrt(_sum(np.where(offered, (used - mean) ** 2, 0.0)) / count)
    # kube-scheduler halves the distance of two fractions, which rounds differently from the general formula.
    highest = np.where(offered, used, -np.inf).max(axis=0)
    lowest = np.where(offered, used, np.inf).min(axis=0)
    return _percent(np.where(count == 2, np.abs(highest - lowest) / 2, deviation))


def _percent(deviation: FloatArray) -> IntArray:
    return ((1 - deviation) * 100).astype(np.int64)


def _sum(rows: FloatArray) -> FloatArray:
    """Return the sum [2, n] of rows, added one after the other."""
    total = np.zeros(rows.shape[1:])
    for row in rows:
        total += row
    return total

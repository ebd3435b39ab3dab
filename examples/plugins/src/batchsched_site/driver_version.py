"""DriverVersion: pods that request a GPU are placed on nodes with a sufficiently new driver, the newest first.

A plugin that works on arrays: it is called for all nodes at once, and once for equal pods.
"""

from collections.abc import Hashable
from typing import ClassVar, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from batchsched.api.core.pod import Pod
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.scores import default_normalize
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import SKIP, SUCCESS, IntArray, PreFilterAnswer, Status, Verdict
from batchsched.framework.traits import PlacementEffect, PluginTraits

TOO_OLD: Final = "node(s) had a driver older than {minimum}"


class DriverVersionArgs(BaseModel):
    """The fields of `pluginConfig[].args`. Other fields are forbidden, so that a misspelt field is reported by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str = Field("example.com/driver-version", min_length=1, description="Node label, a whole number.")
    minimum: int = Field(535, ge=0, description="The oldest accepted driver version.")
    resource: str = Field("nvidia.com/gpu", min_length=1, description="Pods that request it need the driver.")


class DriverVersion:
    """Compares the driver version in a node label. Without a whole number in the label, a node has version 0."""

    name: ClassVar[str] = "DriverVersion"
    # Placed pods change no labels: the session calls the Filter once and keeps the answer for the solver.
    traits: ClassVar[PluginTraits] = PluginTraits(placement_effect=PlacementEffect.NONE)
    Args = DriverVersionArgs

    def __init__(self, args: DriverVersionArgs) -> None:
        self.args = args

    def signature(self, pod: Pod) -> Hashable:
        """Return everything that this plugin reads of a pod. Pods with equal signatures are one class."""
        return self._concerns(pod)

    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        """Skip the Filter for pods that need no driver."""
        return PreFilterAnswer(SUCCESS if self._concerns(pod.pod) else SKIP)

    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        """Refuse nodes as unresolvable: evicting pods makes no driver newer."""
        too_old = self._versions(nodes) < self.args.minimum
        return Verdict.refuse(too_old, TOO_OLD.format(minimum=self.args.minimum), unresolvable=True)

    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        """Skip the Score for pods that need no driver."""
        return SUCCESS if self._concerns(pod.pod) else SKIP

    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        """Return the driver versions [n], which `normalize` maps to 0..100."""
        return self._versions(nodes)

    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        """Return scores [n], with 100 for the newest driver among the nodes that fit."""
        return default_normalize(scores, reverse=False)

    def _concerns(self, pod: Pod) -> bool:
        return any(
            self.args.resource in amounts
            for container in pod.spec.containers
            if container.resources is not None
            for amounts in (container.resources.requests or {}, container.resources.limits or {})
        )

    def _versions(self, nodes: Nodes) -> IntArray:
        # Computed once for all nodes of the session; `nodes.where` selects the nodes of this call.
        key = ("driver version", self.args.label)
        return nodes.table.cached_value_of_nodes(key, lambda table: _versions(table, self.args.label))[
            nodes.where
        ]


def _versions(table: NodeTable, label: str) -> IntArray:
    codes, values = table.label_indexes_and_values(label)
    numbers = [int(value) if value.isascii() and value.isdigit() else 0 for value in values]
    # A node without the label has code -1: the last entry.
    return np.array([*numbers, 0], np.int64)[codes]

"""Base classes for plugins that judge one node at a time. They build the arrays that the pipeline expects."""

from typing import ClassVar

import numpy as np

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import Code, IntArray, Status, Verdict
from batchsched.framework.traits import PlacementEffect, PluginTraits


class PerNodeFilter:
    """Base class for Filter plugins that judge one node at a time.

    Subclass it and implement `filter_node`. Without `traits`, it is called again for a node when pods have been
    placed. A Filter that reads only the Node object declares `PlacementEffect.NONE`.
    """

    name: ClassVar[str]
    traits: ClassVar[PluginTraits] = PluginTraits(placement_effect=PlacementEffect.ANY)

    def filter_node(self, pod: Pod, node: Node) -> Status:
        """Return the status of one node for a pod: Success, Unschedulable or UnschedulableAndUnresolvable.

        A refusal has one or more reasons.
        """
        raise NotImplementedError

    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        """Call `filter_node` for each of the given nodes, and return the combined verdict."""
        answers = [self.filter_node(pod.pod, node) for node in nodes.node_objects]
        reasons = tuple(dict.fromkeys(reason for answer in answers for reason in answer.reasons))
        refused = np.zeros((len(reasons), len(answers)), np.bool_)
        unresolvable = np.zeros(len(answers), np.bool_)
        for index, answer in enumerate(answers):
            if answer.ok:
                continue
            if not answer.reasons:
                raise PluginError(
                    self.name, "Filter", f"refused node {nodes.node_objects[index].name} without a reason"
                )
            unresolvable[index] = answer.code is Code.UNRESOLVABLE
            for reason in answer.reasons:
                refused[reasons.index(reason), index] = True
        return Verdict(reasons, refused, unresolvable)


class PerNodeScore:
    """Base class for Score plugins that score one node at a time, from 0 to 100.

    Subclass it and implement `score_node`.
    """

    name: ClassVar[str]

    def score_node(self, pod: Pod, node: Node) -> int:
        """Return the score of one node for a pod, from 0 to 100; higher is better."""
        raise NotImplementedError

    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        """Call `score_node` for each of the given nodes, and return the scores."""
        return np.fromiter(
            (self.score_node(pod.pod, node) for node in nodes.node_objects), np.int64, len(nodes)
        )

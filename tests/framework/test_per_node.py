"""Plugins that think node by node, against the same written in arrays."""

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.interface import FilterPlugin, ScorePlugin
from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.per_node import PerNodeFilter, PerNodeScore
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import SUCCESS, Code, IntArray, Status, Verdict
from batchsched.framework.traits import PlacementEffect, traits_of
from tests.plugins.cluster import class_of, node, pod, table

NO_DISK, OLD = "node has no disk", "node is old"


class PerNode(PerNodeFilter, PerNodeScore):
    name: ClassVar[str] = "PerNode"

    @override
    def filter_node(self, pod: Pod, node: Node) -> Status:
        reasons = tuple(
            reason for label, reason in (("nodisk", NO_DISK), ("old", OLD)) if label in node.labels
        )
        if not reasons:
            return SUCCESS
        return Status(Code.UNRESOLVABLE if OLD in reasons else Code.UNSCHEDULABLE, reasons)

    @override
    def score_node(self, pod: Pod, node: Node) -> int:
        return int(node.labels.get("score", "0"))


class InArrays:
    name: ClassVar[str] = "InArrays"

    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        marks = np.array([[key in one.labels for one in nodes.node_objects] for key in ("nodisk", "old")])
        return Verdict((NO_DISK, OLD), marks.reshape(2, len(nodes)), marks.reshape(2, len(nodes))[1])

    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        return np.array([int(one.labels.get("score", "0")) for one in nodes.node_objects], np.int64)


LABELS = st.fixed_dictionaries(
    {"score": st.integers(0, 100).map(str)}, optional={"nodisk": st.just(""), "old": st.just("")}
)


@given(labels=st.lists(LABELS, max_size=6))
def test_per_node_answers_equal_those_in_arrays(labels):
    made = table([node(f"n{at}", labels=one) for at, one in enumerate(labels)])
    pod_class = class_of(made, pod())
    one, other = (
        Pipeline([plugin]).find_nodes_that_pass_filters(pod_class, made) for plugin in (PerNode(), InArrays())
    )
    assert one.fits.tolist() == other.fits.tolist()
    assert one.reason_counts() == other.reason_counts()
    assert [one.code_at(at) for at in range(len(labels))] == [other.code_at(at) for at in range(len(labels))]
    some = np.flatnonzero(one.fits).astype(np.int32)
    scores = [
        Pipeline([plugin]).score(pod_class, some, made, CycleState()).tolist()
        for plugin in (PerNode(), InArrays())
    ]
    assert scores[0] == scores[1]


def test_the_adapters_implement_filter_and_score_and_depend_on_placed_pods():
    assert isinstance(PerNode(), FilterPlugin)
    assert isinstance(PerNode(), ScorePlugin)
    assert traits_of(PerNode()).placement_effect is PlacementEffect.ANY


def test_refusal_without_a_reason_is_an_error_that_names_the_node():
    class Silent(PerNodeFilter):
        name: ClassVar[str] = "Silent"

        @override
        def filter_node(self, pod: Pod, node: Node) -> Status:
            return Status(Code.UNSCHEDULABLE)

    made = table([node("n0")])
    with pytest.raises(PluginError, match="plugin Silent failed in Filter: refused node n0 without a reason"):
        Pipeline([Silent()]).find_nodes_that_pass_filters(class_of(made, pod()), made)

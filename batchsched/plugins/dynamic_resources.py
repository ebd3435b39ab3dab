"""DynamicResources for pods without ResourceClaims: returns what kube-scheduler returns for them."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.api.crd.base import StrictModel
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.events import ClusterEventWithHint
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.interface import (
    EnqueueExtensionsPlugin,
    PostFilterHandle,
    PostFilterPlugin,
    PreFilterPlugin,
    ScorePlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import SKIP_FILTER, Code, IntArray, PostFilterAnswer, PreFilterAnswer, Status
from batchsched.framework.traits import PluginTraits, ResultScope

NOTHING_TO_DEALLOCATE: Final = "no new claims to deallocate"
NOT_FOUND: Final = "not found"
"""Error of kube-scheduler's cycle state for a key without a value."""

ASKED: Final = StateKey[bool]("DynamicResources/asked")


class DynamicResourcesArgs(StrictModel):
    """Arguments of DynamicResources, as in kube-scheduler."""

    filter_timeout: str = Field(
        default="10s",
        description="Time limit of the Filter for one node. It has no effect as long as the plugin ignores claims.",
    )


class DynamicResources(
    SignaturePlugin, PreFilterPlugin, PostFilterPlugin, ScorePlugin, EnqueueExtensionsPlugin
):
    """Answers for pods without ResourceClaims; claims are not allocated.

    Sessions refuse pods with claims before any plugin (`api.unsupported_fields`).

    Source: kube-scheduler's plugins/dynamicresources for a pod without claims. PreFilter skips its Filter, every
    node scores 0, and PostFilter finds no claim to release. If an earlier PreFilter refused the pod, PostFilter
    returns an error, because kube-scheduler's PostFilter then lacks its state.
    """

    name: ClassVar[str] = "DynamicResources"
    traits: ClassVar[PluginTraits] = PluginTraits(
        result_scope=ResultScope.NODE_OBJECT, reads_priority=False, postfilter_nominates=False
    )
    Args: ClassVar[type[DynamicResourcesArgs]] = DynamicResourcesArgs

    def __init__(self, args: DynamicResourcesArgs | None = None) -> None:
        self.args = args or DynamicResourcesArgs()

    @override
    def signature(self, pod: Pod) -> Hashable:
        return ()

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        state.write(ASKED, True)
        return SKIP_FILTER

    @override
    def postfilter(self, pod: PodClass, scan: FilterResult, handle: PostFilterHandle) -> PostFilterAnswer:
        if not scan.state.has(ASKED):
            return PostFilterAnswer(Status(Code.ERROR, (NOT_FOUND,)))
        reasons = (NOTHING_TO_DEALLOCATE,) if handle.table.release.reports_no_claims else ()
        return PostFilterAnswer(Status(Code.UNSCHEDULABLE, reasons))

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        return np.zeros(len(nodes), np.int64)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return ()  # it refuses no pod, because claims are not implemented

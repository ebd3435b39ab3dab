"""The plugin DynamicResources with its extension points."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.devices.requests import AllocationError, NodeRefused
from batchsched.errors import PluginError
from batchsched.framework.constrain import CandidateSet, ConstraintRow
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.events import ClusterEventWithHint
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.interface import (
    BindingHandle,
    BulkFilterPlugin,
    ConstrainPlugin,
    EnqueueExtensionsPlugin,
    FilterPlugin,
    NominatedPodPlugin,
    NormalizeScorePlugin,
    PostFilterHandle,
    PostFilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ReversiblePreBindPlugin,
    ScorePlugin,
    SelectiveReservePlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.scores import default_normalize
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    ASK_FILTER,
    LASTING_SKIP,
    LASTING_SKIP_FILTER,
    SKIP,
    SKIP_FILTER,
    SUCCESS,
    BoolArray,
    Code,
    IndexArray,
    IntArray,
    PostFilterAnswer,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits
from batchsched.plugins.dynamic_resources.arguments import DynamicResourcesArgs
from batchsched.plugins.dynamic_resources.claim_writes import (
    claims_with_binding_conditions,
    release_claims_of_unbound_pod,
    write_claim_reservations,
)
from batchsched.plugins.dynamic_resources.claims import (
    PodClassClaims,
    UnusableResourceClaim,
)
from batchsched.plugins.dynamic_resources.events import helpful_events
from batchsched.plugins.dynamic_resources.node_search import (
    DeviceSearchResults,
    device_search_of_claim_specs,
    search_devices_for_pod_class,
)
from batchsched.plugins.dynamic_resources.reservation import (
    NOT_AVAILABLE,
    NOT_OFFERED,
    claims_of_pod_class,
    find_devices_to_reserve,
    may_use_devices,
    nodes_reaching_allocated_devices,
    nodes_surely_have_devices,
    nodes_without_resources,
    preference_score,
)
from batchsched.plugins.dynamic_resources.rows import device_constraint_rows

NAME: Final = "DynamicResources"
NOTHING_TO_DEALLOCATE: Final = "no new claims to deallocate"
NOTHING_DEALLOCATED: Final = "still not schedulable"
DEALLOCATED: Final = "deallocation of ResourceClaim completed"
NO_RESERVATION: Final = "the devices of the pod are no longer reserved; the next session decides again"
NOT_FOUND: Final = "not found"
"""Error of kube-scheduler's cycle state for a key without a value."""


CLAIMS: Final = StateKey[PodClassClaims]("DynamicResources/claims")


class DynamicResources(
    SignaturePlugin,
    PreFilterPlugin,
    FilterPlugin,
    BulkFilterPlugin,
    PostFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    ReservePlugin,
    SelectiveReservePlugin,
    NominatedPodPlugin,
    ReversiblePreBindPlugin,
    ConstrainPlugin,
    EnqueueExtensionsPlugin,
):
    """Finds devices for a pod's ResourceClaims.

    Allocated claims must be usable from the node; for all other claims the node must reach free devices. Reserve stores
    the chosen devices in the device ledger until Unreserve. Pods of one session share the allocation of a claim that
    several of them use. PreBind writes the allocations, and reserves the claims for the pod. If the pod is not bound,
    the claims are released.

    Source: kube-scheduler's plugins/dynamicresources with its default feature gates.
    """

    name: ClassVar[str] = NAME
    traits: ClassVar[PluginTraits] = PluginTraits(
        placement_effect=PlacementEffect.TIGHTENS, reads_priority=False, postfilter_nominates=False
    )
    Args: ClassVar[type[DynamicResourcesArgs]] = DynamicResourcesArgs

    def __init__(self, args: DynamicResourcesArgs | None = None) -> None:
        self.args = args or DynamicResourcesArgs()
        self._binding_timeout_seconds = self.args.binding_timeout_seconds

    @override
    def signature(self, pod: Pod) -> Hashable:
        return pod.spec.resource_claims  # the requests determine the claim for extended resources

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        if not may_use_devices(pod.pod):
            return LASTING_SKIP_FILTER
        state.write(CLAIMS, PodClassClaims())
        try:
            class_claims = claims_of_pod_class(pod.pod, nodes.table)
        except UnusableResourceClaim as refused:
            return PreFilterAnswer(Status(Code.UNRESOLVABLE, (str(refused),)))
        if class_claims.is_empty:
            return SKIP_FILTER
        state.write(CLAIMS, class_claims)
        return ASK_FILTER

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        class_claims = state.read(CLAIMS)
        if len(nodes) == 1 and class_claims.has_only_unallocated_claims:
            return _verdict_about_node(class_claims, nodes)
        reasons: list[str] = []
        refused: list[BoolArray] = []
        lacking = nodes_without_resources(class_claims.other_resources, nodes)
        if lacking.any():
            reasons.append(NOT_OFFERED)
            refused.append(lacking)
        for searched, where in _search(pod.pod, class_claims, nodes):
            places = np.flatnonzero(where)
            for number, reason in enumerate(searched.reasons):
                mask = np.zeros(len(nodes), np.bool_)
                mask[places[searched.refused == number]] = True
                mask &= ~lacking
                if mask.any():
                    reasons.append(reason)
                    refused.append(mask)
        unavailable = ~nodes_reaching_allocated_devices(
            class_claims.claims, nodes, self._binding_timeout_seconds
        )
        for mask in refused:
            unavailable &= ~mask
        if unavailable.any():
            reasons.append(NOT_AVAILABLE)
            refused.append(unavailable)
        if not reasons:
            return Verdict.accept(len(nodes))
        return Verdict(tuple(reasons), np.stack(refused), np.logical_or.reduce(refused))

    @override
    def allows_bulk_placement(
        self, pod: PodClass, table: NodeTable, nodes: IndexArray, counts: IndexArray
    ) -> bool:
        """Return True only if each node certainly has free devices for all pods that it would get."""
        try:
            return nodes_surely_have_devices(pod.pod, table, nodes, counts)
        except (UnusableResourceClaim, NodeRefused, AllocationError):
            return False  # the Filter states the reason, or the failure

    @override
    def postfilter(self, pod: PodClass, scan: FilterResult, handle: PostFilterHandle) -> PostFilterAnswer:
        if not scan.state.has(CLAIMS) and NAME not in scan.state.skip_filter:
            return PostFilterAnswer(Status(Code.ERROR, (NOT_FOUND,)))
        class_claims = scan.state.read(CLAIMS) if scan.state.has(CLAIMS) else PodClassClaims()
        if class_claims.is_empty:
            reasons = (NOTHING_TO_DEALLOCATE,) if handle.node_table.release.reports_no_claims else ()
            return PostFilterAnswer(Status(Code.UNSCHEDULABLE, reasons))
        nodes = handle.node_table.selected_nodes_view(_nodes_without_claims(scan))
        for pod_claim in class_claims.claims:
            reserved = pod_claim.claim.status.reserved_for or ()
            if (
                not nodes_reaching_allocated_devices((pod_claim,), nodes, self._binding_timeout_seconds).all()
                and pod_claim.claim.status.allocation is not None
                and all(consumer.uid == pod.pod.metadata.uid for consumer in reserved)
                and not handle.node_table.device_ledger.count_pods_with_reserved_claim(pod_claim.key)
            ):
                return PostFilterAnswer(Status(Code.UNSCHEDULABLE, (DEALLOCATED,)))
        reasons = (NOTHING_DEALLOCATED,) if handle.node_table.release.reports_no_claims else ()
        return PostFilterAnswer(Status(Code.UNSCHEDULABLE, reasons))

    @override
    def constrain(self, batch: CandidateSet, nodes: Nodes) -> Sequence[ConstraintRow]:
        """Return linear constraints: the pods on a node request at most as many devices as are free there."""
        return device_constraint_rows(self.name, batch, nodes)

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        # Without claims all nodes score 0, and the sum needs no zeros.
        if not may_use_devices(pod.pod):
            return LASTING_SKIP
        return SUCCESS if state.has(CLAIMS) and not state.read(CLAIMS).is_empty else SKIP

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        scores = np.zeros(len(nodes), np.int64)
        class_claims = state.read(CLAIMS)
        allocated = sum(
            preference_score(pod_claim.claim, pod_claim.allocation)
            for pod_claim in class_claims.claims
            if pod_claim.allocation is not None
        )
        for searched, where in _search(pod.pod, class_claims, nodes):
            scores[where] = searched.scores + allocated
        return scores

    @override
    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        return default_normalize(scores, reverse=False)

    @override
    def reserves_nothing(self, pod: PodClass, nodes: NodeTable) -> bool:
        if nodes.cluster_objects.device_classes:
            return not may_use_devices(pod.pod)
        # Without DeviceClasses, extended resources are those of device plugins, and nothing is reserved.
        return not pod.pod.spec.resource_claims

    @override
    def reserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> Status:
        try:
            devices = find_devices_to_reserve(pod, node, nodes, self._binding_timeout_seconds)
        except (UnusableResourceClaim, NodeRefused) as refused:
            return Status(Code.UNRESOLVABLE, (str(refused),))
        except AllocationError as error:
            raise PluginError(NAME, "Reserve", str(error)) from error
        if devices is not None:
            nodes.device_ledger.reserve_devices(pod.key, devices)
        return SUCCESS

    @override
    def unreserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        nodes.device_ledger.release_reserved_devices(pod.key, pod.metadata.uid)

    @override
    def hold_for_nominated_pod(self, pod: Pod, node: int, nodes: NodeTable) -> None:
        try:
            devices = find_devices_to_reserve(pod, node, nodes, self._binding_timeout_seconds)
        except (UnusableResourceClaim, NodeRefused, AllocationError):
            return  # its devices are in use, or the Filter refuses the pod
        if devices is not None:
            nodes.device_ledger.hold_for_nominated_pod(pod.key, devices.allocations)

    @override
    def stop_holding_for_nominated_pod(self, pod: Pod, nodes: NodeTable) -> None:
        nodes.device_ledger.stop_holding_for_nominated_pod(pod.key)

    @override
    def writes_in_prebind(self, pod: Pod, table: NodeTable) -> bool:
        return table.device_ledger.devices_reserved_for_pod(pod.key, pod.metadata.uid) is not None

    @override
    async def prebind(self, pod: Pod, node: str, cycle: BindingHandle) -> Status:
        ledger = cycle.reserved_volumes_and_devices.devices
        if not await write_claim_reservations(pod, ledger, cycle.binder.resource_claim_binder):
            return Status(Code.UNSCHEDULABLE, (NO_RESERVATION,)) if pod.resource_claim_keys else SKIP
        claims = claims_with_binding_conditions(pod, ledger)
        if claims and not await cycle.binder.resource_claim_binder.wait_for_prepared_devices(
            claims, self._binding_timeout_seconds
        ):
            return Status(
                Code.UNSCHEDULABLE, (f"the devices of {', '.join(claims)} are not prepared for binding",)
            )
        return SUCCESS

    @override
    async def undo_prebind(self, pod: Pod, node: str, cycle: BindingHandle) -> None:
        await release_claims_of_unbound_pod(
            pod, cycle.reserved_volumes_and_devices.devices, cycle.binder.resource_claim_binder
        )

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return helpful_events()


def _verdict_about_node(class_claims: PodClassClaims, node: Nodes) -> Verdict:
    """Return the answer of Filter about one node, for claims that are all without allocation."""
    try:
        search = device_search_of_claim_specs(node.table, class_claims.unallocated_claims)
        reason = search.search_node(node.first_node_index, node.table).reason
    except AllocationError as error:
        raise PluginError(NAME, "Filter", str(error)) from error
    if not reason:
        return Verdict.accept(1)
    refused = np.ones(1, np.bool_)
    return Verdict((reason,), refused[np.newaxis], refused)


def _nodes_without_claims(scan: FilterResult) -> IndexArray:
    """Return the indexes of the nodes from which only an allocated ResourceClaim of the pod cannot be used."""
    unavailable = np.zeros(len(scan.fits), np.bool_)
    for number, (plugin, verdict) in enumerate(zip(scan.plugins, scan.verdicts, strict=True)):
        if plugin == NAME and NOT_AVAILABLE in verdict.reasons:
            unavailable |= (scan.refused_by == number) & verdict.refused[verdict.reasons.index(NOT_AVAILABLE)]
    return np.flatnonzero(unavailable).astype(np.int32)


def _search(
    pod: Pod, class_claims: PodClassClaims, nodes: Nodes
) -> list[tuple[DeviceSearchResults, BoolArray]]:
    try:
        return search_devices_for_pod_class(pod, class_claims, nodes)
    except AllocationError as error:
        raise PluginError(NAME, "Filter", str(error)) from error

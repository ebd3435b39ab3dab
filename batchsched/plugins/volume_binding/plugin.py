"""The plugin VolumeBinding: its extension points, and the events that may help a pod that it refused."""

from collections.abc import Hashable, Sequence
from functools import cache
from typing import ClassVar, Final, Self

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from batchsched.api.crd.base import StrictModel
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint, queue_if_changed
from batchsched.framework.interface import (
    BindingHandle,
    BulkFilterPlugin,
    EnqueueExtensionsPlugin,
    FilterPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
    SelectiveReservePlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.nodes.reserved_volumes import ReservedPodVolumes
from batchsched.framework.plugin_support.csi_migration import migrated_plugins
from batchsched.framework.plugin_support.scores import (
    UtilizationShapePoint,
    check_increasing_utilization,
    utilization_score_table,
)
from batchsched.framework.plugin_support.volume_listers import (
    claim_ref_allows_pod,
    signature_of_pod_volume_claims,
    storage_objects,
    uses_volume_claim,
)
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    ASK_FILTER,
    LASTING_SKIP_FILTER,
    SKIP,
    SUCCESS,
    Code,
    IndexArray,
    IntArray,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits
from batchsched.plugins.volume_binding.claims import (
    NAME,
    PodVolumeClaims,
    VolumeClaimRefused,
    bound_and_delayed_volume_claims,
)
from batchsched.plugins.volume_binding.search import VolumeSearchResult, capacity_scores, find_pod_volumes
from batchsched.ports.cluster import VolumeClaimSelectedNode, persistent_volume_binding_of

CLAIMS: Final = StateKey[PodVolumeClaims]("VolumeBinding/claims")


class VolumeBindingArgs(StrictModel):
    """Arguments of VolumeBinding, as in kube-scheduler."""

    bind_timeout_seconds: int = Field(
        default=600, ge=0, description="Seconds that PreBind waits until the pod's claims are bound."
    )
    shape: tuple[UtilizationShapePoint, ...] | None = Field(
        default=None,
        min_length=1,
        description="Points of a broken line from the use of storage, in percent, to the score of a node. Without it, "
        "every node scores 0 if the profile follows 1.36, as in kube-scheduler without the feature gate "
        "StorageCapacityScoring; if it follows 1.37, nodes with more free capacity score higher.",
    )

    @model_validator(mode="after")
    def _rises(self) -> Self:
        check_increasing_utilization(self.shape or ())
        return self


class VolumeBinding(
    SignaturePlugin,
    PreFilterPlugin,
    FilterPlugin,
    BulkFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    ReservePlugin,
    SelectiveReservePlugin,
    PreBindPlugin,
    EnqueueExtensionsPlugin,
):
    """Finds volumes for a pod's claims.

    Bound volumes must be accessible from the node; for other claims, volumes must exist or be provisioned.

    Claims of classes with immediate binding must be bound already. Reserve stores reserved volumes in the node table
    until Unreserve: other pods see that the volume is used, and that the claim has a node. PreBind writes the
    claims and waits until they are bound.

    Source: kube-scheduler's plugins/volumebinding.
    """

    name: ClassVar[str] = NAME
    traits: ClassVar[PluginTraits] = PluginTraits(
        placement_effect=PlacementEffect.TIGHTENS, reads_priority=False
    )
    Args = VolumeBindingArgs

    def __init__(self, args: VolumeBindingArgs | None = None) -> None:
        self.args = args or VolumeBindingArgs()
        self._configured_line = utilization_score_table(self.args.shape) if self.args.shape else None

    @override
    def signature(self, pod: Pod) -> Hashable:
        return signature_of_pod_volume_claims(pod)

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        try:
            claims = bound_and_delayed_volume_claims(pod.pod, storage_objects(nodes.table))
        except VolumeClaimRefused as refused:
            return PreFilterAnswer(Status(Code.UNRESOLVABLE, (str(refused),)))
        if claims is None:
            return LASTING_SKIP_FILTER
        state.write(CLAIMS, claims)
        return ASK_FILTER

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        return find_pod_volumes(state.read(CLAIMS), nodes).verdict()

    @override
    def allows_bulk_placement(
        self, pod: PodClass, table: NodeTable, nodes: IndexArray, counts: IndexArray
    ) -> bool:
        try:
            claims = bound_and_delayed_volume_claims(pod.pod, storage_objects(table))
        except VolumeClaimRefused:
            return not counts.any()
        if claims is None:
            return True
        if claims.delayed and counts.sum() > 1:
            return False  # the first of them decides for the others: they are asked one by one
        return bool(
            find_pod_volumes(claims, table.selected_nodes_view(nodes[counts > 0]))
            .verdict()
            .feasible_mask.all()
        )

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        if nodes.table.release.storage_scores:
            if not state.has(CLAIMS):
                state.skip_score.add(NAME)  # every node would score 0
            return SUCCESS  # as recorded of 1.37: for pods without claims, too
        return SKIP if self._configured_line is None or not state.has(CLAIMS) else SUCCESS

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        line = self._configured_line
        if line is None and nodes.table.release.storage_scores:
            line = _line_through(nodes.table.release.storage_scores)
        if line is None or not state.has(CLAIMS):
            return np.zeros(len(nodes), np.int64)
        return capacity_scores(find_pod_volumes(state.read(CLAIMS), nodes), nodes, line)

    @override
    async def prebind(self, pod: Pod, node: str, cycle: BindingHandle) -> Status:
        storage = storage_objects(cycle.node_table)
        try:
            claims = bound_and_delayed_volume_claims(pod, storage)
        except VolumeClaimRefused as refused:
            return Status(Code.UNRESOLVABLE, (str(refused),))
        if claims is None or not claims.delayed:
            return SKIP
        reservation = cycle.reserved_volumes_and_devices.volumes.reserved_volumes_of_pod(pod)
        for volume, claim in reservation.volumes:
            await cycle.binder.bind_volume(
                persistent_volume_binding_of(volume, storage.claims[claim].metadata)
            )
        selections = []
        for claim, where in reservation.claims:
            namespace, _, name = claim.partition("/")
            selections.append(VolumeClaimSelectedNode(namespace, name, where))
            await cycle.binder.write_selected_node(selections[-1])
        claim_keys = [claim.key for claim in claims.delayed]
        seconds = float(self.args.bind_timeout_seconds)
        if await cycle.binder.wait_for_bound_volume_claims(claim_keys, seconds, selections):
            return SUCCESS
        raise PluginError(
            self.name, "PreBind", f"binding volumes: {', '.join(claim_keys)} not bound within {seconds:g} s"
        )

    @override
    def reserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> Status:
        try:
            claims = bound_and_delayed_volume_claims(pod, storage_objects(nodes))
        except VolumeClaimRefused as refused:
            return Status(Code.UNRESOLVABLE, (str(refused),))
        if claims is None or not claims.delayed:
            return SUCCESS
        result = find_pod_volumes(claims, nodes.node_view(node))
        verdict = result.verdict()
        if not verdict.feasible_mask[0]:
            return Status(Code.UNRESOLVABLE, verdict.reasons_at(0))
        nodes.reserved_volumes.reserve(pod, _reservation_of(result, nodes, node))
        return SUCCESS

    @override
    def reserves_nothing(self, pod: PodClass, nodes: NodeTable) -> bool:
        return not pod.pod.spec.volumes

    @override
    def unreserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        nodes.reserved_volumes.release(pod)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return helpful_events()


@cache
def _line_through(points: tuple[tuple[int, int], ...]) -> IntArray:
    """Return a table [101] with the score for each percentage of capacity in use."""
    return utilization_score_table(
        [UtilizationShapePoint(utilization=percent, score=score) for percent, score in points]
    )


def _reservation_of(result: VolumeSearchResult, table: NodeTable, node: int) -> ReservedPodVolumes:
    """Return the volumes and claims to reserve for a pod on its node.

    They include those that other pods have reserved for the same claims: the binding of these pods may fail.
    """
    volumes = tuple(
        (result.volumes[int(choice[0])].metadata.name, claim.key)
        for claim, choice in result.matches
        if choice[0] >= 0
    )
    claims = tuple((claim.key, table.names[node]) for claim, where in result.provisioned if where[0])
    return ReservedPodVolumes(volumes, claims)


def helpful_events() -> Sequence[ClusterEventWithHint]:
    """Return the cluster events, with queueing hints, after which a pod refused by VolumeBinding may fit."""
    come_or_change = Action.ADD | Action.UPDATE
    return (
        ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        ClusterEventWithHint.for_events(EventResource.CLAIM, come_or_change, _claim_changed),
        ClusterEventWithHint.for_events(EventResource.VOLUME, come_or_change, queue_if_changed(_offered)),
        ClusterEventWithHint.for_events(EventResource.VOLUME, Action.DELETE, _volume_gone),
        ClusterEventWithHint.for_events(EventResource.STORAGE_CLASS, come_or_change, queue_if_changed(_made)),
        ClusterEventWithHint.for_events(
            EventResource.CSI_NODE, come_or_change | Action.DELETE, _migration_changed
        ),
        ClusterEventWithHint.for_events(
            EventResource.CSI_DRIVER, Action.DELETE | Action.UPDATE, _driver_changed
        ),
        ClusterEventWithHint.for_events(
            EventResource.CSI_STORAGE_CAPACITY, come_or_change, queue_if_changed(_room)
        ),
    )


def _claim_changed(pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> Hint:
    """Return QUEUE if a claim of the pod was created or changed in a field other than its metadata for users."""
    if old is not None and _claim_fields(old) == _claim_fields(new):
        return Hint.SKIP
    return Hint.queue_if(uses_volume_claim(pod, new))


def _claim_fields(claim: PersistentVolumeClaim) -> tuple[object, ...]:
    metadata = claim.metadata
    return (
        claim.spec,
        claim.status,
        metadata.uid,
        metadata.annotations,
        metadata.owner_references,
        metadata.deletion_timestamp is None,
    )


def _offered(volume: PersistentVolume) -> tuple[object, ...]:
    metadata = volume.metadata
    return (
        volume.spec,
        volume.status,
        metadata.labels,
        metadata.annotations,
        metadata.deletion_timestamp is None,
    )


def _volume_gone(pod: Pod, old: PersistentVolume, _new: None) -> Hint:
    """Return QUEUE if a volume was deleted that was assumed for a claim of the pod, so that it can use another."""
    return Hint.queue_if(old.spec.claim_ref is not None and claim_ref_allows_pod(old, pod))


def _made(storage_class: StorageClass) -> tuple[object, ...]:
    return (storage_class.provisioner, storage_class.volume_binding_mode, storage_class.allowed_topologies)


def _migration_changed(_pod: Pod, old: CSINode | None, new: CSINode | None) -> Hint:
    """Return QUEUE if the set of migrated in-tree plugins changed, because their volumes use other node labels."""
    return Hint.queue_if(migrated_plugins(old) != migrated_plugins(new))


def _driver_changed(_pod: Pod, old: CSIDriver, new: CSIDriver | None) -> Hint:
    """Return QUEUE if the driver no longer requires storage capacity."""
    return Hint.queue_if(
        bool(old.spec.storage_capacity) and not (new is not None and new.spec.storage_capacity)
    )


def _room(capacity: CSIStorageCapacity) -> tuple[object, ...]:
    return (
        capacity.node_topology,
        capacity.storage_class_name,
        capacity.capacity,
        capacity.maximum_volume_size,
    )

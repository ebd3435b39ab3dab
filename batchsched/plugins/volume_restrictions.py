"""VolumeRestrictions: disks that pods on one node cannot share, and claims that only one pod may use."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import PersistentVolumeClaim
from batchsched.framework.constrain import ALL_NODES, EVERY_NODE, CandidateSet, ConstraintRow, pod_limit_row
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint
from batchsched.framework.interface import (
    BulkFilterPlugin,
    ConstrainPlugin,
    EnqueueExtensionsPlugin,
    FilterPlugin,
    PreFilterExtensionsPlugin,
    PreFilterPlugin,
    ReservePlugin,
    SelectiveReservePlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.volume_listers import (
    nonephemeral_volume_claim_names,
    storage_objects,
)
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    ASK_FILTER,
    LASTING_SKIP_FILTER,
    SKIP_FILTER,
    SUCCESS,
    BoolArray,
    Code,
    IndexArray,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits

DISK_IN_USE: Final = "node(s) had no available disk"
CLAIM_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
    "another pod"
)
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that the spec of a pod mounts directly, without a PersistentVolumeClaim.

    Args:
      identity: kind and name. If two pods mount the same disk, the identities are equal.
      shared: pods on one node may mount it together if all mounts are read-only.
    """

    identity: tuple[str, ...]
    shared: bool


@dataclass(slots=True)
class VolumeRestrictionState:
    """The disks of a pod class, and the number of uses of its ReadWriteOncePod claims by other pods.

    Args:
      disks: the disks that are mounted directly.
      claims: names of the ReadWriteOncePod claims. As in kube-scheduler, AddPod and RemovePod compare the bare
        name, so that in a dry run a claim with this name in another namespace counts, too.
      uses: number of uses by other pods; negative if more were removed than counted.
    """

    disks: tuple[Disk, ...]
    claims: frozenset[str]
    uses: int

    def clone(self) -> "VolumeRestrictionState":
        """Return an independent copy of the disks and claim uses of a pod class."""
        return replace(self)


CONFLICTS: Final = StateKey[VolumeRestrictionState]("VolumeRestrictions/conflicts")


class VolumeRestrictions(
    SignaturePlugin,
    PreFilterPlugin,
    PreFilterExtensionsPlugin,
    FilterPlugin,
    BulkFilterPlugin,
    ConstrainPlugin,
    ReservePlugin,
    SelectiveReservePlugin,
    EnqueueExtensionsPlugin,
):
    """Refuses nodes where another pod mounts the pod's disk, and pods with ReadWriteOncePod claims that are in use.

    A disk may be shared if all its mounts are read-only.

    Reserve checks the claims again. If no pod used them, PreFilter returned Skip; in kube-scheduler for each pod,
    here once for a class, and an equal pod may have been placed since.

    Source: kube-scheduler's plugins/volumerestrictions.
    """

    name: ClassVar[str] = "VolumeRestrictions"
    traits: ClassVar[PluginTraits] = PluginTraits(
        placement_effect=PlacementEffect.TIGHTENS, reads_priority=False
    )

    @override
    def signature(self, pod: Pod) -> Hashable:
        volumes = pod.spec.volumes
        return (disks_of_pod(pod), nonephemeral_volume_claim_names(pod)) if volumes else ()

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        if not pod.pod.spec.volumes:
            return LASTING_SKIP_FILTER
        existing = storage_objects(nodes.table).claims
        for name in nonephemeral_volume_claim_names(pod.pod):
            if f"{pod.pod.namespace}/{name}" not in existing:
                reason = f'persistentvolumeclaim "{name}" not found'
                return PreFilterAnswer(Status(Code.UNRESOLVABLE, (reason,)))
        claims = _once_pod(pod.pod, nodes.table)
        uses = sum(bool(nodes.pod_table.claim_users.get(claim)) for claim in claims)
        conflicts = VolumeRestrictionState(
            disks_of_pod(pod.pod), frozenset(claim.partition("/")[2] for claim in claims), uses
        )
        state.write(CONFLICTS, conflicts)
        return ASK_FILTER if conflicts.disks or conflicts.uses else SKIP_FILTER

    @override
    def add_pod(self, pod: PodClass, added: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        conflicts = state.read(CONFLICTS)
        conflicts.uses += sum(name in conflicts.claims for name in nonephemeral_volume_claim_names(added))

    @override
    def remove_pod(self, pod: PodClass, removed: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        conflicts = state.read(CONFLICTS)
        conflicts.uses -= sum(name in conflicts.claims for name in nonephemeral_volume_claim_names(removed))

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        conflicts = state.read(CONFLICTS)
        disks = _disks_in_use(nodes, conflicts.disks)
        if conflicts.uses <= 0:
            return Verdict.refuse(disks, DISK_IN_USE, unresolvable=False)
        return Verdict((DISK_IN_USE, CLAIM_IN_USE), np.stack((disks, ~disks)), np.zeros(len(nodes), np.bool_))

    @override
    def allows_bulk_placement(
        self, pod: PodClass, table: NodeTable, nodes: IndexArray, counts: IndexArray
    ) -> bool:
        disks = disks_of_pod(pod.pod)
        claims = _once_pod(pod.pod, table)
        if not counts.any() or not (disks or claims):
            return True
        if claims and (counts.sum() > 1 or any(table.pod_table.claim_users.get(claim) for claim in claims)):
            return False
        if counts.max(initial=0) > 1 and any(not disk.shared for disk in disks):
            return False
        return not _disks_in_use(table.selected_nodes_view(nodes[counts > 0]), disks).any()

    @override
    def reserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> Status:
        """Check again that no other pod uses a ReadWriteOncePod claim of the pod; record nothing."""
        for claim in _once_pod(pod, nodes):
            if any(user != pod.key for user in nodes.pod_table.claim_users.get(claim, ())):
                return Status(Code.UNSCHEDULABLE, (CLAIM_IN_USE,))
        return SUCCESS

    @override
    def reserves_nothing(self, pod: PodClass, nodes: NodeTable) -> bool:
        return not pod.pod.spec.volumes

    @override
    def unreserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Do nothing, because Reserve keeps no state."""

    @override
    def constrain(self, batch: CandidateSet, nodes: Nodes) -> Sequence[ConstraintRow]:
        """Return the linear constraints for the ReadWriteOncePod claims and writable disks of pending pods.

        At most one pod uses a ReadWriteOncePod claim. On each node, at most one pod mounts a writable disk.
        """
        by_claim: dict[str, list[int]] = {}
        by_disk: dict[tuple[str, ...], list[int]] = {}
        count = {candidate.index: candidate.count for candidate in batch.candidates}
        for candidate in batch.candidates:
            for claim in _once_pod(candidate.pod_class.pod, nodes.table):
                by_claim.setdefault(claim, []).append(candidate.index)
            for disk in dict.fromkeys(disks_of_pod(candidate.pod_class.pod)):
                if not disk.shared:
                    by_disk.setdefault(disk.identity, []).append(candidate.index)
        rows = []
        for claim, classes in by_claim.items():
            if sum(count[index] for index in classes) > 1:
                free = 0 if nodes.pod_table.claim_users.get(claim) else 1
                limit = np.asarray([free], np.int64)
                once = dict.fromkeys(classes, 1)
                rows.append(pod_limit_row(self.name, CLAIM_IN_USE, ALL_NODES, once, limit))
        for identity, classes in by_disk.items():
            if sum(count[index] for index in classes) > 1:
                used = _disks_in_use(nodes, (Disk(identity, shared=False),))
                once = dict.fromkeys(classes, 1)
                limit = (~used).astype(np.int64)
                rows.append(pod_limit_row(self.name, DISK_IN_USE, EVERY_NODE, once, limit))
        return rows

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.DELETE, _let_go),
            ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD, _mounts_disks),
            ClusterEventWithHint.for_events(EventResource.CLAIM, Action.ADD | Action.UPDATE, _claim_changed),
        )


def _let_go(pod: Pod, old: Pod, _new: None) -> Hint:
    shared = pod.namespace == old.namespace and not set(nonephemeral_volume_claim_names(pod)).isdisjoint(
        nonephemeral_volume_claim_names(old)
    )
    return Hint.queue_if(shared or _in_use(disks_of_pod(pod), (old,)))


def _mounts_disks(pod: Pod, _old: None, _new: object) -> Hint:
    return Hint.queue_if(bool(disks_of_pod(pod)))


def _claim_changed(pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> Hint:
    if old is not None and old.spec.access_modes == new.spec.access_modes:
        return Hint.SKIP
    return Hint.queue_if(new.key in _claim_keys(pod))


def disks_of_pod(pod: Pod) -> tuple[Disk, ...]:
    """Return the disks that a pod mounts directly instead of through PersistentVolumeClaims.

    An RBD image has one entry for each monitor.
    """
    disks: list[Disk] = []
    for volume in pod.spec.volumes or ():
        if volume.gce_persistent_disk:
            gce = volume.gce_persistent_disk
            disks.append(Disk(("gce", gce.pd_name), gce.read_only))
        if volume.aws_elastic_block_store:
            disks.append(Disk(("ebs", volume.aws_elastic_block_store.volume_id), shared=False))
        if volume.iscsi:
            disks.append(Disk(("iscsi", volume.iscsi.iqn), volume.iscsi.read_only))
        if volume.rbd:
            rbd = volume.rbd
            disks += [Disk(("rbd", monitor, rbd.pool, rbd.image), rbd.read_only) for monitor in rbd.monitors]
    return tuple(disks)


def _disks_in_use(nodes: Nodes, disks: Sequence[Disk]) -> BoolArray:
    """Return a mask [n] of the nodes where a disk of the pod is mounted, unless both mounts are read-only."""
    disks_on = nodes.pod_table.disks_on
    if not disks or not disks_on:
        return np.zeros(len(nodes), np.bool_)
    if len(nodes) == 1:
        return np.asarray([_in_use(disks, disks_on.get(nodes.first_node_index, {}).values())])
    refused = np.zeros(len(nodes.table.nodes), np.bool_)
    for node, pods in disks_on.items():
        refused[node] = _in_use(disks, pods.values())
    return refused[nodes.where]


def _in_use(disks: Sequence[Disk], pods: Iterable[Pod]) -> bool:
    return any(
        disk.identity == mounted.identity and not (disk.shared and mounted.shared)
        for pod in pods
        for mounted in disks_of_pod(pod)
        for disk in disks
    )


def _claim_keys(pod: Pod) -> tuple[str, ...]:
    return tuple(f"{pod.namespace}/{name}" for name in nonephemeral_volume_claim_names(pod))


def _once_pod(pod: Pod, table: NodeTable) -> frozenset[str]:
    """Return the ReadWriteOncePod claims of a pod."""
    if not pod.spec.volumes:
        return frozenset()
    claims = storage_objects(table).claims
    return frozenset(
        key
        for key in _claim_keys(pod)
        if key in claims and READ_WRITE_ONCE_POD in (claims[key].spec.access_modes or ())
    )

"""The plugin NodeVolumeLimits, and the cluster events that may help a pod that it refused."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from operator import attrgetter
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import (
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from batchsched.errors import PluginError
from batchsched.framework.constrain import (
    EVERY_NODE,
    CandidatePods,
    CandidateSet,
    ConstraintRow,
    pod_limit_row,
)
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint, queue_if_changed
from batchsched.framework.interface import (
    BulkFilterPlugin,
    ConstrainPlugin,
    EnqueueExtensionsPlugin,
    FilterPlugin,
    PreFilterPlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.csi_migration import (
    csi_handle_of_inline_volume,
    migrated_volume_kind,
)
from batchsched.framework.plugin_support.volume_listers import (
    claim_ref_allows_pod,
    has_new_volume_or_storage_class,
    signature_of_pod_volume_claims,
    storage_objects,
    uses_volume_claim,
    volume_claims_of_pod,
)
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    ASK_FILTER,
    LASTING_SKIP_FILTER,
    BoolArray,
    IndexArray,
    PreFilterAnswer,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits
from batchsched.plugins.node_volume_limits.attached_volumes import (
    AttachedVolumes,
    attached_volumes,
)
from batchsched.plugins.node_volume_limits.csi_volumes import (
    NAME,
    MountedVolumes,
    VolumeClaimNotFound,
    csi_volumes_of_pod,
)
from batchsched.plugins.node_volume_limits.drivers import (
    DriverColumns,
    installed_drivers,
    must_be_installed,
    required_drivers,
    volume_limits,
)
from batchsched.solver.problem import UNLIMITED

TOO_MANY_VOLUMES: Final = "node(s) exceed max volume count"


class NodeVolumeLimits(
    SignaturePlugin,
    PreFilterPlugin,
    FilterPlugin,
    BulkFilterPlugin,
    ConstrainPlugin,
    EnqueueExtensionsPlugin,
):
    """Refuses nodes on which the pod would exceed a CSI driver's volume limit, which the CSINode states.

    Nodes that lack a driver of the pod's volumes are refused, too, if the CSIDriver sets
    `preventPodSchedulingIfMissing` (1.37).

    A volume that several pods of the node mount counts once. A VolumeAttachment counts if no pod mounts the volume,
    and again if the pending pod mounts it, as in kube-scheduler. In that case a refusal may end when another pod
    mounts the volume, which the session sees one session later.

    Source: kube-scheduler's plugins/nodevolumelimits.
    """

    name: ClassVar[str] = NAME
    traits: ClassVar[PluginTraits] = PluginTraits(
        placement_effect=PlacementEffect.TIGHTENS, reads_priority=False
    )

    @override
    def signature(self, pod: Pod) -> Hashable:
        inline = tuple(volume for volume in pod.spec.volumes or () if volume.is_in_tree)
        return (
            signature_of_pod_volume_claims(pod),
            tuple((migrated_volume_kind(volume), csi_handle_of_inline_volume(volume)) for volume in inline),
        )

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        attachable = any(volume.may_count_against_attach_limit for volume in pod.pod.spec.volumes or ())
        return ASK_FILTER if attachable else LASTING_SKIP_FILTER

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        return self._judge(pod.pod, nodes)

    @override
    def allows_bulk_placement(
        self, pod: PodClass, table: NodeTable, nodes: IndexArray, counts: IndexArray
    ) -> bool:
        # Equal pods mount the same volumes: if one fits on a node, all of them do.
        if not any(volume.may_count_against_attach_limit for volume in pod.pod.spec.volumes or ()):
            return True
        return bool(self._judge(pod.pod, table.selected_nodes_view(nodes[counts > 0])).feasible_mask.all())

    def _judge(self, pod: Pod, nodes: Nodes) -> Verdict:
        attached = attached_volumes(nodes.table)
        has_csi_node = attached.has_csi_node[nodes.where]
        refusals: dict[str, BoolArray] = {}
        try:
            for migrated in np.unique(has_csi_node).tolist():
                new_volumes = csi_volumes_of_pod(pod, storage_objects(nodes.table), migrated, new=True)
                for reason, refused in _refusals(new_volumes, has_csi_node == migrated, nodes, attached):
                    refusals[reason] = refusals[reason] | refused if reason in refusals else refused
        except VolumeClaimNotFound as missing:
            return Verdict.refuse(np.ones(len(nodes), np.bool_), str(missing), unresolvable=True)
        if not refusals:
            return Verdict.accept(len(nodes))
        # Evictions free volumes, and kube-scheduler tries them for a missing driver, too.
        return Verdict(tuple(refusals), np.stack(list(refusals.values())), np.zeros(len(nodes), np.bool_))

    @override
    def constrain(self, batch: CandidateSet, nodes: Nodes) -> Sequence[ConstraintRow]:
        """Return a linear constraint for each CSI driver: no node gets more volumes than it can still attach.

        A row counts pods, so it is valid only if each pod brings its own volumes. Rows count only pod classes with a
        single pod, and only volumes that no other pod mounts.
        """
        users = self._count_pending_users(batch, nodes.table)
        if not users:  # as in most sessions: the attached volumes of all nodes are not counted
            return []
        attached = attached_volumes(nodes.table)
        brings: dict[str, dict[int, int]] = {}
        for candidate in batch.candidates:
            if candidate.count != 1:
                continue
            volumes = self._brought(candidate, nodes.table, migrated=False)
            own = [v for v in volumes if users[v] == 1 and not attached.node_counts.get(v)]
            for driver, count in Counter(volumes[v] for v in own).items():
                brings.setdefault(driver, {})[candidate.index] = count
        free = {driver: attached.columns_of_driver(driver, nodes.table).free for driver in brings}
        return [
            pod_limit_row(self.name, TOO_MANY_VOLUMES, EVERY_NODE, classes, free[driver])
            for driver, classes in sorted(brings.items())
            if sum(classes.values()) > int(free[driver].min(initial=UNLIMITED))
        ]

    def _count_pending_users(self, batch: CandidateSet, table: NodeTable) -> Counter[tuple[str, str]]:
        """Return the number of pending pods that mount each volume."""
        users: Counter[tuple[str, str]] = Counter()
        for candidate in batch.candidates:
            for volume in self._brought(candidate, table, migrated=True):
                users[volume] += candidate.count
        return users

    def _brought(self, candidate: CandidatePods, table: NodeTable, *, migrated: bool) -> MountedVolumes:
        try:
            return csi_volumes_of_pod(candidate.pod_class.pod, storage_objects(table), migrated, new=False)
        except PluginError:  # Filter says so, of this pod alone
            return {}

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        gone_or_changed = Action.DELETE | Action.UPDATE
        return (
            ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD),
            ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.DELETE, _unmounted),
            ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.ADD, _mounted_already),
            ClusterEventWithHint.for_events(
                EventResource.CSI_NODE, Action.ADD | gone_or_changed, _drivers_changed
            ),
            ClusterEventWithHint.for_events(
                EventResource.CSI_DRIVER, gone_or_changed, _driver_is_no_longer_required
            ),
            ClusterEventWithHint.for_events(
                EventResource.VOLUME_ATTACHMENT, gone_or_changed, queue_if_changed(attrgetter("spec"))
            ),
            ClusterEventWithHint.for_events(EventResource.CLAIM, Action.ADD | Action.UPDATE, _claim_changed),
            ClusterEventWithHint.for_events(EventResource.CLAIM, Action.DELETE),
            ClusterEventWithHint.for_events(
                EventResource.VOLUME, Action.ADD | Action.UPDATE, _volume_changed
            ),
            ClusterEventWithHint.for_events(EventResource.VOLUME, Action.DELETE),
            ClusterEventWithHint.for_events(EventResource.STORAGE_CLASS, gone_or_changed, _class_changed),
        )


def _unmounted(_pod: Pod, old: Pod, _new: None) -> Hint:
    return Hint.queue_if(any(volume.may_count_against_attach_limit for volume in old.spec.volumes or ()))


def _mounted_already(pod: Pod, _old: None, new: Pod) -> Hint:
    """Return QUEUE if a pod on the node mounts a volume of this pod, which then does not count again."""
    return Hint.queue_if(not _mounts(pod).isdisjoint(_mounts(new)))


def _mounts(pod: Pod) -> frozenset[tuple[str, str]]:
    """Return the claims and disks that a pod mounts, as (kind, name)."""
    kinds = (
        (migrated_volume_kind(volume), csi_handle_of_inline_volume(volume))
        for volume in pod.spec.volumes or ()
    )
    uses = (("claim", f"{pod.namespace}/{use.name}") for use in volume_claims_of_pod(pod))
    return frozenset((*uses, *((kind.plugin, handle) for kind, handle in kinds if kind and handle)))


def _drivers_changed(_pod: Pod, old: CSINode | None, new: CSINode | None) -> Hint:
    """Return QUEUE if a node got a driver, or if a limit was raised or removed.

    On a node without a CSINode, volumes of migrated kinds need no driver.
    """
    before, after = volume_limits(old), volume_limits(new)
    raised = any(after.get(driver, UNLIMITED) > limit for driver, limit in before.items())
    return Hint.queue_if(new is None or raised or not installed_drivers(new) <= installed_drivers(old))


def _driver_is_no_longer_required(_pod: Pod, old: CSIDriver, new: CSIDriver | None) -> Hint:
    return Hint.queue_if(must_be_installed(old) and (new is None or not must_be_installed(new)))


def _claim_changed(pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> Hint:
    """Return QUEUE if a claim of the pod was created, or got a volume or a class."""
    return Hint.queue_if(has_new_volume_or_storage_class(old, new) and uses_volume_claim(pod, new))


def _volume_changed(pod: Pod, old: PersistentVolume | None, new: PersistentVolume) -> Hint:
    """Return QUEUE if a volume was added or its spec changed, and its claimRef does not exclude the pod."""
    if old is not None and old.spec == new.spec:
        return Hint.SKIP
    return Hint.queue_if(claim_ref_allows_pod(new, pod))


def _class_changed(pod: Pod, old: StorageClass, new: StorageClass | None) -> Hint:
    other = new is None or old.provisioner != new.provisioner
    return Hint.queue_if(other and any(volume_claims_of_pod(pod)))


def _refusals(
    new_volumes: MountedVolumes, judged: BoolArray, nodes: Nodes, attached: AttachedVolumes
) -> Iterator[tuple[str, BoolArray]]:
    """Yield each reason to refuse nodes for a pod that mounts the new volumes, with the refused nodes [n].

    Only the nodes in the mask `judged` [n] are judged.

    Raises:
      PluginError: a volume of a pod on a judged node is invalid.
    """
    columns = {driver: attached.columns_of_driver(driver, nodes.table) for driver in new_volumes.values()}
    for driver in sorted(required_drivers(nodes.table).intersection(columns)):
        lacking = judged & ~columns[driver].installed[nodes.where]
        judged = judged & ~lacking
        if lacking.any():
            yield f"{driver} CSI driver is not installed on the node", lacking
    if new_volumes:
        _check_mounted_volumes(nodes.node_indexes[judged & attached.has_limits[nodes.where]], attached)
    for driver, column in columns.items():
        exceeded = judged & _exceeds_limit(driver, column, new_volumes, nodes, attached)
        if exceeded.any():
            yield TOO_MANY_VOLUMES, exceeded


def _check_mounted_volumes(nodes: IndexArray, attached: AttachedVolumes) -> None:
    """Check that no pod on the nodes mounts an invalid volume, because its volumes cannot be counted.

    Raises:
      PluginError: there is such a pod.
    """
    for node in nodes.tolist() if attached.problems else ():
        if node in attached.problems:
            raise PluginError(NAME, "Filter", attached.problems[node])


def _exceeds_limit(
    driver: str, column: DriverColumns, new_volumes: MountedVolumes, nodes: Nodes, attached: AttachedVolumes
) -> BoolArray:
    """Return the nodes [n] that can attach fewer volumes of a CSI driver than the pod would add to them."""
    volumes = [volume for volume, own in new_volumes.items() if own == driver]
    used, limit = column.used[nodes.where], column.limit[nodes.where]
    exceeded: BoolArray = used + len(volumes) > limit
    if any(volume in attached.node_counts for volume in volumes):
        # A volume that a pod of the node mounts already is not added again.
        indexes = nodes.node_indexes
        for row in np.flatnonzero(exceeded).tolist():
            mounted = attached[int(indexes[row])].mounted
            new = sum(volume not in mounted for volume in volumes)
            exceeded[row] = new > 0 and used[row] + new > limit[row]
    return exceeded

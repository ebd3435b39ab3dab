"""NodeVolumeLimits: the number of volumes that a node can attach, and the CSI drivers that it must have."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
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
    Volume,
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
    DRIVERS,
    NEVER,
    csi_handle_of_inline_volume,
    migrated_volume_kind,
    volume_handle,
)
from batchsched.framework.plugin_support.volume_listers import (
    StorageObjects,
    claim_ref_allows_pod,
    has_new_volume_or_storage_class,
    reason_pod_does_not_own_claim,
    signature_of_pod_volume_claims,
    storage_objects,
    uses_volume_claim,
    volume_claim_storage_class,
    volume_claims_of_pod,
)
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    ASK_FILTER,
    LASTING_SKIP_FILTER,
    BoolArray,
    IndexArray,
    IntArray,
    PreFilterAnswer,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits
from batchsched.solver.problem import UNLIMITED

TOO_MANY_VOLUMES: Final = "node(s) exceed max volume count"
UNBOUND: Final = "unbound:"
"""Marks a claim that is not bound to a volume. No volume handle has this form."""

Attached = dict[tuple[str, str], str]
"""(driver, handle) of a volume → its driver."""


class VolumeClaimNotFound(Exception):
    """The exception for a pending pod with a PersistentVolumeClaim that does not exist. Filter catches it."""


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

    name: ClassVar[str] = "NodeVolumeLimits"
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
        storage = storage_objects(nodes.table)
        required = _required_drivers(nodes.table)
        refusals: dict[str, BoolArray] = {}
        wanted_volumes: dict[bool, Attached] = {}
        try:
            for row, node in enumerate(nodes.node_indexes.tolist()):
                csi_node = storage.csi_nodes.get(nodes.table.names[node])
                migrated = csi_node is not None
                if migrated not in wanted_volumes:
                    wanted_volumes[migrated] = self._volumes(pod, storage, migrated, new=True)
                reason = self._refusal_reason(wanted_volumes[migrated], required, node, nodes.table)
                if reason:
                    refusals.setdefault(reason, np.zeros(len(nodes), np.bool_))[row] = True
        except VolumeClaimNotFound as missing:
            return Verdict.refuse(np.ones(len(nodes), np.bool_), str(missing), unresolvable=True)
        if not refusals:
            return Verdict.accept(len(nodes))
        # Evictions free volumes, and kube-scheduler tries them for a missing driver, too.
        return Verdict(tuple(refusals), np.stack(list(refusals.values())), np.zeros(len(nodes), np.bool_))

    def _refusal_reason(
        self, wanted_volumes: Attached, required: frozenset[str], node: int, table: NodeTable
    ) -> str:
        """Return why a node is refused for a pod with these volumes, "" if it is not."""
        csi_node = storage_objects(table).csi_nodes.get(table.names[node])
        lacking = required.intersection(wanted_volumes.values()) - _installed_drivers(csi_node)
        if lacking:
            return f"{min(lacking)} CSI driver is not installed on the node"
        limits = _limits(csi_node)
        if wanted_volumes and limits and self._exceeds(wanted_volumes, limits, node, table):
            return TOO_MANY_VOLUMES
        return ""

    def _exceeds(
        self, wanted_volumes: Attached, limits: Mapping[str, int], node: int, table: NodeTable
    ) -> bool:
        mounted = self._mounted(node, table)
        used = _counted(mounted, node, table)
        new = Counter(driver for volume, driver in wanted_volumes.items() if volume not in mounted)
        return any(used[driver] + count > limits.get(driver, UNLIMITED) for driver, count in new.items())

    def _mounted(self, node: int, table: NodeTable) -> Attached:
        storage = storage_objects(table)
        migrated = table.names[node] in storage.csi_nodes
        volumes: Attached = {}
        for pod in table.pod_table.attaching_on.get(node, {}).values():
            volumes |= self._volumes(pod, storage, migrated, new=False)
        return volumes

    def _volumes(self, pod: Pod, storage: StorageObjects, migrated: bool, *, new: bool) -> Attached:
        """Return the CSI volumes that a pod mounts, with or without those of `migrated` kinds.

        Raises:
          VolumeClaimNotFound: a claim of a `new` pod does not exist.
          PluginError: a claim has no name, an ephemeral volume's claim has another owner, or a disk name is
            invalid.
        """
        volumes: Attached = {}
        for volume in pod.spec.volumes or ():
            if volume.persistent_volume_claim or volume.ephemeral:
                claim = self._claim(pod, volume, storage, new=new)
                resolved = _of_claim(claim, storage, migrated) if claim is not None else None
            else:
                resolved = self._inline(volume) if migrated else None
            if resolved is not None and all(resolved):
                volumes[resolved] = resolved[0]
        return volumes

    def _inline(self, volume: Volume) -> tuple[str, str] | None:
        kind = migrated_volume_kind(volume)
        if kind is None:
            return None
        handle = csi_handle_of_inline_volume(volume)
        if handle is None:
            raise PluginError(self.name, "Filter", f"converting volume({volume.name}) from inline to csi")
        return kind.driver, handle

    def _claim(
        self, pod: Pod, volume: Volume, storage: StorageObjects, *, new: bool
    ) -> PersistentVolumeClaim | None:
        source = volume.persistent_volume_claim
        name = source.claim_name if source else f"{pod.name}-{volume.name}"
        if not name:
            raise PluginError(self.name, "Filter", "PersistentVolumeClaim had no name")
        claim = storage.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            if new:
                raise VolumeClaimNotFound(
                    f'looking up PVC {pod.namespace}/{name}: persistentvolumeclaim "{name}" not found'
                )
            return None
        stranger = None if source else reason_pod_does_not_own_claim(pod, claim)
        if stranger is not None:
            raise PluginError(self.name, "Filter", stranger)
        return claim

    @override
    def constrain(self, batch: CandidateSet, nodes: Nodes) -> Sequence[ConstraintRow]:
        """Return a linear constraint for each CSI driver: no node gets more volumes than it can still attach.

        A row counts pods, so it is valid only if each pod brings its own volumes. Rows count only pod classes with a
        single pod, and only volumes that no other pod mounts.
        """
        shared = self._shared(batch, nodes.table)
        brings: dict[str, dict[int, int]] = {}
        for candidate in batch.candidates:
            if candidate.count != 1:
                continue
            volumes = self._brought(candidate, nodes.table, migrated=False)
            for driver, count in Counter(volumes[one] for one in volumes if shared[one] == 1).items():
                brings.setdefault(driver, {})[candidate.index] = count
        free = self._free(sorted(brings), nodes.table)
        return [
            pod_limit_row(self.name, TOO_MANY_VOLUMES, EVERY_NODE, classes, free[driver])
            for driver, classes in sorted(brings.items())
            if sum(classes.values()) > int(free[driver].min(initial=UNLIMITED))
        ]

    def _shared(self, batch: CandidateSet, table: NodeTable) -> Counter[tuple[str, str]]:
        """Count the users of each volume: pending pods, and nodes on which it is mounted."""
        users: Counter[tuple[str, str]] = Counter()
        for candidate in batch.candidates:
            for volume in self._brought(candidate, table, migrated=True):
                users[volume] += candidate.count
        for node in table.pod_table.attaching_on:
            users.update(self._soundly_mounted(node, table).keys())
        return users

    def _brought(self, candidate: CandidatePods, table: NodeTable, *, migrated: bool) -> Attached:
        try:
            return self._volumes(candidate.pod_class.pod, storage_objects(table), migrated, new=False)
        except PluginError:  # Filter says so, of this pod alone
            return {}

    def _soundly_mounted(self, node: int, table: NodeTable) -> Attached:
        try:
            return self._mounted(node, table)
        except PluginError:
            return {}

    def _free(self, drivers: Sequence[str], table: NodeTable) -> dict[str, IntArray]:
        """Return for each driver how many more volumes each node [N] can attach."""
        free = {driver: np.full(len(table.nodes), UNLIMITED, np.int64) for driver in drivers}
        if not free:
            return free
        storage = storage_objects(table)
        for node, name in enumerate(table.names):
            limits = _limits(storage.csi_nodes.get(name))
            if not any(driver in free for driver in limits):
                continue
            used = _counted(self._soundly_mounted(node, table), node, table)
            for driver, limit in limits.items():
                if driver in free:
                    free[driver][node] = max(0, limit - used[driver])
        return free

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
    before, after = _limits(old), _limits(new)
    raised = any(after.get(driver, UNLIMITED) > limit for driver, limit in before.items())
    return Hint.queue_if(new is None or raised or not _installed_drivers(new) <= _installed_drivers(old))


def _driver_is_no_longer_required(_pod: Pod, old: CSIDriver, new: CSIDriver | None) -> Hint:
    return Hint.queue_if(_is_required(old) and (new is None or not _is_required(new)))


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


def _counted(mounted: Attached, node: int, table: NodeTable) -> Counter[str]:
    """Count a node's volumes by driver: those that pods mount, and other attached ones."""
    storage = storage_objects(table)
    used = Counter(mounted.values())
    attached_only = set()
    for attachment in storage.attachments.get(table.names[node], ()):
        volume = storage.volumes.get(attachment.spec.source.persistent_volume_name or "")
        if attachment.spec.attacher and volume is not None and volume.spec.csi is not None:
            attached_only.add((attachment.spec.attacher, volume.spec.csi.volume_handle))
    used.update(driver for driver, handle in attached_only if (driver, handle) not in mounted)
    return used


def _required_drivers(table: NodeTable) -> frozenset[str]:
    """Return the CSI drivers without which a node is refused for pods with volumes of the driver."""
    if not table.release.reads_required_drivers:
        return frozenset()
    return table.cached_value_of_cluster_objects(
        "required CSI drivers",
        lambda snapshot: frozenset(
            driver.metadata.name for driver in snapshot.csi_drivers if _is_required(driver)
        ),
    )


def _is_required(driver: CSIDriver) -> bool:
    return bool(driver.spec.prevent_pod_scheduling_if_missing)


def _installed_drivers(csi_node: CSINode | None) -> frozenset[str]:
    return frozenset(driver.name for driver in csi_node.spec.drivers) if csi_node else frozenset()


def _limits(csi_node: CSINode | None) -> dict[str, int]:
    """Return for each driver with a limit how many volumes a node can attach."""
    limits = {}
    for driver in csi_node.spec.drivers if csi_node else ():
        if driver.allocatable is not None and driver.allocatable.count is not None:
            limits[driver.name] = driver.allocatable.count
    return limits


def _of_claim(
    claim: PersistentVolumeClaim, storage: StorageObjects, migrated: bool
) -> tuple[str, str] | None:
    """Return the driver and handle of a claim's volume; if unbound, the driver of its class and its key."""
    volume = storage.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        return _of_volume(volume, migrated)
    storage_class = storage.classes.get(volume_claim_storage_class(claim))
    if storage_class is None:
        return None
    provisioner = storage_class.provisioner
    if provisioner in DRIVERS or provisioner in NEVER:
        driver = DRIVERS.get(provisioner) if migrated else None
        return (driver, UNBOUND + claim.key) if driver else None
    return provisioner, UNBOUND + claim.key


def _of_volume(volume: PersistentVolume, migrated: bool) -> tuple[str, str] | None:
    spec = volume.spec
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle
    kind = migrated_volume_kind(spec) if migrated else None
    handle = volume_handle(volume) if kind else None
    return (kind.driver, handle) if kind and handle else None

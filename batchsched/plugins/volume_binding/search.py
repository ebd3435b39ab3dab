"""Finds volumes for a pod's claims: on many nodes at once, or on one node after the pod is placed there.

Source: `FindPodVolumes` of kube-scheduler's plugins/volumebinding and `FindMatchingVolume` of
k8s.io/component-helpers/storage/volume. Of equally small volumes the first in the snapshot is used.

`capacity_scores` scores a node by the share of its storage that the claims would use, as `Score` and
`buildScorerFunction` of the same package do with the feature StorageCapacityScoring.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from batchsched.api.core.node import Node
from batchsched.api.core.quantity import parse_quantity_in_base_units
from batchsched.api.core.selector import LabelSelector, NodeSelector
from batchsched.api.core.volume import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
    VolumeResourceRequirements,
)
from batchsched.errors import PluginError
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.csi_migration import (
    csi_handle_of_persistent_volume,
    migrated_plugins,
    migrated_volume_kind,
    translate_node_affinity_to_csi,
)
from batchsched.framework.plugin_support.node_selection import mask_nodes_matching_selector
from batchsched.framework.plugin_support.scores import MAX_UTILIZATION
from batchsched.framework.plugin_support.volume_listers import (
    SELECTED_NODE,
    storage_objects,
    volume_claim_storage_class,
    volume_storage_class,
)
from batchsched.framework.status import BoolArray, IndexArray, IntArray, Verdict
from batchsched.plugins.volume_binding.claims import PodVolumeClaims

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
VOLUME_MISSING: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASONS: Final = (NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, VOLUME_MISSING)
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
STORAGE: Final = "storage"
NO_ROOM: Final = -1
FILESYSTEM: Final = "Filesystem"


@dataclass(slots=True)
class VolumeSearchResult:
    """The volumes that were found for a pod's claims on each of n nodes, and the nodes that were refused.

    Args:
      refused: [4, n] nodes that are refused, for each of REASONS.
      matches: claims that need an existing volume, each with the index [n] of its volume in `volumes`; -1 for none.
      volumes: the volumes found on some node.
      provisioned: claims to be provisioned, each with a mask [n] of the nodes where that is possible.
    """

    refused: BoolArray
    matches: list[tuple[PersistentVolumeClaim, IndexArray]] = field(default_factory=list)
    volumes: list[PersistentVolume] = field(default_factory=list)
    provisioned: list[tuple[PersistentVolumeClaim, BoolArray]] = field(default_factory=list)

    def verdict(self) -> Verdict:
        """Return the result of the volume search as the answer of the Filter."""
        return Verdict(REASONS, self.refused, np.asarray(self.refused.any(axis=0)))


def find_pod_volumes(claims: PodVolumeClaims, nodes: Nodes) -> VolumeSearchResult:
    """Find volumes for a pod's claims on each node. Volumes that are assumed for other claims are not available."""
    result = VolumeSearchResult(np.zeros((len(REASONS), len(nodes)), np.bool_))
    _check_bound(claims.bound, nodes, result)
    placed, free = [], []
    elsewhere = np.zeros(len(nodes), np.bool_)
    for claim in claims.delayed:
        node = _selected_node(claim, nodes.table)
        if node is None:
            free.append(claim)
        else:
            placed.append(claim)
            elsewhere |= nodes.node_indexes != nodes.table.index.get(node, -1)
    everywhere = np.ones(len(nodes), np.bool_)
    wanting = [(claim, everywhere) for claim in placed]
    for claim in sorted(free, key=requested_storage_bytes):
        choice = _match(claim, nodes, result)
        result.matches.append((claim, choice))
        wanting.append((claim, choice < 0))
    _provision([(claim, wanted & ~elsewhere) for claim, wanted in wanting], nodes, result)
    result.refused[1] |= elsewhere
    return result


def _selected_node(claim: PersistentVolumeClaim, table: NodeTable) -> str | None:
    return table.reserved_volumes.node_of.get(claim.key) or claim.metadata.annotation(SELECTED_NODE)


def _check_bound(claims: Iterable[PersistentVolumeClaim], nodes: Nodes, result: VolumeSearchResult) -> None:
    """Mark the nodes from which volumes of bound claims are not accessible. The first problem gives the reason."""
    storage = storage_objects(nodes.table)
    sound = np.ones(len(nodes), np.bool_)
    for claim in claims:
        volume = storage.volumes.get(claim.spec.volume_name)
        if volume is None:
            result.refused[3] |= sound
            return
        reachable = _reachable_bound(volume, nodes, sound)
        result.refused[0] |= sound & ~reachable
        sound &= reachable


def _reachable_bound(volume: PersistentVolume, nodes: Nodes, rows: BoolArray) -> BoolArray:
    """Return a mask [n] of the nodes that a bound volume's affinity selects, translated for migrated plugins.

    Raises:
      PluginError: a node among those `rows` about migrated the plugin, and the volume cannot be translated.
    """
    reachable = _reachable(volume, nodes)
    kind = migrated_volume_kind(volume.spec)
    if kind is None:
        return reachable
    csi_nodes = storage_objects(nodes.table).csi_nodes
    migrated = nodes.mask_where(lambda node: kind.plugin in migrated_plugins(csi_nodes.get(node.name)))
    if not migrated.any():
        return reachable
    if csi_handle_of_persistent_volume(volume) is None:
        if not (migrated & rows).any():
            return reachable
        raise PluginError("VolumeBinding", "Filter", f"could not translate pv {volume.metadata.name}")
    nodes_matching_selector: BoolArray = np.where(
        migrated, _selected(translate_node_affinity_to_csi(volume, kind), nodes), reachable
    )
    return nodes_matching_selector


def _reachable(volume: PersistentVolume, nodes: Nodes) -> BoolArray:
    """Return a mask [n] of the nodes that a volume's affinity selects."""
    affinity = volume.spec.node_affinity
    return _selected(affinity.required if affinity else None, nodes)


def _selected(required: NodeSelector | None, nodes: Nodes) -> BoolArray:
    """Return a mask [n] of the nodes that a volume's selector matches by their labels, not by their names."""
    if required is None:
        return np.ones(len(nodes), np.bool_)
    if any(term.match_fields for term in required.node_selector_terms):
        return nodes.mask_where(lambda node: required.matches(node.labels, ""))
    reachable: BoolArray = mask_nodes_matching_selector(nodes.table, required)[nodes.where]
    return reachable


def _match(claim: PersistentVolumeClaim, nodes: Nodes, result: VolumeSearchResult) -> IndexArray:
    """Return for each node [n] the index in `result.volumes` of the volume for a claim; -1 for none."""
    choice = np.full(len(nodes), -1, np.int32)
    table = nodes.table
    taken = [
        (result.volumes[index].metadata.name, other == index)
        for _, other in result.matches
        for index in np.unique(other[other >= 0]).tolist()
    ]
    open_ = np.ones(len(nodes), np.bool_)
    for volume, promised in _candidates(claim, table):
        name = volume.metadata.name
        free = open_.copy()
        for other, where in taken:
            if other == name:
                free &= ~where
        if promised:
            # A volume that is assumed or pre-bound for the claim is the only one that it can use.
            open_ &= ~free
        free &= _reachable(volume, nodes)
        if free.any():
            choice[free] = len(result.volumes)
            result.volumes.append(volume)
            open_ &= ~free
        if not open_.any():
            break
    return choice


def _candidates(claim: PersistentVolumeClaim, table: NodeTable) -> list[tuple[PersistentVolume, bool]]:
    """Return the volumes that a claim may use in the order of preference, and which of them are reserved for it."""
    offered = storage_objects(table).volumes_of.get(volume_claim_storage_class(claim), ())
    promised, free = [], []
    for volume in offered:
        owner = _promised_to(volume, claim, table)
        if owner is False or not _large_enough(volume, claim):
            continue
        if owner:
            promised.append((volume, True))
        elif _available(volume, claim):
            free.append((volume, False))
    return promised + sorted(free, key=lambda pair: volume_capacity(pair[0]))


def _promised_to(volume: PersistentVolume, claim: PersistentVolumeClaim, table: NodeTable) -> bool | None:
    """Return True if a volume is reserved for the claim, False if for another one, None if for none."""
    assumed = table.reserved_volumes.claim_of.get(volume.metadata.name)
    if assumed is not None:
        return assumed == claim.key
    owner = volume.spec.claim_ref
    if owner is None:
        return None
    same = f"{owner.namespace or 'default'}/{owner.name}" == claim.key
    return same and owner.uid in ("", claim.metadata.uid)


def _large_enough(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    modes = (volume.spec.volume_mode or FILESYSTEM, claim.spec.volume_mode or FILESYSTEM)
    deleted = volume.metadata.deletion_timestamp is not None
    return volume_capacity(volume) >= requested_storage_bytes(claim) and modes[0] == modes[1] and not deleted


def _available(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    spec = volume.spec
    return (
        volume.status.phase == "Available"
        and (claim.spec.selector is None or claim.spec.selector.matches(volume.metadata.labels))
        and volume_storage_class(volume) == volume_claim_storage_class(claim)
        and (spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")
        and set(claim.spec.access_modes or ()) <= set(spec.access_modes or ())
    )


def _provision(
    wanting: Sequence[tuple[PersistentVolumeClaim, BoolArray]], nodes: Nodes, result: VolumeSearchResult
) -> None:
    """Mark the nodes where volumes for some claims cannot be provisioned. The first problem gives the reason."""
    failed = np.zeros(len(nodes), np.bool_)
    for claim, needed in wanting:
        needed = needed & ~failed
        if not needed.any():
            continue
        # A delayed claim has an existing class, because only a class can request delayed binding.
        chosen = storage_objects(nodes.table).classes[volume_claim_storage_class(claim)]
        able = _provisionable(chosen, nodes)
        room = _has_room(claim, chosen, nodes)
        result.refused[1] |= needed & ~able
        result.refused[2] |= needed & able & ~room
        result.provisioned.append((claim, needed & able & room))
        failed |= needed & ~(able & room)


def _provisionable(chosen: StorageClass, nodes: Nodes) -> BoolArray:
    if chosen.provisioner in ("", NO_PROVISIONER):
        return np.zeros(len(nodes), np.bool_)
    terms = chosen.allowed_topologies
    if not terms:
        return np.ones(len(nodes), np.bool_)

    def nodes_in_allowed_topologies(nodes: Nodes) -> BoolArray:
        return nodes.mask_where(lambda node: any(_allows(term, node) for term in terms))

    allowed: BoolArray = nodes.table.cached_array(("allowed topologies", terms), nodes_in_allowed_topologies)[
        nodes.where
    ]
    return allowed


def _allows(term: TopologySelectorTerm, node: Node) -> bool:
    expressions = term.match_label_expressions
    return bool(expressions) and all(node.labels.get(one.key) in one.values for one in expressions)


def _has_room(claim: PersistentVolumeClaim, chosen: StorageClass, nodes: Nodes) -> BoolArray:
    """Return a mask [n] of the nodes where the driver has capacity for a new volume of the claim's size.

    Source: `hasEnoughCapacity` of kube-scheduler's plugins/volumebinding.
    """
    size = requested_bytes_if_capacity_is_reported(claim, chosen, nodes)
    if size is None:
        return np.ones(len(nodes), np.bool_)

    room: BoolArray = reported_free_storage_by_node(chosen.metadata.name, size, nodes) != NO_ROOM
    return room


def reported_free_storage_by_node(storage_class: str, size: int, nodes: Nodes) -> IntArray:
    """Return for each node [n] the free bytes of the CSIStorageCapacity that fits a new volume, or `NO_ROOM`.

    The new volume has `size` bytes. The value is `NO_ROOM` for a node without a CSIStorageCapacity of the StorageClass
    in which this volume fits. If it fits in several CSIStorageCapacities of a node, the first in the snapshot counts.
    """

    def capacity_by_node(table: NodeTable) -> IntArray:
        room = np.full(len(table.nodes), NO_ROOM, np.int64)
        for capacity in table.cluster_objects.csi_storage_capacities:
            limit = (
                capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
            )
            topology = capacity.node_topology
            if capacity.storage_class_name != storage_class or limit is None or topology is None:
                continue
            if parse_quantity_in_base_units(STORAGE, limit) >= size:
                reported = (
                    0
                    if capacity.capacity is None
                    else parse_quantity_in_base_units(STORAGE, capacity.capacity)
                )
                room[(room == NO_ROOM) & _within(topology, table)] = reported
        return room

    room: IntArray = nodes.table.cached_value_of_nodes(
        ("storage room", storage_class, size), capacity_by_node
    )[nodes.where]
    return room


def requested_bytes_if_capacity_is_reported(
    claim: PersistentVolumeClaim, chosen: StorageClass, nodes: Nodes
) -> int | None:
    """Return the requested bytes of a claim, or None if its CSI driver does not report storage capacity.

    The result is also None if the claim requests no storage.
    """
    driver = storage_objects(nodes.table).drivers.get(chosen.provisioner)
    if driver is None or not driver.spec.storage_capacity:
        return None
    return _requested_bytes(claim.spec.resources)


def _within(topology: LabelSelector, table: NodeTable) -> BoolArray:
    return table.all_nodes_view().mask_where(lambda node: topology.matches(node.labels))


def _requested_bytes(resources: VolumeResourceRequirements | None) -> int | None:
    requests = (resources.requests if resources else None) or {}
    return parse_quantity_in_base_units(STORAGE, requests[STORAGE]) if STORAGE in requests else None


def requested_storage_bytes(claim: PersistentVolumeClaim) -> int:
    """Return the bytes of storage that a PersistentVolumeClaim requests, 0 without a request."""
    return _requested_bytes(claim.spec.resources) or 0


def volume_capacity(volume: PersistentVolume) -> int:
    """Return the capacity of a PersistentVolume in bytes."""
    return parse_quantity_in_base_units(STORAGE, (volume.spec.capacity or {}).get(STORAGE, 0))


@dataclass(slots=True, eq=False)
class StorageClassUsage:
    """The storage of one StorageClass that a pod's claims would use on each of n nodes.

    Args:
      counts: [n] whether the pod uses the class on the node.
      requested: [n] bytes that the pod's claims request.
      capacity: [n] bytes of the found volumes, or free bytes for new volumes.
    """

    counts: BoolArray
    requested: IntArray
    capacity: IntArray

    @classmethod
    def zero_usage(cls, count: int) -> "StorageClassUsage":
        """Return the usage of a StorageClass that no claim uses: zero on each of `count` nodes."""
        return cls(np.zeros(count, np.bool_), np.zeros(count, np.int64), np.zeros(count, np.int64))

    def scores(self, line: IntArray) -> IntArray:
        """Return a score for each node [n], by the percentage of available storage that the claims would use.

        `line` [101] is the score for each percentage. A node where the claims do not use the StorageClass has the score
        0.

        A request above the capacity counts as full use.
        """
        full = (self.capacity == 0) | (self.requested > self.capacity)
        percent = self.requested * MAX_UTILIZATION // np.where(self.capacity == 0, 1, self.capacity)
        scored: IntArray = line[np.where(full, MAX_UTILIZATION, percent)]
        return np.where(self.counts, scored, 0)


def capacity_scores(result: VolumeSearchResult, nodes: Nodes, line: IntArray) -> IntArray:
    """Return for each node [n] the mean score of the StorageClasses that the pod's claims would use there.

    A node where the claims would use no StorageClass has the score 0. If volumes exist for some claims, these determine
    the score, and volumes to be provisioned do not count.

    Args:
      result: the search for the pod's volumes on these nodes.
      nodes: n nodes.
      line: [101] the score for each percentage of use.
    """
    static, dynamic = _static(result, nodes), _dynamic(result, nodes)
    bound = np.zeros(len(nodes), np.bool_)
    for use in static.values():
        bound |= use.counts
    for use in dynamic.values():
        use.counts &= ~bound
    uses = (*static.values(), *dynamic.values())
    total = np.zeros(len(nodes), np.int64)
    classes = np.zeros(len(nodes), np.int64)
    for use in uses:
        total += use.scores(line)
        classes += use.counts
    # Rounded to the nearest integer, halves upwards.
    return np.where(classes > 0, (2 * total + classes) // np.maximum(1, 2 * classes), 0)


def _static(result: VolumeSearchResult, nodes: Nodes) -> dict[str, StorageClassUsage]:
    """Add up claims and their existing volumes by the volumes' class."""
    uses: dict[str, StorageClassUsage] = {}
    for claim, choice in result.matches:
        for index in np.unique(choice[choice >= 0]).tolist():
            volume, chosen = result.volumes[index], choice == index
            use = uses.setdefault(volume.spec.storage_class_name, StorageClassUsage.zero_usage(len(nodes)))
            use.counts |= chosen
            use.requested[chosen] += requested_storage_bytes(claim)
            use.capacity[chosen] += volume_capacity(volume)
    return uses


def _dynamic(result: VolumeSearchResult, nodes: Nodes) -> dict[str, StorageClassUsage]:
    """Add up claims with volumes to be provisioned, by class.

    A class counts its capacity once, that of the last claim.
    """
    uses: dict[str, StorageClassUsage] = {}
    for claim, where in result.provisioned:
        chosen = storage_objects(nodes.table).classes[volume_claim_storage_class(claim)]
        size = requested_bytes_if_capacity_is_reported(claim, chosen, nodes)
        if size is None:
            continue
        room = reported_free_storage_by_node(chosen.metadata.name, size, nodes)
        nodes_with_room = where & (room != NO_ROOM)
        use = uses.setdefault(chosen.metadata.name, StorageClassUsage.zero_usage(len(nodes)))
        use.counts |= nodes_with_room
        use.requested[nodes_with_room] += size
        use.capacity[nodes_with_room] = room[nodes_with_room]
    return uses

"""Translation of in-tree volumes into the CSI volumes that replace them.

Source: k8s.io/csi-translation-lib, and `isCSIMigrationOn` of kube-scheduler's plugins/nodevolumelimits. In 1.36 the
set of migrated kinds is fixed, so every node with a CSINode counts all of them. VolumeBinding still reads the
node's annotation before it looks for a volume's zone under the driver's label.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from batchsched.api.core.selector import NodeSelector, NodeSelectorTerm, SelectorRequirement
from batchsched.api.core.volume import CSINode, InTreeVolumeSource, PersistentVolume, Volume

MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
REGION_OF: Final = {ZONE: REGION, BETA_ZONE: BETA_REGION}
"""Label of the zone → label of the region."""
_UNSPECIFIED: Final = "UNSPECIFIED"
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")


@dataclass(frozen=True, slots=True)
class MigratedVolumeKind:
    """A kind of in-tree volume, such as AWS EBS, that is migrated to a CSI driver.

    Args:
      plugin: the in-tree plugin, which StorageClasses name as provisioner.
      driver: the CSI driver that replaces it.
      zone: the label in which the driver keeps a node's zone, "" if zones are not translated.
    """

    plugin: str
    driver: str
    zone: str = ""


EBS: Final = MigratedVolumeKind("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone")
GCE: Final = MigratedVolumeKind("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone")
CINDER: Final = MigratedVolumeKind(
    "kubernetes.io/cinder", "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"
)
AZURE: Final = MigratedVolumeKind("kubernetes.io/azure-disk", "disk.csi.azure.com")
PORTWORX: Final = MigratedVolumeKind("kubernetes.io/portworx-volume", "pxd.portworx.com")
DRIVERS: Final[Mapping[str, str]] = {one.plugin: one.driver for one in (EBS, GCE, CINDER, AZURE, PORTWORX)}
"""Migrated in-tree plugin → CSI driver."""
NEVER: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})
"""In-tree plugins with a translation that never count as migrated."""


def migrated_volume_kind(source: InTreeVolumeSource) -> MigratedVolumeKind | None:
    """Return which kind of migrated in-tree volume a pod's volume or a PersistentVolume is; None for other volumes."""
    pairs = (
        (source.gce_persistent_disk, GCE),
        (source.aws_elastic_block_store, EBS),
        (source.cinder, CINDER),
        (source.azure_disk, AZURE),
        (source.portworx_volume, PORTWORX),
    )
    return next((kind for stated, kind in pairs if stated is not None), None)


def csi_handle_of_inline_volume(volume: Volume) -> str | None:
    """Return the CSI volume handle of a migrated volume in a pod's spec; None if it cannot be derived."""
    disk = volume.gce_persistent_disk
    return _gce_handle(disk.pd_name, "zones", _UNSPECIFIED) if disk else _handle(volume)


def csi_handle_of_persistent_volume(volume: PersistentVolume) -> str | None:
    """Return the CSI volume handle of a migrated PersistentVolume; None if it cannot be derived."""
    disk = volume.spec.gce_persistent_disk
    if disk is None:
        return _handle(volume.spec)
    label = volume.metadata.label(BETA_ZONE) or volume.metadata.label(ZONE) or ""
    zones = label.split("__")
    if len(zones) == 1:
        return _gce_handle(disk.pd_name, "zones", label or _UNSPECIFIED)
    parts = [zone.split("-") for zone in zones]
    regions = {"-".join(part[:2]) for part in parts}
    if len(regions) > 1 or any(len(part) != 3 for part in parts):
        return None
    return _gce_handle(disk.pd_name, "regions", regions.pop())


def _gce_handle(disk: str, kind: str, place: str) -> str:
    return f"projects/{_UNSPECIFIED}/{kind}/{place}/disks/{disk}"


def _handle(source: InTreeVolumeSource) -> str | None:
    if source.aws_elastic_block_store is not None:
        return _ebs_handle(source.aws_elastic_block_store.volume_id)
    if source.azure_disk is not None:
        managed = (source.azure_disk.kind or "Managed").lower() == "managed"
        return source.azure_disk.disk_uri if managed else None
    volume_source = source.cinder or source.portworx_volume
    return volume_source.volume_id if volume_source is not None else None


def _ebs_handle(volume_id: str) -> str | None:
    """Return the volume id of aws://zone/name; a plain name is returned unchanged."""
    if not volume_id.startswith("aws://"):
        return volume_id
    name = volume_id.removeprefix("aws://").partition("/")[2].strip("/")
    return name if _EBS_VOLUME.fullmatch(name) else None


def migrated_plugins(csi_node: CSINode | None) -> frozenset[str]:
    """Return the names of the in-tree plugins that are migrated according to the annotation of a CSINode."""
    annotation = csi_node.metadata.annotation(MIGRATED_PLUGINS) if csi_node else None
    return frozenset((annotation or "").split(",")) & DRIVERS.keys()


def translate_node_affinity_to_csi(volume: PersistentVolume, kind: MigratedVolumeKind) -> NodeSelector | None:
    """Return a PersistentVolume's node affinity, with zone labels renamed to the CSI driver's label.

    Region labels are renamed to `topology.kubernetes.io/region`. If the affinity names no zone, the zones in the
    volume's own labels are required. If the driver has no zone label, the affinity is unchanged.

    Source: `translateTopologyFromInTreeToCSI` of k8s.io/csi-translation-lib.
    """
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity else None
    if not kind.zone:
        return required
    terms = required.node_selector_terms if required else ()
    zone = _zone_label(volume, terms)
    renamed = {REGION_OF[zone]: REGION} if _has_values(terms, REGION_OF[zone]) else {}
    if _has_values(terms, zone):
        renamed[zone] = kind.zone
    zones = sorted({part.strip() for part in (volume.metadata.label(zone) or "").split("__")} - {""})
    added: tuple[SelectorRequirement, ...] = ()
    if zones and zone not in renamed:
        added = (SelectorRequirement(key=kind.zone, operator="In", values=tuple(zones)),)
        terms = terms or (NodeSelectorTerm(),)
    if required is None and not added:
        return None
    return NodeSelector(node_selector_terms=tuple(_rewritten(term, renamed, added) for term in terms))


def _zone_label(volume: PersistentVolume, terms: Iterable[NodeSelectorTerm]) -> str:
    """Return the zone label in the volume's affinity, or else among its own labels."""
    named = {one.key for term in terms for one in term.match_expressions or ()}
    if not named & REGION_OF.keys():
        named = {label for label in REGION_OF if volume.metadata.label(label) is not None}
    return BETA_ZONE if BETA_ZONE in named and ZONE not in named else ZONE


def _has_values(terms: Iterable[NodeSelectorTerm], key: str) -> bool:
    return any(one.key == key and one.values for term in terms for one in term.match_expressions or ())


def _rewritten(
    term: NodeSelectorTerm, renamed: Mapping[str, str], added: tuple[SelectorRequirement, ...]
) -> NodeSelectorTerm:
    keys = tuple(
        SelectorRequirement(
            key=renamed.get(expression.key, expression.key),
            operator=expression.operator,
            values=expression.values,
        )
        for expression in term.match_expressions or ()
    )
    return NodeSelectorTerm(match_expressions=keys + added, match_fields=term.match_fields)

"""Volumes of pods, claims, PersistentVolumes, StorageClasses, and the objects of CSI drivers."""

import msgspec

from batchsched.api.core.metadata import KubernetesObject, KubernetesValue
from batchsched.api.core.selector import LabelSelector, NodeSelector


class PersistentVolumeClaimVolumeSource(KubernetesValue, frozen=True, gc=False):
    """The source of a pod's volume that refers to a PersistentVolumeClaim."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(KubernetesValue, frozen=True, gc=False):
    """The source of a generic ephemeral volume, for which a PersistentVolumeClaim is created with the pod."""

    volume_claim_template: dict[str, object] | None = None


class GCEPersistentDiskVolumeSource(KubernetesValue, frozen=True, gc=False):
    """A volume source: a GCE persistent disk."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(KubernetesValue, frozen=True, gc=False):
    """A volume source: an AWS Elastic Block Store disk."""

    volume_id: str = msgspec.field(name="volumeID", default="")
    read_only: bool = False


class AzureDiskVolumeSource(KubernetesValue, frozen=True, gc=False):
    """A volume source: an Azure disk."""

    disk_uri: str = msgspec.field(name="diskURI", default="")
    kind: str | None = None


class CinderOrPortworxVolumeSource(KubernetesValue, frozen=True, gc=False):
    """A volume source: a Cinder or Portworx volume, identified by its volume ID."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class AzureFileOrVsphereVolumeSource(KubernetesValue, frozen=True, gc=False):
    """A volume source that is an Azure Files share or a vSphere disk; scheduling reads only its type."""


class ISCSIVolumeSource(KubernetesValue, frozen=True, gc=False):
    """A volume source: an iSCSI disk."""

    iqn: str = ""
    read_only: bool = False


class RBDVolumeSource(KubernetesValue, frozen=True, gc=False):
    """A volume source: a Ceph RBD image."""

    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class CSIVolumeSource(KubernetesValue, frozen=True, gc=False):
    """A volume source: a volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""
    read_only: bool | None = None


class ImageVolumeSource(KubernetesValue, frozen=True, gc=False):
    """A volume source: an OCI image."""

    reference: str = ""


class InTreeVolumeSource(KubernetesValue, frozen=True, gc=False):
    """The volume sources that were built into Kubernetes (in-tree) and that CSI drivers now implement."""

    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFileOrVsphereVolumeSource | None = None
    cinder: CinderOrPortworxVolumeSource | None = None
    portworx_volume: CinderOrPortworxVolumeSource | None = None
    vsphere_volume: AzureFileOrVsphereVolumeSource | None = None

    @property
    def is_in_tree(self) -> bool:
        """True if the volume has one of the in-tree sources."""
        return bool(
            self.gce_persistent_disk
            or self.aws_elastic_block_store
            or self.azure_disk
            or self.azure_file
            or self.cinder
            or self.portworx_volume
            or self.vsphere_volume
        )


class Volume(InTreeVolumeSource, frozen=True, gc=False):
    """A volume in the spec of a pod. Volume sources that scheduling ignores are left out."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    image: ImageVolumeSource | None = None

    @property
    def may_conflict_on_node(self) -> bool:
        """True for a GCE, AWS, iSCSI or Ceph RBD disk, which two pods on one node cannot always share.

        The result is False for PersistentVolumeClaims.
        """
        return bool(self.gce_persistent_disk or self.aws_elastic_block_store or self.iscsi or self.rbd)

    @property
    def may_count_against_attach_limit(self) -> bool:
        """True for a claim-based or in-tree volume, which may count against a node's attach limit."""
        return bool(self.persistent_volume_claim or self.ephemeral) or self.is_in_tree


class VolumeResourceRequirements(KubernetesValue, frozen=True, gc=False):
    """The resource requests of a PersistentVolumeClaim, such as `storage`."""

    requests: dict[str, str | int | float] | None = None


class PersistentVolumeClaimSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a PersistentVolumeClaim."""

    access_modes: tuple[str, ...] | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    resources: VolumeResourceRequirements | None = None
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(KubernetesValue, frozen=True, gc=False):
    """The status of a PersistentVolumeClaim."""

    phase: str = ""


class PersistentVolumeClaim(KubernetesObject, frozen=True, gc=False):
    """A PersistentVolumeClaim: a claim of pods on storage."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def key(self) -> str:
        """The `namespace/name` of the PersistentVolumeClaim."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


class ObjectReference(KubernetesValue, frozen=True, gc=False):
    """A reference to another Kubernetes object, such as from a PersistentVolume to its claim."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(KubernetesValue, frozen=True, gc=False):
    """The nodes that can access a PersistentVolume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(InTreeVolumeSource, frozen=True, gc=False):
    """The spec of a PersistentVolume."""

    capacity: dict[str, str | int | float] | None = None
    access_modes: tuple[str, ...] | None = None
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeStatus(KubernetesValue, frozen=True, gc=False):
    """The status of a PersistentVolume."""

    phase: str = ""


class PersistentVolume(KubernetesObject, frozen=True, gc=False):
    """A PersistentVolume of the cluster."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabelRequirement(KubernetesValue, frozen=True, gc=False):
    """A node label and its allowed values, in the `allowedTopologies` of a StorageClass."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(KubernetesValue, frozen=True, gc=False):
    """A term of the `allowedTopologies` of a StorageClass: node labels that must all match.

    A term without labels matches no node.
    """

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(KubernetesObject, frozen=True, gc=False):
    """A StorageClass: how the volumes of PersistentVolumeClaims are provisioned and bound."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] | None = None


class VolumeNodeResources(KubernetesValue, frozen=True, gc=False):
    """The number of volumes of a CSI driver that can be attached to a node; None means no limit."""

    count: int | None = None


class CSINodeDriver(KubernetesValue, frozen=True, gc=False):
    """A CSI driver that is installed on a node."""

    name: str = ""
    node_id: str = msgspec.field(name="nodeID", default="")
    topology_keys: tuple[str, ...] | None = None
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a CSINode: the CSI drivers that are installed on the node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(KubernetesObject, frozen=True, gc=False):
    """A CSINode: the CSI drivers that are installed on the node of the same name."""

    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a CSIDriver: whether it publishes storage capacity, and whether nodes without it are refused."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(KubernetesObject, frozen=True, gc=False):
    """A CSI driver of the cluster. StorageClasses name it as their provisioner."""

    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(KubernetesObject, frozen=True, gc=False):
    """The storage that a CSI driver can still provision for a StorageClass on the nodes of one topology."""

    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


class VolumeAttachmentSource(KubernetesValue, frozen=True, gc=False):
    """The PersistentVolume that a VolumeAttachment attaches to a node."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a VolumeAttachment: the volume, the node, and the CSI driver that attaches it."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(KubernetesObject, frozen=True, gc=False):
    """A VolumeAttachment: a volume that is or will be attached to a node."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()

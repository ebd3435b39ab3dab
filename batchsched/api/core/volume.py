"""Volumes of pods, claims, PersistentVolumes, StorageClasses, and the objects of CSI drivers."""

import msgspec

from batchsched.api.core.metadata import KubernetesObject, KubernetesValue
from batchsched.api.core.selector import LabelSelector, NodeSelector


class ClaimSource(KubernetesValue, frozen=True, gc=False):
    """A pod's use of a PersistentVolumeClaim."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralSource(KubernetesValue, frozen=True, gc=False):
    """A claim that is created for the pod and named after pod and volume."""

    volume_claim_template: dict[str, object] | None = None


class GCEDisk(KubernetesValue, frozen=True, gc=False):
    """A GCE persistent disk."""

    pd_name: str = ""
    read_only: bool = False


class EBSDisk(KubernetesValue, frozen=True, gc=False):
    """An AWS Elastic Block Store disk."""

    volume_id: str = msgspec.field(name="volumeID", default="")
    read_only: bool = False


class AzureDisk(KubernetesValue, frozen=True, gc=False):
    """An Azure disk."""

    disk_uri: str = msgspec.field(name="diskURI", default="")
    kind: str | None = None


class NamedDisk(KubernetesValue, frozen=True, gc=False):
    """A Cinder or Portworx volume, identified by its volume ID."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class OpaqueSource(KubernetesValue, frozen=True, gc=False):
    """An Azure Files share or a vSphere disk. Scheduling reads only its type."""


class ISCSIDisk(KubernetesValue, frozen=True, gc=False):
    """An iSCSI disk."""

    iqn: str = ""
    read_only: bool = False


class RBDDisk(KubernetesValue, frozen=True, gc=False):
    """A Ceph RBD image."""

    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class CSISource(KubernetesValue, frozen=True, gc=False):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""
    read_only: bool | None = None


class ImageSource(KubernetesValue, frozen=True, gc=False):
    """An OCI image as a volume."""

    reference: str = ""


class InTreeSource(KubernetesValue, frozen=True, gc=False):
    """Volume types built into Kubernetes that CSI drivers now implement."""

    gce_persistent_disk: GCEDisk | None = None
    aws_elastic_block_store: EBSDisk | None = None
    azure_disk: AzureDisk | None = None
    azure_file: OpaqueSource | None = None
    cinder: NamedDisk | None = None
    portworx_volume: NamedDisk | None = None
    vsphere_volume: OpaqueSource | None = None

    @property
    def is_in_tree(self) -> bool:
        """True if the volume is of an in-tree type."""
        return bool(
            self.gce_persistent_disk
            or self.aws_elastic_block_store
            or self.azure_disk
            or self.azure_file
            or self.cinder
            or self.portworx_volume
            or self.vsphere_volume
        )


class Volume(InTreeSource, frozen=True, gc=False):
    """A volume of a pod; volume types that scheduling ignores are left out."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    iscsi: ISCSIDisk | None = None
    rbd: RBDDisk | None = None
    csi: CSISource | None = None
    image: ImageSource | None = None

    @property
    def may_conflict_on_node(self) -> bool:
        """True if the pod itself names the disk, and pods on the same node cannot always share it."""
        return bool(self.gce_persistent_disk or self.aws_elastic_block_store or self.iscsi or self.rbd)

    @property
    def may_count_against_attach_limit(self) -> bool:
        """True if the volume may count against the attach limit of a node: it has a claim, or is of an in-tree type."""
        return bool(self.persistent_volume_claim or self.ephemeral) or self.is_in_tree


class ResourceRequests(KubernetesValue, frozen=True, gc=False):
    """Requested amounts by resource."""

    requests: dict[str, str | int | float] | None = None


class ClaimSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a PersistentVolumeClaim."""

    access_modes: tuple[str, ...] | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    resources: ResourceRequests | None = None
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None


class ClaimStatus(KubernetesValue, frozen=True, gc=False):
    """The status of a PersistentVolumeClaim."""

    phase: str = ""


class PersistentVolumeClaim(KubernetesObject, frozen=True, gc=False):
    """A claim on storage."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ObjectReference(KubernetesValue, frozen=True, gc=False):
    """A reference to another object."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(KubernetesValue, frozen=True, gc=False):
    """The nodes that can access a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(InTreeSource, frozen=True, gc=False):
    """The spec of a PersistentVolume."""

    capacity: dict[str, str | int | float] | None = None
    access_modes: tuple[str, ...] | None = None
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSISource | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeStatus(KubernetesValue, frozen=True, gc=False):
    """The status of a PersistentVolume."""

    phase: str = ""


class PersistentVolume(KubernetesObject, frozen=True, gc=False):
    """A volume of the cluster."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologyRequirement(KubernetesValue, frozen=True, gc=False):
    """A node label and its allowed values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(KubernetesValue, frozen=True, gc=False):
    """Node labels that must all match; without any, the term matches no node."""

    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(KubernetesObject, frozen=True, gc=False):
    """A StorageClass: how volumes of claims are provisioned."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class DriverAllocatable(KubernetesValue, frozen=True, gc=False):
    """The number of volumes of a driver that a node can attach; None without a limit."""

    count: int | None = None


class CSINodeDriver(KubernetesValue, frozen=True, gc=False):
    """A CSI driver that is installed on a node."""

    name: str = ""
    node_id: str = msgspec.field(name="nodeID", default="")
    topology_keys: tuple[str, ...] | None = None
    allocatable: DriverAllocatable | None = None


class CSINodeSpec(KubernetesValue, frozen=True, gc=False):
    """The CSI drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(KubernetesObject, frozen=True, gc=False):
    """The CSI drivers that are installed on the node of the same name."""

    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(KubernetesValue, frozen=True, gc=False):
    """The capabilities of a CSI driver."""

    storage_capacity: bool | None = None


class CSIDriver(KubernetesObject, frozen=True, gc=False):
    """A CSI driver of the cluster. StorageClasses name it as their provisioner."""

    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(KubernetesObject, frozen=True, gc=False):
    """The storage that a CSI driver can still provision for a StorageClass in a part of the cluster."""

    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


class AttachmentSource(KubernetesValue, frozen=True, gc=False):
    """The volume that is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(KubernetesValue, frozen=True, gc=False):
    """The volume, the node and the attacher of an attachment."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(KubernetesObject, frozen=True, gc=False):
    """A volume that is attached to a node, or will be."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()

"""CSI drivers: the drivers of nodes, their volume limits and capacity, and attached volumes."""

import msgspec

from batchsched.api.core.metadata import ObjectMeta, Value
from batchsched.api.core.selector import LabelSelector


class DriverAllocatable(Value, frozen=True, gc=False):
    """The number of volumes of a driver that a node can attach; None without a limit."""

    count: int | None = None


class NodeDriver(Value, frozen=True, gc=False):
    """A driver that is installed on a node."""

    name: str = ""
    node_id: str = msgspec.field(name="nodeID", default="")
    topology_keys: tuple[str, ...] | None = None
    allocatable: DriverAllocatable | None = None


class CSINodeSpec(Value, frozen=True, gc=False):
    """The drivers of a node."""

    drivers: tuple[NodeDriver, ...] = ()


class CSINode(Value, frozen=True, gc=False):
    """The drivers that are installed on the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Value, frozen=True, gc=False):
    """Capabilities of a driver."""

    storage_capacity: bool | None = None


class CSIDriver(Value, frozen=True, gc=False):
    """A driver of the cluster; StorageClasses refer to its name as their provisioner."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Value, frozen=True, gc=False):
    """The storage capacity of a driver for a class in a part of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


class AttachmentSource(Value, frozen=True, gc=False):
    """The volume that is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Value, frozen=True, gc=False):
    """The volume, the node and the attacher of an attachment."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Value, frozen=True, gc=False):
    """A volume that is attached to a node, or will be."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()

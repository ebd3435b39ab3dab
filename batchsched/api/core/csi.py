"""What CSI drivers say of themselves: drivers, the nodes they run on, the room they have, the volumes they attached."""

import msgspec

from batchsched.api.core.metadata import ObjectMeta, Value
from batchsched.api.core.selector import LabelSelector


class DriverAllocatable(Value, frozen=True, gc=False):
    """How many volumes of a driver a node can hold; None: nobody set a limit."""

    count: int | None = None


class NodeDriver(Value, frozen=True, gc=False):
    """A driver as it is installed on a node."""

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
    """What a driver can do."""

    storage_capacity: bool | None = None


class CSIDriver(Value, frozen=True, gc=False):
    """A driver of the cluster, under the name that StorageClasses state as their provisioner."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Value, frozen=True, gc=False):
    """The room that a driver has for volumes of a class in a part of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


class AttachmentSource(Value, frozen=True, gc=False):
    """The volume that is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Value, frozen=True, gc=False):
    """What is attached where, and by whom."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Value, frozen=True, gc=False):
    """A volume that is attached to a node, or is to be."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()

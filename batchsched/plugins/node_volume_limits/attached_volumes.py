"""The CSI volumes on all nodes: read once for each node, and again after pods were added to it or removed from it.

The pods of a large cluster have tens of thousands of volumes, and each pending pod with a claim is compared with all
nodes. The numbers by driver are therefore arrays over the nodes.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from batchsched.errors import PluginError
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.plugin_support.volume_listers import StorageObjects, storage_objects
from batchsched.framework.status import BoolArray
from batchsched.plugins.node_volume_limits.csi_volumes import MountedVolumes, csi_volumes_of_pod
from batchsched.plugins.node_volume_limits.drivers import DriverColumns, read_driver_columns, volume_limits


class NodeVolumes(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The CSI volumes on one node.

    Args:
      mounted: the volumes that pods on the node mount; none if one of them is invalid.
      used: the number of volumes by driver: those that pods mount, and other attached ones.
      problem: why a volume of a pod on the node is invalid, "" if all are valid.
    """

    mounted: MountedVolumes
    used: Mapping[str, int]
    problem: str = ""


NO_VOLUMES: Final = NodeVolumes({}, {})


def read_node_volumes(node: int, table: NodeTable) -> NodeVolumes:
    """Return the CSI volumes that the pods on a node mount, or that VolumeAttachments attach to the node."""
    storage, name = storage_objects(table), table.names[node]
    pods = table.pod_table.attaching_on.get(node)
    if not pods and name not in storage.attachments:
        return NO_VOLUMES
    mounted: MountedVolumes = {}
    problem = ""
    try:
        for pod in pods.values() if pods else ():
            mounted |= csi_volumes_of_pod(pod, storage, name in storage.csi_nodes, new=False)
    except PluginError as invalid:
        mounted, problem = {}, invalid.problem
    used = Counter(mounted.values())
    used.update(driver for driver, handle in _attached(name, storage) if (driver, handle) not in mounted)
    return NodeVolumes(mounted, used, problem)


def _attached(node: str, storage: StorageObjects) -> set[tuple[str, str]]:
    """Return the driver and handle of each CSI volume that a VolumeAttachment attaches to a node."""
    attached = set()
    for attachment in storage.attachments.get(node, ()):
        volume = storage.volumes.get(attachment.spec.source.persistent_volume_name or "")
        if attachment.spec.attacher and volume is not None and volume.spec.csi is not None:
            attached.add((attachment.spec.attacher, volume.spec.csi.volume_handle))
    return attached


class AttachedVolumes:
    """The CSI volumes on all N nodes of a node table, which follow the pods that are added and removed."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._since = -1
        self._nodes: list[NodeVolumes] = []
        self._columns: dict[str, DriverColumns] = {}
        """By driver: only drivers that were asked for have columns."""
        self.node_counts: Counter[tuple[str, str]] = Counter()
        """The number of nodes on which pods mount a volume, by driver and handle of the volume."""
        self.has_csi_node: BoolArray = np.zeros(0, np.bool_)
        """[N] nodes with a CSINode: on these, volumes of migrated kinds count."""
        self.has_limits: BoolArray = np.zeros(0, np.bool_)
        """[N] nodes on which at least one driver has a limit."""
        self.problems: dict[int, str] = {}
        """Node → why a volume of a pod on the node is invalid."""

    def __getitem__(self, node: int) -> NodeVolumes:
        """Return the CSI volumes on a node."""
        return self._nodes[node]

    def follow(self, table: NodeTable) -> None:
        """Read the volumes of those nodes again to which pods were added, or from which pods were removed."""
        if table.names is not self._names:
            self._rearrange(table)
        changed = table.moves.nodes_changed_since(self._since)
        self._since = table.moves.generation
        for node in changed.tolist():
            self._replace(node, read_node_volumes(node, table))

    def _rearrange(self, table: NodeTable) -> None:
        """Adopt new indexes of the nodes. Nodes that were added have changed, and are read by `follow`."""
        before = dict(zip(self._names, self._nodes, strict=True))
        self._names = table.names
        self._nodes = [before.pop(name, NO_VOLUMES) for name in table.names]
        for volumes in before.values():
            self._count_nodes(volumes, -1)
        csi_nodes = storage_objects(table).csi_nodes
        self.has_csi_node = np.array([name in csi_nodes for name in table.names], np.bool_)
        self.has_limits = np.array(
            [bool(volume_limits(csi_nodes.get(name))) for name in table.names], np.bool_
        )
        self.problems = {node: one.problem for node, one in enumerate(self._nodes) if one.problem}
        self._columns.clear()

    def _replace(self, node: int, volumes: NodeVolumes) -> None:
        before, self._nodes[node] = self._nodes[node], volumes
        self._count_nodes(before, -1)
        self._count_nodes(volumes, 1)
        self.problems.pop(node, None)
        if volumes.problem:
            self.problems[node] = volumes.problem
        for driver, columns in self._columns.items():
            columns.used[node] = volumes.used.get(driver, 0)

    def _count_nodes(self, volumes: NodeVolumes, by: int) -> None:
        for volume in volumes.mounted:
            self.node_counts[volume] += by
            if not self.node_counts[volume]:
                del self.node_counts[volume]

    def columns_of_driver(self, driver: str, table: NodeTable) -> DriverColumns:
        """Return the numbers of a CSI driver on all nodes."""
        columns = self._columns.get(driver)
        if columns is None:
            used = np.array([volumes.used.get(driver, 0) for volumes in self._nodes], np.int64)
            columns = self._columns[driver] = read_driver_columns(driver, used, table)
        return columns


def attached_volumes(table: NodeTable) -> AttachedVolumes:
    """Return the CSI volumes on all nodes, with the pods that are on the nodes now."""
    attached = table.cached_value_of_cluster_objects("attached volumes", lambda _snapshot: AttachedVolumes())
    attached.follow(table)
    return attached

"""What CSINodes and CSIDrivers state: the drivers of a node, their limits, and the drivers that a node must have."""

from dataclasses import dataclass

import numpy as np

from batchsched.api.core.volume import CSIDriver, CSINode
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.plugin_support.volume_listers import storage_objects
from batchsched.framework.status import BoolArray, IntArray
from batchsched.solver.problem import UNLIMITED


@dataclass(frozen=True, slots=True, eq=False)
class DriverColumns:
    """The numbers of one CSI driver on N nodes.

    Args:
      installed: [N] nodes with the driver.
      limit: [N] how many volumes of the driver each node can attach, UNLIMITED without a limit.
      used: [N] how many volumes of the driver are on each node.
    """

    installed: BoolArray
    limit: IntArray
    used: IntArray

    @property
    def free(self) -> IntArray:
        """[N] how many more volumes of the driver each node can attach, UNLIMITED without a limit."""
        return np.where(self.limit == UNLIMITED, UNLIMITED, np.maximum(0, self.limit - self.used))


def read_driver_columns(driver: str, used: IntArray, table: NodeTable) -> DriverColumns:
    """Return the numbers of a CSI driver on all nodes, given how many of its volumes are `used` [N]."""
    csi_nodes = [storage_objects(table).csi_nodes.get(name) for name in table.names]
    return DriverColumns(
        np.array([driver in installed_drivers(csi_node) for csi_node in csi_nodes], np.bool_),
        np.array([volume_limits(csi_node).get(driver, UNLIMITED) for csi_node in csi_nodes], np.int64),
        used,
    )


def volume_limits(csi_node: CSINode | None) -> dict[str, int]:
    """Return for each CSI driver with a limit how many volumes a node can attach."""
    limits = {}
    for driver in csi_node.spec.drivers if csi_node else ():
        if driver.allocatable is not None and driver.allocatable.count is not None:
            limits[driver.name] = driver.allocatable.count
    return limits


def installed_drivers(csi_node: CSINode | None) -> frozenset[str]:
    """Return the names of the CSI drivers that a CSINode lists."""
    return frozenset(driver.name for driver in csi_node.spec.drivers) if csi_node else frozenset()


def required_drivers(table: NodeTable) -> frozenset[str]:
    """Return the CSI drivers without which a node is refused for pods with volumes of the driver."""
    if not table.release.reads_required_drivers:
        return frozenset()
    return table.cached_value_of_cluster_objects(
        "required CSI drivers",
        lambda snapshot: frozenset(
            driver.metadata.name for driver in snapshot.csi_drivers if must_be_installed(driver)
        ),
    )


def must_be_installed(driver: CSIDriver) -> bool:
    """Return whether pods with volumes of a CSI driver are placed only on nodes with the driver."""
    return bool(driver.spec.prevent_pod_scheduling_if_missing)

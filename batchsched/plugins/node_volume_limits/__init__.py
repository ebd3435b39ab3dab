"""NodeVolumeLimits: the number of volumes that a node can attach, and the CSI drivers that it must have.

`plugin` implements the extension points, `csi_volumes` finds the volumes that a pod mounts, `drivers` reads CSINodes
and CSIDrivers, and `attached_volumes` counts the volumes on each node.
"""

from batchsched.plugins.node_volume_limits.plugin import TOO_MANY_VOLUMES, NodeVolumeLimits

__all__ = ["TOO_MANY_VOLUMES", "NodeVolumeLimits"]

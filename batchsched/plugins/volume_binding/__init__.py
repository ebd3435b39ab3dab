"""VolumeBinding: the volumes of a pod's claims are accessible from the node, or can be provisioned there.

`plugin` implements the extension points, `claims` sorts a pod's claims, `search` finds volumes for them on each
node.
"""

from batchsched.plugins.volume_binding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]

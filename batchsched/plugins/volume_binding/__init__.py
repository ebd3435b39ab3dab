"""VolumeBinding: a pod's claims have their volumes within reach of the node, or can be given some there.

`plugin` answers at the points, `claims` sorts a pod's claims, `search` finds volumes for them node by node.
"""

from batchsched.plugins.volume_binding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]

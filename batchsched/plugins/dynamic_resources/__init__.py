"""DynamicResources: places pods where devices for their ResourceClaims are free, and allocates the devices.

`plugin` implements the extension points, `claims` finds the claims of a pod, `extended_resources` writes the claim for
extended resources that a DeviceClass serves, `node_search` searches groups of equal nodes for devices, and `events`
names what may help a refused pod.
"""

from batchsched.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]

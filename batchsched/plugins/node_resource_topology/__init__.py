"""NodeResourceTopologyMatch: the containers of a pod get their resources from single NUMA zones of the node.

`plugin` implements the extension points, `zones` reads NodeResourceTopologies, `demands` the requests that the kubelet
aligns, `alignment` decides whether they fit in zones, `scoring` scores nodes, and `rows` limits the solver.
"""

from batchsched.plugins.node_resource_topology.plugin import NodeResourceTopologyMatch

__all__ = ["NodeResourceTopologyMatch"]

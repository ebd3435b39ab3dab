"""PodTopologySpread: matching pods lie evenly over the domains of a topology key.

`plugin` answers at the points, `constraints` reads what a pod asks for, `counts` holds what was counted, `rows`
tells the solver.
"""

from batchsched.plugins.pod_topology_spread.plugin import PodTopologySpread

__all__ = ["PodTopologySpread"]

"""PodTopologySpread: spreads matching pods evenly over the domains of a topology key.

`plugin` implements the extension points, `constraints` reads a pod's constraints, `counts` counts matching pods by
domain, `rows` creates the solver's rows.
"""

from batchsched.plugins.pod_topology_spread.plugin import PodTopologySpread

__all__ = ["PodTopologySpread"]

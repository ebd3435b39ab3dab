"""InterPodAffinity: pods near to, or far from, other pods.

`plugin` answers at the points, `terms` reads who is meant, `counts` holds what was counted, `rows` tells the solver.
"""

from batchsched.plugins.inter_pod_affinity.plugin import InterPodAffinity

__all__ = ["InterPodAffinity"]

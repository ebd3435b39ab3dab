"""InterPodAffinity: places pods near other pods, or away from them.

`plugin` implements the extension points, `terms` reads affinity terms and counts matching pods by domain, `rows`
creates the solver's rows.
"""

from batchsched.plugins.inter_pod_affinity.plugin import InterPodAffinity

__all__ = ["InterPodAffinity"]

"""Floor 6: the cluster's own services, reached over the network.

Adapters behind the ports: so far the extenders that kube-scheduler's users run.

May import: ``errors``, ``model``, ``ports``.
"""

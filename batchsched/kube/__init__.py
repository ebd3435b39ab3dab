"""Floor 6: the cluster's own services, reached over the network.

Adapters behind the ports, on one event loop: a connection with credentials that rotate, reflectors that follow
collections, a writer that never outlives its Lease; and the extenders that kube-scheduler's users run.

May import: ``errors``, ``model``, ``ports``, ``manifests``.
"""

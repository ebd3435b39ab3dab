"""The network client of the API server and of extenders (layer 6).

It implements the ports on one event loop. A connection rotates its credentials, reflectors list and watch objects, and
a writer sends nothing after its Lease expired.

May import: ``errors``, ``api``, ``ports``, ``manifests``.
"""

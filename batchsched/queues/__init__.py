"""The queue tree, the entitlements of queues, and the order of pending gangs (layer 3).

Every order is total: gangs with equal keys are ordered by submission time, then by `namespace/name`.

May import: ``errors``, ``api``, ``ports``, ``config``. It does not import its sibling packages.
"""

"""Floor 3: from what was observed to the snapshot of a session.

Events of the world come in one by one, out of order at times; a consistent, frozen ``Snapshot`` comes
out. Pods that were assumed to be bound count as bound until the world confirms or contradicts it.

May import: ``errors``, ``model``, ``ports``, ``settings``. Knows nothing of its siblings.
"""

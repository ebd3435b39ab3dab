"""Floor 3: the state of one cluster, kept event by event, and the Snapshot of it.

An adapter passes watch events in. A pod that a session placed is assumed: it counts on its node until the API server
confirms the binding, or the binding fails. Sessions read the changes. The debugger compares the state with a fresh
list.

May import: ``errors``, ``api``, ``ports``, ``config``. Does not import packages of the same floor.
"""

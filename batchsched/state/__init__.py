"""The state of one cluster, updated by each watch event, and Snapshots of the state (layer 3).

An adapter passes watch events in. A pod that a session placed is assumed: it counts on its node until the API server
confirms the binding, or the binding fails. Sessions read the changes. The debugger compares the state with a fresh
list.

May import: ``errors``, ``api``, ``ports``, ``config``. Does not import packages of the same layer.
"""

"""Floor 3: what a watcher knows of a cluster, event by event, and the Snapshot of it.

A pod that a decision placed counts on its node before the API says so, until the API does, or the binding failed.
Sessions are fed with what changed; a debugger compares the cache with a fresh list. Nobody here watches: an adapter
brings the events, and the time with them.

May import: ``errors``, ``model``, ``ports``, ``settings``. Knows nothing of its siblings.
"""

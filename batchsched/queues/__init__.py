"""Floor 3: who is next, and what each queue is entitled to.

The queue tree, the policies that order gangs inside a queue, and the backoff of those refused. An order
is total: between equals submission decides, then the name.

May import: ``errors``, ``model``, ``ports``, ``settings``. Knows nothing of its siblings.
"""

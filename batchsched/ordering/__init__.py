"""Floor 3: who is next, and what each queue is entitled to.

The queue tree, the policies that order gangs inside a queue, and the backoff of those refused. An order
is total: between equals the order of arrival decides.

May import: ``errors``, ``model``, ``ports``, ``settings``. Knows nothing of its siblings.
"""

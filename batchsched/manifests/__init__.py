"""Floor 3: YAML and JSON on one side, the model on the other.

The input of a person is never trusted and never fatal: an object that cannot be used is set aside with
its file, its field and a reason one can act on, and the rest goes on.

May import: ``errors``, ``model``, ``ports``, ``settings``. Knows nothing of its siblings.
"""

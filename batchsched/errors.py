"""Floor 0: the exception hierarchy.

A refusal is a value; what is raised from here is breakage, and carries its evidence. Whoever catches one of
these to raise another chains it with ``from``, so that the first cause is never lost.
"""


class BatchschedError(Exception):
    """The root of everything that this package raises on purpose."""

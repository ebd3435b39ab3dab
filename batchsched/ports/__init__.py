"""Floor 2: what the core asks of the world, as Protocols.

The cluster that pods are bound in, the clock that says when it is, the telemetry that wants to know. The
core names the question here and a shell above brings the answer, a real one or a simulated one; so what
an adapter must promise is written in one place.

May import: ``errors``, ``model``. Holds no implementation.
"""

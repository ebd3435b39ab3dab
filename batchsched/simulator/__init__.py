"""A simulated cluster in virtual time (layer 6).

It implements the ports of a real cluster, with arrivals, completions and failures from a trace or a seeded generator.
The simulator receives the scheduler as an argument and contains no scheduling of its own.

May import: ``errors``, ``api``, ``ports``.
"""

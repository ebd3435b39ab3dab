"""Floor 6: a cluster in virtual time.

The same ports as a real cluster, with arrivals, completions and failures taken from a trace or from a
seeded generator. The simulator is handed ``decide`` as a function and has no scheduler of its own.

May import: ``errors``, ``model``, ``ports``; nothing else of this package.
"""

"""Floor 5: one scheduling cycle, ``decide(snapshot, profile, now, seed) -> Decision``.

Orders the gangs, groups their pods into classes, asks the pipeline for masks and scores, states the problem,
has it solved, walks the solution pod by pod through Reserve and Permit, and says of every gang what became
of it and why. No clock, no I/O, no randomness outside the seed.

May import: floors 0 to 4; never a plugin by name.
"""

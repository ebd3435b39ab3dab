"""One scheduling cycle; `decide(snapshot, profile, now, seed)` returns the decision of a session (layer 5).

A session orders the gangs, groups their pods into classes, and calls plugins for feasible nodes and scores. It
formulates the solver's problem, and places the pods of the solution one by one through Reserve and Permit. The decision
states for each gang whether it is placed, and the reason if not. No clock, no I/O, no randomness outside the seed.

May import: layers 0 to 4; never a plugin by name.
"""

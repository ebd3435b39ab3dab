"""Floor 6: a session in a file, and the same session again.

Writes the snapshot, the profile, the recorded answers of the world and the decision; reads them back,
refuses a file that was tampered with, and says whether the decision repeats, byte for byte.

May import: floors 0 to 5.
"""

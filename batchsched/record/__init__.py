"""Writes sessions to files, reads them back, and compares their decisions with those of a replay (layer 6).

A session file contains the snapshot, the profile, the recorded answers from outside and the decision. A file that was
modified is refused. A replay must repeat the decision byte for byte.

May import: layers 0 to 5.
"""

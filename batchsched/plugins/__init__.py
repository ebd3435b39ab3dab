"""Floor 5: one file per plugin, each ignorant of the others.

What two plugins share belongs to a floor below. Plugins are found through the entry-point group
``batchsched.plugins``, ours in the same way as anybody's.

May import: floors 0 to 4; never another plugin, never ``session``.
"""

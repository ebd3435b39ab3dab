"""Floor 5: one file or package for each plugin. Plugins do not know each other.

Code that two plugins share is on a lower floor. Plugins are found by the entry point group ``batchsched.plugins``,
in the same way as plugins of other packages.

May import: floors 0 to 4; never another plugin, never ``session``.
"""

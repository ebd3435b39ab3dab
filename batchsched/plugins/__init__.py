"""One file or package for each plugin (layer 5). Plugins do not know each other.

Code that two plugins share is on a lower layer. Plugins are found by the entry point group ``batchsched.plugins``,
in the same way as plugins of other packages.

May import: layers 0 to 4; never another plugin, never ``session``.
"""

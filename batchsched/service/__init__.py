"""Floor 7: the running scheduler around `decide`: its loop, binds, evictions, reports, the pod grouper and its pages.

May import: floors 0 to 6.
"""

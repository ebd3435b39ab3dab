"""Floor 7: what a running scheduler needs around `decide`: who minds plugins, who asks extenders.

May import: floors 0 to 6.
"""

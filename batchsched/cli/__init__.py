"""Floor 8: the commands, one file each.

A command reads its arguments, calls one thing below and prints what came back: data on standard output,
progress and warnings on standard error. ``main`` turns what went wrong into a sentence and an exit code;
it is the last of the three places with a broad catch.

May import: every floor.
"""

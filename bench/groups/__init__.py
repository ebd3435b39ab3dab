"""Random gangs with trees of subgroups, levels and slices: how many are placed, and how many refusals are proved."""

from bench.groups.run import main

__all__ = ["main"]

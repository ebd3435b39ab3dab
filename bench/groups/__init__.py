"""Random gangs with trees, levels, slices, affinity and claims: how many are placed, how many refusals are proved."""

from bench.groups.run import main

__all__ = ["main"]

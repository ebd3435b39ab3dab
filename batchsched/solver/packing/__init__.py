"""Laying gangs on nodes: what is free, in which order nodes are taken, one gang at a time or a whole solution."""

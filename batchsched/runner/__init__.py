"""Runs sessions over a cluster, which it follows by watch events, and applies their decisions (layer 7)."""

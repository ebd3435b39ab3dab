"""Floor 7: runs sessions over a cluster, which it follows by watch events, and applies their decisions."""

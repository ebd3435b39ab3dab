"""Floor 8: controllers beside the scheduler loop: status, evictions, stale gangs, assumed pods."""

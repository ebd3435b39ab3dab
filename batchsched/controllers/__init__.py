"""Floor 8: controllers next to the scheduler loop: status, evictions, stale gangs and assumed pods."""

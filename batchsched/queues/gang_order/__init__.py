"""Orders of pending gangs within a queue, and the registry of these policies."""

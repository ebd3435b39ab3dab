"""Floor 8: controllers next to the scheduler loop: status, Events, evictions, stale gangs and assumed pods.

Writes of status and Events wait while pods are being bound.
"""

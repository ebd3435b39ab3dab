"""Warm start: a session begins with the placements and the capacity prices of an earlier one."""

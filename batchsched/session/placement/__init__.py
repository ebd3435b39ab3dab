"""Placement of single gangs: class feasibility, and the statement that can be rolled back."""

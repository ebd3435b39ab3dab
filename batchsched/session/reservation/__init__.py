"""Reservations: the earliest start that is kept free for a gang."""

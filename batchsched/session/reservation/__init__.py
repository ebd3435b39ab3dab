"""Reservations: the earliest start of a gang that cannot start yet, which later gangs must not delay."""

"""Eligibility, order and queue limits of the gangs of a session."""

"""Refusals: the reason for which a gang is not placed, as numbers and as sentences."""

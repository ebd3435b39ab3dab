"""Refusals: why a gang is not placed, as evidence and as sentences."""

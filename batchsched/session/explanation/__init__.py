"""Explanations of refusals that are proved by deciding again: can the gang ever start, and which changes place it.

A session gives each refusal a reason from its own solver problem. This package examines a refusal afterwards, with the
input of the session: it changes the input, decides again, and keeps the smallest changes that place the gang.
"""

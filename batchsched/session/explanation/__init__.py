"""Explanations of refusals: whether the gang can ever start, and which tested input changes would help.

A session gives each refusal a reason from its own solver problem. This package examines a refusal afterwards, with the
input of the session: it changes the input, decides again, and keeps the smallest changes that place the gang.
"""

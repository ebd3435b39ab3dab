"""Reads YAML or JSON manifests into the objects of the package `api`, and writes them (layer 3).

Input is never trusted and an error is never fatal: an invalid object is set aside with its file, field and an
actionable message, and all other objects are used.

May import: ``errors``, ``api``, ``ports``, ``config``. It does not import its sibling packages.
"""

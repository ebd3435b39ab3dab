"""The schema of the configuration file, its defaults, and the functions that load it (layer 2).

Every field has a default. Unknown fields and values out of range are rejected; the message names the field and the
allowed range. Configuration objects are frozen: a profile does not change during a session.

May import: ``errors``, ``api``.
"""

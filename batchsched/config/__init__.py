"""Floor 2: the configuration a person writes: schema, loading, defaults.

Everything has a default, an unknown field is refused by its name, and a value out of range is refused
with the range. What comes out is frozen: a session never sees its profile change under it.

May import: ``errors``, ``model``.
"""

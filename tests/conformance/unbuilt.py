"""What is not built yet, and so not compared. A line goes when it comes; nothing else may be added."""

from typing import Final

PLUGINS: Final[frozenset[str]] = frozenset()
"""Plugins. A case in whose recorded cycle one of them refuses is compared plugin by plugin only."""

AREAS: Final = frozenset({"dra"})
"""Areas that are named and not counted."""

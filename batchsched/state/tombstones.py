"""Graves: uids that are gone for good, so that an event that comes late raises no ghost."""

from typing import Final

MOST: Final = 16_384
"""Uids that are remembered: events of one kind come in order, and what is late is late by a few."""


class Tombstones:
    """The uids of objects that were deleted, or of pods that have finished; the oldest are forgotten."""

    def __init__(self) -> None:
        self._uids: dict[str, None] = {}

    def bury(self, uid: str) -> None:
        """Remember a uid; an empty one says nothing."""
        if uid:
            self._uids[uid] = None
            if len(self._uids) > MOST:
                del self._uids[next(iter(self._uids))]

    def __contains__(self, uid: str) -> bool:
        """Tell whether a uid is gone."""
        return uid in self._uids

    def open(self, uid: str) -> None:
        """Forget a uid: a list shows it alive."""
        self._uids.pop(uid, None)

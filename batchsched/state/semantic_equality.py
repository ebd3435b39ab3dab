"""Semantic equality: whether two versions of an object are the same for scheduling."""

from typing import Any

import msgspec
from pydantic import BaseModel

VERSION = "resource_version"
STATUS = "status"


def alike(old: Any, new: Any) -> bool:
    """Return whether two versions of an object are equal in everything that scheduling reads.

    The resourceVersion grows with every write, and only controllers write and read the status of custom resources.
    The decoder of core objects already leaves out fields that no plugin reads, such as the time of a heartbeat.
    """
    if isinstance(new, BaseModel):
        names = [name for name in type(new).model_fields if name != STATUS]
        return all(getattr(old, name) == getattr(new, name) for name in names)
    return _equal_but(old, new, "metadata") and _equal_but(old.metadata, new.metadata, VERSION)


def _equal_but(old: msgspec.Struct, new: msgspec.Struct, but: str) -> bool:
    names = type(new).__struct_fields__
    return all(getattr(old, name) == getattr(new, name) for name in names if name != but)

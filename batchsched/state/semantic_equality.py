"""Likeness: when two versions of an object are the same to scheduling."""

from typing import Any

import msgspec
from pydantic import BaseModel

VERSION = "resource_version"
STATUS = "status"


def alike(old: Any, new: Any) -> bool:
    """Tell whether two versions of an object differ in nothing that scheduling reads.

    The resourceVersion grows with every write, and the status of a custom resource is written by us and read by
    nobody here. Core objects are decoded without what nobody reads, a heartbeat's time for one.
    """
    if isinstance(new, BaseModel):
        names = [name for name in type(new).model_fields if name != STATUS]
        return all(getattr(old, name) == getattr(new, name) for name in names)
    return _equal_but(old, new, "metadata") and _equal_but(old.metadata, new.metadata, VERSION)


def _equal_but(old: msgspec.Struct, new: msgspec.Struct, but: str) -> bool:
    names = type(new).__struct_fields__
    return all(getattr(old, name) == getattr(new, name) for name in names if name != but)

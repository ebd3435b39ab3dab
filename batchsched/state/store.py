"""The store of the objects of one kind, the tombstones of deleted objects, and the readers of changes."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from pydantic import BaseModel

T = TypeVar("T")
STATUS = "status"
MIN_KEYS_PER_SEARCH: Final = 8
"""If fewer keys than this are left for each changed key, sorting all keys costs less than searching the changed ones.
"""
MAX_TOMBSTONES: Final = 16_384
"""Uids that are remembered. Events of one kind come in order, so a late event is late by a few events only."""


class SortedObjectStore(Generic[T]):
    """The objects of one kind by `namespace/name`, sorted by this key when they are read.

    A list of the API server is sorted by key, while the order of events has no meaning. `sorted_objects` costs
    nothing if nothing changed. Otherwise it costs one copy of the last answer and a binary search for each changed key:
    a session reads all pods of the cluster, and must not sort them for the few that were created since.
    """

    __slots__ = ("_by_key", "_changed_keys", "_keys", "_objects")

    def __init__(self) -> None:
        self._by_key: dict[str, T] = {}
        self._objects: tuple[T, ...] = ()
        """The last answer of `sorted_objects`."""
        self._keys: list[str] = []
        """The keys of `_objects`, in the same order."""
        self._changed_keys: set[str] = set()
        """The keys that were added, replaced or removed since the last call of `sorted_objects`."""

    def __len__(self) -> int:
        """The number of objects."""
        return len(self._by_key)

    def __contains__(self, key: str) -> bool:
        """Return whether an object exists."""
        return key in self._by_key

    def __iter__(self) -> Iterator[str]:
        """The keys, in no particular order."""
        return iter(self._by_key)

    def get(self, key: str) -> T | None:
        """Return the object with this key, or None if it does not exist."""
        return self._by_key.get(key)

    def put(self, key: str, value: T) -> None:
        """Add an object to the store, or replace the object of the same key."""
        self._by_key[key] = value
        self._changed_keys.add(key)

    def pop(self, key: str) -> T | None:
        """Remove the object with this key and return it, or None if it does not exist."""
        value = self._by_key.pop(key, None)
        if value is not None:
            self._changed_keys.add(key)
        return value

    def sorted_objects(self) -> tuple[T, ...]:
        """Return all objects sorted by key. If nothing changed since the last call, the tuple is the same object."""
        if self._changed_keys:
            if len(self._changed_keys) * MIN_KEYS_PER_SEARCH > len(self._by_key):
                self._keys = sorted(self._by_key)
                self._objects = tuple(map(self._by_key.__getitem__, self._keys))
            else:
                self._merge_changes()
            self._changed_keys.clear()
        return self._objects

    def _merge_changes(self) -> None:
        """Copy the runs of unchanged objects between the changed keys."""
        keys: list[str] = []
        objects: list[T] = []
        end = 0
        for key in sorted(self._changed_keys):
            index = bisect_left(self._keys, key, end)
            keys += self._keys[end:index]
            objects += self._objects[end:index]
            end = index + (index < len(self._keys) and self._keys[index] == key)
            if key in self._by_key:
                keys.append(key)
                objects.append(self._by_key[key])
        self._keys = keys + self._keys[end:]
        self._objects = (*objects, *self._objects[end:])


class Tombstones:
    """The uids of deleted objects and finished pods, so that a late event does not bring them back.

    The oldest uids are forgotten first.
    """

    def __init__(self) -> None:
        self._uids: dict[str, None] = {}

    def record_deletion(self, uid: str) -> None:
        """Record the uid of a deleted object. An empty uid is ignored."""
        if uid:
            self._uids[uid] = None
            if len(self._uids) > MAX_TOMBSTONES:
                del self._uids[next(iter(self._uids))]

    def __contains__(self, uid: str) -> bool:
        """Return whether an object of this uid was deleted."""
        return uid in self._uids

    def forget_deletion(self, uid: str) -> None:
        """Remove a uid from the tombstones, because a list of the API server contains the object."""
        self._uids.pop(uid, None)


def are_equal_for_scheduling(old: Any, new: Any) -> bool:
    """Return whether two versions of an object are equal in everything that scheduling reads.

    The resourceVersion grows with every write, and only controllers write and read the status of custom resources.
    The decoder of core objects already leaves out fields that no plugin reads, such as the time of a heartbeat.
    """
    if isinstance(new, BaseModel):
        return _are_custom_resources_equal(old, new)
    # A copy of a struct is cheaper than a comparison field by field, which each event about an assumed pod would need.
    metadata = msgspec.structs.replace(old.metadata, resource_version=new.metadata.resource_version)
    return bool(msgspec.structs.replace(old, metadata=metadata) == new)


def _are_custom_resources_equal(old: Any, new: Any) -> bool:
    metadata = old.metadata.model_copy(update={"resource_version": new.metadata.resource_version})
    names = [name for name in type(new).model_fields if name not in ("metadata", STATUS)]
    return metadata == new.metadata and all(getattr(old, name) == getattr(new, name) for name in names)


MAX_UNREAD: Final = 65_536
"""Changed objects that a reader may leave unread. Beyond, it starts from a Snapshot, which costs no more by then."""


class ObjectChange(msgspec.Struct, frozen=True, eq=False):
    """A change of one object in the cluster state: the object before and after.

    Args:
      field: The field of Snapshot that has the object.
      key: `namespace/name`, or the name of an object without a namespace.
      before, after: The object as a Snapshot shows it, an assumed pod with its node. `before` is None for an
        addition, `after` is None for a removal.
    """

    field: str
    key: str
    before: Any
    after: Any

    @property
    def affected_nodes(self) -> tuple[str, ...]:
        """The names of the nodes that a change affects: a changed node, or a pod's nodes before and after."""
        if self.field == "nodes":
            return (self.key,)
        if self.field != "pods":
            return ()
        names = [pod.node_name for pod in (self.before, self.after) if pod is not None and pod.node_name]
        return tuple(dict.fromkeys(names))


class ChangeReader:
    """Collector of cluster state changes for one component, which merges the changes of the same object.

    The present object is looked up when the reader reads. Memory is therefore held only by objects that the reader saw
    before, and by at most `max_unread` keys, even if the reader never reads.

    Args:
      stores: The objects by field of Snapshot; each change is recorded after the store has it.
      max_unread: The number of changed objects beyond which the reader starts again from a Snapshot.
    """

    __slots__ = ("__weakref__", "_max_unread", "_stores", "_unread")

    def __init__(self, stores: Mapping[str, SortedObjectStore[Any]], max_unread: int = MAX_UNREAD) -> None:
        self._stores = stores
        self._max_unread = max_unread
        # None after too many changes. Without objects there is nothing that a Snapshot could show.
        self._unread: dict[tuple[str, str], Any] | None = None if any(map(len, stores.values())) else {}

    def record_change(self, field: str, key: str, before: Any, after: Any) -> None:
        """Record that an object changed; `before` is None for an addition, `after` is None for a removal."""
        unread = self._unread
        if unread is None:
            return
        address = field, key
        if address not in unread:
            if len(unread) >= self._max_unread:
                self._unread = None
            else:
                unread[address] = before
        elif after is None and unread[address] is None:
            del unread[address]

    def unread_changes(self) -> tuple[ObjectChange, ...] | None:
        """Return the changes since the last `read_changes`, without marking them as read; None if there were too many.

        The changes of an object are merged into one; changes that cancel out are left out.
        """
        if self._unread is None:
            return None
        stores = self._stores
        changes = (
            ObjectChange(field, key, before, stores[field].get(key))
            for (field, key), before in self._unread.items()
        )
        return tuple(change for change in changes if change.before is not change.after)

    def read_changes(self) -> tuple[ObjectChange, ...] | None:
        """Return the changes of the cluster state since the last call; None if there were too many.

        After None, the reader starts again from `ClusterState.snapshot()`, which contains all changes so far. The first
        call returns None unless the cluster state was empty when the reader was created.
        """
        changes = self.unread_changes()
        self._unread = {}
        return changes

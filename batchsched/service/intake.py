"""What reflectors see goes into the cache; what cannot be used is set aside, by name, and told once."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from batchsched.manifests.decode import Decoder, Refused
from batchsched.manifests.documents import Document, Envelope
from batchsched.model.decision import SetAside
from batchsched.model.kinds import Kind

_LOG: Final = logging.getLogger(__name__)
_ENVELOPE: Final = msgspec.json.Decoder(Envelope)


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class Store(Protocol):
    """A cache, or whoever stands before it."""

    def put(self, found: Any, /) -> None:
        """Take in an object that is new or has changed."""
        ...

    def remove(self, gone: Any, /) -> None:
        """Take in that an object is gone."""
        ...

    def replace(self, kind: type, listed: Iterable[Any], /) -> None:
        """Take in all objects of a kind."""
        ...


class Intake:
    """Takes one kind of object into a cache; implements `ports.feed.Sink`.

    Args:
      kind: of object.
      cache: takes them in.
      decoder: shared by all kinds.
      changed: is called after each change of the cache.
    """

    def __init__(self, kind: Kind, cache: Store, decoder: Decoder, changed: Callable[[], None]) -> None:
        self._kind = kind
        self._cache = cache
        self._decoder = decoder
        self._changed = changed
        self.set_aside: dict[str, SetAside] = {}
        """What cannot be used, by name."""

    def replaced(self, objects: Sequence[bytes]) -> None:
        """Take all objects there are."""
        self.set_aside.clear()
        usable = (self._decoded(raw) for raw in objects)
        self._cache.replace(self._kind.type, [one for one in usable if one is not None])
        self._changed()

    def changed(self, raw: bytes) -> None:
        """Take an object that is new or has changed; one that cannot be used any more counts as gone."""
        found = self._decoded(raw)
        if found is not None:
            self._cache.put(found)
            self._changed()

    def gone(self, raw: bytes) -> None:
        """Take the last state of an object that is gone."""
        found = self._decoded(raw)
        if found is not None:
            self._cache.remove(found)
            self._changed()

    def _decoded(self, raw: bytes) -> Any:
        try:
            document = Document("", "", raw, _ENVELOPE.decode(raw))
            found = self._decoder.decode(document, self._kind)
        except Refused as refused:
            self._put_aside(raw, refused.complaints[0].field, str(refused))
        except msgspec.DecodeError as error:
            self._put_aside(raw, "", str(error))
        else:
            if self.set_aside:
                self.set_aside.pop(self._kind.key(found.metadata), None)
            return found
        return None

    def _put_aside(self, raw: bytes, field: str, message: str) -> None:
        meta = _meta(raw)
        key = f"{meta.namespace}/{meta.name}" if self._kind.namespaced else meta.name
        if key not in self.set_aside:
            _LOG.warning("%s %s is set aside: %s", self._kind.name, key, message)
        self.set_aside[key] = SetAside(
            file="", object=f"{self._kind.name} {key}", field=field, message=message
        )


class _Named(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


def _meta(raw: bytes) -> _Meta:
    try:
        return msgspec.json.decode(raw, type=_Named).metadata
    except msgspec.DecodeError:
        return _Meta()

"""Lists of whole collections, page by page."""

from collections.abc import AsyncGenerator, Mapping
from typing import Final

import msgspec

from batchsched.kube.connection import Connection

PAGE: Final = 500
_DEADLINE: Final = 60.0


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str  # whatever has none is no list
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_LIST: Final = msgspec.json.Decoder(_List)


async def pages(
    connection: Connection, path: str, selector: Mapping[str, str], size: int = PAGE
) -> AsyncGenerator[tuple[list[bytes], str], None]:
    """Yield the objects of each page as the API wrote them, and the version of the whole list.

    Args:
      connection: to the API server.
      path: of the collection.
      selector: more of every query.
      size: objects of one page.

    Raises:
      ApiError: the server refused; 410: it took too long, and the list has to begin anew.
      Unreachable: there was no answer.
      msgspec.DecodeError: the answer is no list.
    """
    query = {**selector, "limit": str(size)}
    while True:
        raw = await connection.request("GET", path, query=query, deadline=_DEADLINE)
        page = _LIST.decode(raw)
        yield [bytes(item) for item in page.items or ()], page.metadata.resource_version
        if not page.metadata.continue_:
            return
        query = {**query, "continue": page.metadata.continue_}

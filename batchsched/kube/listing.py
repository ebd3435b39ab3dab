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


async def page(
    connection: Connection, path: str, query: Mapping[str, str], deadline: float = _DEADLINE
) -> _List:
    """Return one page of a list, the whole of it where no limit was asked for; raises as `pages`."""
    return _LIST.decode(await connection.request("GET", path, query=query, deadline=deadline))


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
        found = await page(connection, path, query)
        yield [bytes(item) for item in found.items or ()], found.metadata.resource_version
        if not found.metadata.continue_:
            return
        query = {**query, "continue": found.metadata.continue_}

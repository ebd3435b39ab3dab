"""Lists a collection of the API, in one answer or page by page."""

from collections.abc import AsyncGenerator, Mapping
from typing import Final

import msgspec

from batchsched.kube.connection import Connection

PAGE: Final = 500
"""The number of objects of a page, if the caller does not state one."""
_DEADLINE: Final = 60.0


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str  # an object without one is not a list
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_LIST: Final = msgspec.json.Decoder(_List)


async def list_page(
    connection: Connection, path: str, query: Mapping[str, str], deadline: float = _DEADLINE
) -> _List:
    """Return one page of a collection of the API, or the whole collection if the query has no `limit`.

    Raises as `list_pages`.
    """
    return _LIST.decode(await connection.request("GET", path, query=query, deadline=deadline))


async def list_pages(
    connection: Connection, path: str, selector: Mapping[str, str], size: int = PAGE
) -> AsyncGenerator[tuple[list[bytes], str], None]:
    """List a collection of the API; yield for each page its objects as JSON, and the list's resourceVersion.

    Args:
      connection: the connection to the API server.
      path: the path of the collection.
      selector: further parameters of each query.
      size: the number of objects of a page.

    Raises:
      ApiError: the server refused. 410: the list took too long and must be started again.
      Unreachable: there was no answer.
      msgspec.DecodeError: the answer is not a list.
    """
    query = {**selector, "limit": str(size)}
    while True:
        listed = await list_page(connection, path, query)
        yield [bytes(item) for item in listed.items or ()], listed.metadata.resource_version
        if not listed.metadata.continue_:
            return
        query = {**query, "continue": listed.metadata.continue_}

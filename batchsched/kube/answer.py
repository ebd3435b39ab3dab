"""An answer of HTTP/1.1, read as its bytes come: pure, so that it can be tried with every way to cut them up.

Source: RFC 9112, HTTP/1.1: status line (4), the length of a body (6.3), chunks (7.1).
"""

from dataclasses import dataclass
from typing import Final

_LONGEST_HEAD: Final = 64 * 1024
_NO_BODY: Final = (204, 304)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said.

    Args:
      status: 200 and so on.
      reason: in the server's words.
      retry_after: the header's value, "" where there is none.
      body: all of it.
      lasting: the connection may be used again.
    """

    status: int
    reason: str
    retry_after: str
    body: bytes
    lasting: bool


@dataclass(frozen=True, slots=True)
class _Head:
    """Status line and headers; length: of the body, None where it is told otherwise."""

    status: int
    reason: str
    retry_after: str
    lasting: bool
    length: int | None
    chunked: bool


class Reading:
    """Reads one answer."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._chunks: list[bytes] = []
        self._size: int | None = None
        """Of the chunk that is being read; 0: what follows the last one."""

    def feed(self, data: bytes) -> Answer | None:
        """Take more bytes; returns the answer once it is whole.

        Raises:
          ConnectionError: this is no answer of HTTP/1.1.
        """
        self._buffer += data
        try:
            head = self._head or self._read_head()
            return None if head is None else self._read_body(head)
        except ValueError as error:
            raise ConnectionError(f"the server does not speak HTTP/1.1: {error}") from error

    def end(self) -> Answer | None:
        """Take in that the connection has ended: it ends a body of which nobody said how long it is."""
        head = self._head
        if head is None or head.chunked or head.length is not None:
            return None
        return self._whole(head, bytes(self._buffer), lasting=False)

    @property
    def begun(self) -> bool:
        """Whether anything of the answer has come."""
        return self._head is not None or bool(self._buffer)

    def _read_head(self) -> _Head | None:
        buffer = self._buffer
        while self._head is None:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(buffer) > _LONGEST_HEAD:
                    raise ValueError("its headers do not end")
                return None
            head = _head(bytes(buffer[:end]))
            del buffer[: end + 4]
            if head.status >= 200:  # others only announce it
                self._head = head
        return self._head

    def _read_body(self, head: _Head) -> Answer | None:
        if head.length is not None:
            if len(self._buffer) < head.length:
                return None
            body = bytes(self._buffer[: head.length])
            return self._whole(head, body, lasting=len(self._buffer) == head.length)
        return self._read_chunks(head) if head.chunked else None

    def _read_chunks(self, head: _Head) -> Answer | None:
        buffer, at = self._buffer, 0
        while True:
            if self._size:
                end = at + self._size
                if len(buffer) < end + 2:
                    break
                if buffer[end : end + 2] != b"\r\n":
                    raise ValueError("a chunk is longer than it says")
                self._chunks.append(bytes(buffer[at:end]))
                self._size, at = None, end + 2
                continue
            end = buffer.find(b"\r\n", at)
            if end < 0:
                break
            line, at = bytes(buffer[at:end]), end + 2
            if self._size is None:
                self._size = _size(line.partition(b";")[0].strip().decode("latin-1"), 16)
            elif not line:  # the end of what follows the last chunk
                return self._whole(head, b"".join(self._chunks), lasting=len(buffer) == at)
        del buffer[:at]
        return None

    @staticmethod
    def _whole(head: _Head, body: bytes, *, lasting: bool) -> Answer:
        return Answer(head.status, head.reason, head.retry_after, body, lasting and head.lasting)


def _head(raw: bytes) -> _Head:
    """Read what comes before the body.

    Raises:
      ValueError: it is something else.
    """
    first, *lines = raw.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code, _, reason = rest.partition(" ")
    if not version.startswith("HTTP/1.") or len(code) != 3:
        raise ValueError(f"it begins with {first[:40]!r}")
    status, named = int(code), {}
    for line in lines:
        name, _, value = line.partition(":")
        named[name.lower()] = value.strip()
    chunked = "chunked" in named.get("transfer-encoding", "").lower()
    length = None if chunked or "content-length" not in named else _size(named["content-length"])
    connection = named.get("connection", "").lower()
    lasting = connection != "close" if version == "HTTP/1.1" else connection == "keep-alive"
    bare = status in _NO_BODY
    return _Head(
        status, reason, named.get("retry-after", ""), lasting, 0 if bare else length, chunked and not bare
    )


def _size(text: str, base: int = 10) -> int:
    """Read a number of bytes: digits alone, of which `int` takes more."""
    if not text.isalnum():
        raise ValueError(f"{text[:40]!r} is no length")
    return int(text, base)

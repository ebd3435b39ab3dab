"""Dumps: files with all objects of a live cluster that decisions read.

Each object has only the fields that decisions read, so a dump contains no environment variables, commands, ConfigMaps
or Secrets. The file is a `List` of Kubernetes objects in JSON, one object a line, and its field `dump` states the time
and the format.
"""

import gzip
from dataclasses import dataclass, field
from typing import Final

import msgspec

from batchsched import __version__
from batchsched.api.core.metadata import format_timestamp, parse_timestamp
from batchsched.errors import InvalidInput

FORMAT: Final = "batchsched.dump/1"
DUMP_START: Final = b'{"apiVersion":"v1","kind":"List","dump":{'
"""The first bytes of every dump, after decompression."""
_GZIP_LEVEL: Final = 6


class DumpHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The field `dump` of a dump file: the format, the version of batchsched, and the time of the dump."""

    format: str
    batchsched: str
    time: str


@dataclass(frozen=True, slots=True)
class ClusterDump:
    """The content of a dump: the objects of a live cluster as JSON, with only the fields that decisions read.

    Args:
      time: when the objects were listed, seconds since 1970.
      items: the objects.
      warnings: messages for users about kinds that could not be listed.
      file: the file from which the dump was read; "" for a new one.
    """

    time: float
    items: tuple[msgspec.Raw, ...]
    warnings: tuple[str, ...] = field(default=())
    file: str = field(default="", compare=False)

    def encode(self, *, compress: bool) -> bytes:
        """Return the content of a dump file, gzipped if `compress` is true."""
        record = DumpHeader(format=FORMAT, batchsched=__version__, time=format_timestamp(self.time))
        head = DUMP_START[:-1] + msgspec.json.encode(record)
        content = head + b',"items":[\n' + b",\n".join(bytes(item) for item in self.items) + b"\n]}\n"
        return gzip.compress(content, compresslevel=_GZIP_LEVEL, mtime=0) if compress else content


class _DumpFile(msgspec.Struct, frozen=True):
    dump: DumpHeader
    items: list[msgspec.Raw]


def decode_dump(content: bytes, file: str) -> ClusterDump:
    """Parse the content of a dump file, which the caller has decompressed.

    Raises:
      InvalidInput: the content is damaged, or has another format.
    """
    try:
        dump_file = msgspec.json.decode(content, type=_DumpFile)
    except ValueError as error:  # no JSON, or not UTF-8
        raise InvalidInput(f"is a damaged dump: {error}; take the dump again", file=file) from error
    if dump_file.dump.format != FORMAT:
        raise InvalidInput(
            f"expected the format {FORMAT}, found {dump_file.dump.format!r}; "
            "use the version of batchsched that wrote the dump",
            file=file,
            field="dump.format",
        )
    return ClusterDump(parse_timestamp(dump_file.dump.time), tuple(dump_file.items), file=file)

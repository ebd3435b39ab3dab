"""Sources of manifests: files, directories and standard input, optionally gzipped."""

import gzip
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batchsched.errors import InvalidInput

SUFFIXES: Final = (".yaml", ".yml", ".json", ".jsonl", ".ndjson")
STDIN: Final = "-"
_GZIP_MAGIC: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Source:
    """A readable file."""

    name: str
    path: Path | None

    def read(self) -> bytes:
        """Return the content; gzip is recognised by content, not by name.

        Raises:
          InvalidInput: the file cannot be read, or its gzip data is broken.
        """
        try:
            data = self.path.read_bytes() if self.path else sys.stdin.buffer.read()
        except OSError as error:
            raise InvalidInput(f"cannot be read: {error.strerror}", file=self.name) from error
        if not data.startswith(_GZIP_MAGIC):
            return data
        try:
            return gzip.decompress(data)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InvalidInput(f"is a broken gzip file: {error}", file=self.name) from error


def sources(paths: Sequence[Path | str]) -> Iterator[Source]:
    """Return the files for these paths: `-` is standard input; a directory means all manifests below it."""
    for path in paths:
        if str(path) == STDIN:
            yield Source("<stdin>", None)
            continue
        place = Path(path)
        if not place.is_dir():
            yield Source(str(place), place)
            continue
        for file in sorted(place.rglob("*")):
            if file.is_file() and file.name.removesuffix(".gz").endswith(SUFFIXES):
                yield Source(str(file), file)

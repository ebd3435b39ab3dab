"""Where manifests come from: files, directories, standard input, each possibly gzipped."""

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
    """A file that can be opened."""

    name: str
    path: Path | None

    def read(self) -> bytes:
        """Return its content, unzipped where it is gzipped, whatever its name says.

        Raises:
          InvalidInput: it cannot be read, or is a broken gzip file.
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
    """List the files behind paths: `-` is standard input; a directory, all manifests below it, by name."""
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

"""Opens traces as text, plain or gzipped."""

import gzip
from pathlib import Path
from typing import Final, TextIO

_MAGIC: Final = b"\x1f\x8b"


def open_text(path: Path) -> TextIO:
    """Open a trace for reading; gzip is recognised by content. Invalid UTF-8 is replaced.

    Raises:
      OSError: the file cannot be read.
    """
    with path.open("rb") as raw:
        packed = raw.read(len(_MAGIC)) == _MAGIC
    if packed:
        return gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="")
    return path.open(encoding="utf-8", errors="replace", newline="")

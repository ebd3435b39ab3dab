"""Traces as text: plain or gzipped, as archives hand them out."""

import gzip
from pathlib import Path
from typing import Final, TextIO

_MAGIC: Final = b"\x1f\x8b"


def open_text(path: Path) -> TextIO:
    """Open a trace for reading, whatever it is called; what is no UTF-8 is replaced, and refused where it matters.

    Raises:
      OSError: the file cannot be read.
    """
    with path.open("rb") as raw:
        packed = raw.read(len(_MAGIC)) == _MAGIC
    if packed:
        return gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="")
    return path.open(encoding="utf-8", errors="replace", newline="")

"""Reads the input files of commands and recognizes their type: a dump, a recorded session, or manifests."""

import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from batchsched.config.schema import PodGrouperSettings, Profile
from batchsched.errors import InvalidInput
from batchsched.manifests.reader import STDIN, find_manifest_files
from batchsched.record.dump import DUMP_START, ClusterDump, decode_dump

if TYPE_CHECKING:
    from batchsched.record.file import SessionRecord

_START_BYTES: Final = 4096
"""The bytes of a file that are read to recognise it."""


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """The input files of a command: at most one dump or recorded session, and any number of manifests.

    Args:
      dump, session: None if no file is one.
      manifests: the other files. If there is a dump or a session, their objects are added to it.
    """

    manifests: tuple[Path, ...]
    dump: ClusterDump | None = None
    session: "SessionRecord | None" = None

    @property
    def stated_time(self) -> float | None:
        """The time of the dump or of the recorded session, in seconds since 1970; None if all files are manifests."""
        if self.session is not None:
            return self.session.now
        return None if self.dump is None else self.dump.time

    def session_time(self, now: float | None = None) -> float:
        """Return the time that a session on these files takes as the current time, in seconds since 1970.

        Args:
          now: the time that the user states. None: the time of the dump or of the recorded session, or else the
            present time in whole seconds, like timestamps of Kubernetes.
        """
        session_time = self.stated_time if now is None else now
        return float(int(time.time())) if session_time is None else session_time

    def session_seed(self, seed: int | None = None) -> int:
        """Return the seed of a session on these files.

        Args:
          seed: the seed that the user states. None: the seed of the recorded session, or else 0.
        """
        if seed is not None:
            return seed
        return 0 if self.session is None else self.session.seed


def read_cluster_files(paths: Sequence[Path]) -> ClusterFiles:
    """Read the input files of a command; recognize dumps and recorded sessions by their content.

    Raises:
      InvalidInput: a dump or a session cannot be read, or there are several of them.
      DigestMismatch: a session was modified.
    """
    # Recorded sessions need the framework, which takes long to import: `--help` must not wait for it.
    from batchsched.record.file import SESSION_START, SessionRecord, read_session_file

    manifests: list[Path] = []
    clusters: list[ClusterDump | SessionRecord] = []
    for path in paths:
        start = b"" if path.is_dir() else _start_of(path)
        if start.startswith(DUMP_START):
            (source,) = find_manifest_files([path])
            clusters.append(decode_dump(source.read(), source.name))
        elif start.startswith(SESSION_START) and str(path) != STDIN:
            clusters.append(read_session_file(path))
        else:
            manifests.append(path)
        if len(clusters) > 1:
            raise InvalidInput(
                "is a second cluster; expected one dump or recorded session, and manifests to add to it",
                file=str(path),
            )
    base = clusters[0] if clusters else None
    return ClusterFiles(
        tuple(manifests),
        dump=base if isinstance(base, ClusterDump) else None,
        session=base if isinstance(base, SessionRecord) else None,
    )


def is_dump_or_session_file(path: Path) -> bool:
    """Return whether a file is a dump or a recorded session, according to its first bytes."""
    from batchsched.record.file import SESSION_START

    return _start_of(path).startswith((DUMP_START, SESSION_START))


def _start_of(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed, without consuming standard input."""
    if str(path) == STDIN:
        peek = getattr(sys.stdin.buffer, "peek", None)
        data: bytes = peek(_START_BYTES) if peek is not None else b""
    else:
        try:
            with path.open("rb") as file:
                data = file.read(_START_BYTES)
        except OSError:  # the reader of manifests names the problem
            return b""
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(data, _START_BYTES)
    except zlib.error:
        return b""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The profile, the time and the pod grouper settings of a session that a command runs on input files.

    Args:
      profile: the profile; its scheduler name selects the pending pods.
      now: the time of the session, seconds since 1970.
      grouping: the settings of the pod grouper.
    """

    profile: Profile
    now: float
    grouping: PodGrouperSettings = field(default_factory=PodGrouperSettings)

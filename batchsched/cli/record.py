"""`batchsched record`: decide one session over manifests, and write it to a session file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchsched.cli.options import (
    Config,
    Files,
    Now,
    ProfileName,
    SessionSeed,
    check_replaces_only_dump_or_session,
)

if TYPE_CHECKING:
    from batchsched.cli.session import DecidedSession


EXAMPLES = """Example:

batchsched record examples/ --to monday.json.gz && batchsched replay monday.json.gz
"""


def record(
    files: Files,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Path of the session file.",
            dir_okay=False,
            callback=check_replaces_only_dump_or_session,
        ),
    ] = Path("session.json.gz"),
    config: Config = None,
    profile: ProfileName = None,
    seed: SessionSeed = None,
    now: Now = None,
) -> None:
    """Decide one session over manifests, and write its input and its decision to one compressed session file.

    The input is the snapshot, the profile, the time and the seed.
    """
    from batchsched.cli.session import decide_session_over_files

    session = decide_session_over_files(files, config, profile, seed, now)
    write_session(session, to)
    raise typer.Exit(session.exit_code)


def write_session(session: "DecidedSession", path: Path) -> None:
    """Write a decided session to a session file, and print the path on standard error.

    Raises:
      InvalidInput: the file cannot be written.
    """
    from batchsched.record.file import SessionRecord, write_session_file

    earlier = ", which replaces an earlier file" if path.is_file() else ""
    digest = write_session_file(
        path,
        SessionRecord(
            session.snapshot,
            session.profile,
            session.now,
            session.seed,
            session.decision,
            answers=session.answers,
        ),
    )
    print(f"recorded in {path} ({digest[:19]}…){earlier}", file=sys.stderr)

"""`batchsched replay`: decide a recorded session again, and check that the decision is the same."""

import sys
from pathlib import Path
from typing import Annotated, TextIO

import typer

from batchsched.cli import ExitCode
from batchsched.cli.options import Format, OutputFormat

_MOST_SHOWN = 50


EXAMPLES = """Example:

batchsched replay monday.json.gz
"""


def replay(
    session: Annotated[
        Path,
        typer.Argument(
            metavar="SESSION", help="A session file from `batchsched record`.", exists=True, dir_okay=False
        ),
    ],
    output: Format = OutputFormat.TABLE,
) -> None:
    """Decide a recorded session again, and check that the decision is the same, byte for byte.

    The file contains the answers of extenders and the plugins that timed out, so that a replay sends no requests.

    The exit code is 4 if the decision differs, and 1 if the file was modified. With -o json or yaml the new decision
    is printed, and the differences go to standard error.
    """
    from batchsched.cli.printing import print_data
    from batchsched.cli.session import CommandTelemetry
    from batchsched.record.file import compare_decisions, read_session_file
    from batchsched.session.session import decide

    recorded = read_session_file(session)
    stopwatch = CommandTelemetry()
    try:
        replayed = decide(
            recorded.snapshot,
            recorded.profile,
            recorded.now,
            recorded.seed,
            telemetry=stopwatch,
            outside=recorded.answers.create_replay_clients(),
        )
    finally:
        stopwatch.close()
    changes = compare_decisions(recorded.decision, replayed)
    stream = sys.stdout if output is OutputFormat.TABLE else sys.stderr
    if not changes:
        print(f"{session}: the decision repeats, byte for byte", file=stream)
    else:
        _print(str(session), [(change.place, change.recorded, change.now) for change in changes], stream)
    _warn_of_version(recorded.version)
    if recorded.decision.solver.guard:
        print(
            "warning: the wall-clock guard fired in the recorded session, so the decision may not repeat",
            file=sys.stderr,
        )
    if output is not OutputFormat.TABLE:
        print_data(replayed, output)
    raise typer.Exit(ExitCode.DIFFERS if changes else ExitCode.OK)


def _print(session: str, changes: list[tuple[str, str, str]], stream: TextIO) -> None:
    print(f"{session}: the decision differs in {len(changes)} places", file=stream)
    for place, recorded, now in changes[:_MOST_SHOWN]:
        print(place, file=stream)
        if recorded:
            print(f"  - {recorded}", file=stream)
        if now:
            print(f"  + {now}", file=stream)
    if len(changes) > _MOST_SHOWN:
        print(f"and {len(changes) - _MOST_SHOWN} more", file=stream)


def _warn_of_version(recorded: str) -> None:
    from batchsched import __version__

    if recorded != __version__:
        print(f"warning: recorded by batchsched {recorded}, replayed by {__version__}", file=sys.stderr)

"""`batchsched replay`: does a recorded session repeat?"""

import sys
from pathlib import Path
from typing import Annotated, TextIO

import typer

from batchsched.cli.exit import ExitCode
from batchsched.cli.options import Format, Output

_MOST_SHOWN = 50


EXAMPLES = """Example:

batchsched replay monday.json.gz
"""


def replay(
    session: Annotated[
        Path, typer.Argument(metavar="SESSION", help="A file that record wrote.", exists=True, dir_okay=False)
    ],
    output: Format = Output.TABLE,
) -> None:
    """Decide a recorded session again, and say whether the decision repeats, byte for byte.

    What extenders answered, and which plugins hung, stands in the file: nobody is asked again.

    Exit code 4 when it differs, 1 when the file was tampered with. With -o json or yaml the new decision is
    printed, and the differences go to standard error.
    """
    from batchsched.cli.printing import print_data
    from batchsched.cli.session import accounted
    from batchsched.cli.stopwatch import Stopwatch
    from batchsched.record.file import read
    from batchsched.record.replay import differences
    from batchsched.session.decide import decide

    recorded = read(session)
    stopwatch = Stopwatch()
    try:
        with stopwatch.stage("session"):
            again = decide(
                recorded.snapshot,
                recorded.profile,
                recorded.now,
                recorded.seed,
                telemetry=stopwatch,
                outside=recorded.answers.again(),
            )
    finally:
        stopwatch.close()
    again = accounted(again, stopwatch)
    found = differences(recorded.decision, again)
    stream = sys.stdout if output is Output.TABLE else sys.stderr
    if not found:
        print(f"{session}: the decision repeats, byte for byte", file=stream)
    else:
        _print(str(session), [(one.place, one.recorded, one.now) for one in found], stream)
    _warn_of_version(recorded.version)
    if recorded.decision.solver.guard:
        print("warning: the wall-clock guard fired when this was decided: it may not repeat", file=sys.stderr)
    if output is not Output.TABLE:
        print_data(again, output)
    raise typer.Exit(ExitCode.DIFFERS if found else ExitCode.OK)


def _print(session: str, found: list[tuple[str, str, str]], stream: TextIO) -> None:
    print(f"{session}: the decision differs in {len(found)} places", file=stream)
    for place, recorded, now in found[:_MOST_SHOWN]:
        print(place, file=stream)
        if recorded:
            print(f"  - {recorded}", file=stream)
        if now:
            print(f"  + {now}", file=stream)
    if len(found) > _MOST_SHOWN:
        print(f"and {len(found) - _MOST_SHOWN} more", file=stream)


def _warn_of_version(recorded: str) -> None:
    from batchsched import __version__

    if recorded != __version__:
        print(f"warning: recorded by batchsched {recorded}, this is {__version__}", file=sys.stderr)

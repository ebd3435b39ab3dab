"""Floor 8: the commands, one file each.

A command reads its arguments, calls one thing below and prints what came back: data on standard output,
progress and warnings on standard error. ``main`` turns what went wrong into a sentence and an exit code;
it is the last of the three places with a broad catch.

May import: every floor.
"""

import os
import sys
import traceback
from typing import Final

from batchsched.cli.exit import ExitCode
from batchsched.errors import BatchschedError, SolverFault

TRACEBACK: Final = "BATCHSCHED_TRACEBACK"
"""Set to 1, it shows where a failure came from."""


def main() -> None:
    """Run the command that the arguments name, and leave with its exit code."""
    code = exit_code(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _unread()
    sys.exit(code)


def exit_code(arguments: list[str]) -> int:
    """Run a command and return its exit code; whatever goes wrong becomes a sentence on standard error."""
    from batchsched.cli.app import app

    try:
        app(args=arguments, prog_name="batchsched")
    except SystemExit as leave:
        # The command-line library leaves with 1, the code of unusable input, where the reader of a pipe has gone.
        return _unread() if isinstance(leave.__context__, BrokenPipeError) else _code(leave)
    except BrokenPipeError:
        return _unread()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BatchschedError as error:
        _complain(str(error))
        return ExitCode.DEFECT if isinstance(error, SolverFault) else ExitCode.UNUSABLE
    except OSError as error:
        # A full disk, a file that may not be read: nothing that batchsched could mend.
        _complain(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
        return ExitCode.UNUSABLE
    except Exception as error:
        _complain(f"this is a defect of batchsched: {type(error).__name__}: {error}")
        return ExitCode.DEFECT
    return ExitCode.OK


def _unread() -> int:
    """Leave quietly: the reader has seen enough (`| head`). Python would complain again when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.OK


def _code(leave: SystemExit) -> int:
    return leave.code if isinstance(leave.code, int) else ExitCode.OK


def _complain(sentence: str) -> None:
    if os.environ.get(TRACEBACK) == "1":
        traceback.print_exc()
    print(f"error: {sentence}", file=sys.stderr)

"""Floor 12: the commands, one file each.

A command reads its arguments, calls one function of a lower floor and prints the result: data on standard output,
progress and warnings on standard error. ``main`` turns a failure into an error message and an exit code.
It is the last of the three places with a broad catch.

May import: every floor.
"""

import os
import sys
import traceback
from enum import IntEnum
from typing import Final

from batchsched.errors import BatchschedError, SolverFault

TRACEBACK: Final = "BATCHSCHED_TRACEBACK"
"""Environment variable. If it is set to 1, an error message includes the Python traceback."""


class ExitCode(IntEnum):
    """The exit code of a command. docs/reference/exit-codes.md describes the cases."""

    OK = 0
    UNUSABLE = 1
    USAGE = 2
    SET_ASIDE = 3
    DIFFERS = 4
    DEFECT = 70
    INTERRUPTED = 130


def main() -> None:
    """Run the command that the command line names, and exit the process with its exit code."""
    code = run_command(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _discard_output()
    sys.exit(code)


def run_command(arguments: list[str]) -> int:
    """Run a command and return its exit code. A failure is printed on standard error as one sentence."""
    from batchsched.cli.app import app

    try:
        app(args=arguments, prog_name="batchsched")
    except SystemExit as leave:
        # If the reader of a pipe has closed it, typer exits with 1, which is the code for unusable input.
        return _discard_output() if isinstance(leave.__context__, BrokenPipeError) else _code(leave)
    except BrokenPipeError:
        return _discard_output()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BatchschedError as error:
        _complain(str(error))
        return ExitCode.DEFECT if isinstance(error, SolverFault) else ExitCode.UNUSABLE
    except OSError as error:
        # A full disk or missing file permissions: a problem of the environment, not a defect of batchsched.
        _complain(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
        return ExitCode.UNUSABLE
    except Exception as error:
        _complain(f"this is a defect of batchsched: {type(error).__name__}: {error}")
        return ExitCode.DEFECT
    return ExitCode.OK


def _discard_output() -> int:
    """Discard further output after the reader closed the pipe, as `| head` does.

    Without the redirection, Python reports a second error when it flushes standard output at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.OK


def _code(leave: SystemExit) -> int:
    return leave.code if isinstance(leave.code, int) else ExitCode.OK


def _complain(sentence: str) -> None:
    if os.environ.get(TRACEBACK) == "1":
        traceback.print_exc()
    print(f"error: {sentence}", file=sys.stderr)

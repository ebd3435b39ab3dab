"""The commands, one file each (layer 13).

A command reads its arguments, calls one function of a lower layer and prints the result: data on standard output,
progress and warnings on standard error. ``main`` turns a failure into an error message and an exit code.
It is the last of the three places with a broad catch.

May import: every layer.
"""

import gc
import os
import sys
import traceback
from enum import IntEnum
from pathlib import PurePath
from typing import Final

from batchsched.errors import (
    ApiError,
    BatchschedError,
    PluginError,
    PolicyError,
    SolverFault,
    Unreachable,
)

TRACEBACK: Final = "BATCHSCHED_TRACEBACK"
"""Environment variable. If it is set to 1, an error message includes the Python traceback."""


class ExitCode(IntEnum):
    """The exit code of a command: 0 after success, and a different code for each kind of failure.

    The page docs/reference/exit-codes.md describes the cases.
    """

    OK = 0
    UNUSABLE = 1
    USAGE = 2
    SET_ASIDE = 3
    DIFFERS = 4
    CLUSTER = 5
    EXTERNAL_CODE = 6
    DEFECT = 70
    INTERRUPTED = 130


COLLECT_AFTER_OBJECTS: Final = 50_000
"""Number of new objects after which the garbage collector runs; by default 700.

Imports and sessions create objects that stay, and the collector would scan them again and again.
"""
_KUBECTL_PLUGIN: Final = "kubectl-"
"""Prefix of the names by which kubectl finds its plugins."""


def main() -> None:
    """Run the command that the command line names, and end the process with the exit code of the command."""
    gc.set_threshold(COLLECT_AFTER_OBJECTS, *gc.get_threshold()[1:])  # before the imports below
    from batchsched.cli.terminal import make_output_replace_unencodable_characters

    make_output_replace_unencodable_characters()
    is_plugin = PurePath(sys.argv[0]).name.startswith(_KUBECTL_PLUGIN)
    code = run_command(sys.argv[1:], "kubectl batchsched" if is_plugin else "batchsched")
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _discard_output()
    sys.exit(code)


def complete_for_kubectl() -> None:
    """Print the completions of a `kubectl batchsched` command line in the format that kubectl reads.

    kubectl runs this function as the script `kubectl_complete-batchsched`.
    """
    import typer

    from batchsched.cli.app import app
    from batchsched.cli.completion import print_kubectl_completions

    print_kubectl_completions(typer.main.get_command(app), sys.argv[1:])


def run_command(arguments: list[str], program: str = "batchsched") -> int:
    """Run a command and return its exit code; print a failure on standard error as one sentence.

    Args:
      arguments: the command line without the name of the program.
      program: the name of the program in help texts.
    """
    try:
        return _exit_code(_call(arguments, program))
    except SystemExit as leave:
        # If the reader of a pipe has closed it, typer exits with 1, which is the code for unusable input.
        return _discard_output() if isinstance(leave.__context__, BrokenPipeError) else _exit_code(leave.code)
    except BrokenPipeError:
        return _discard_output()
    except KeyboardInterrupt:
        return _exit_code(ExitCode.INTERRUPTED)
    except BatchschedError as error:
        _complain(str(error))
        return _error_code(error)
    except OSError as error:
        # A full disk or missing file permissions: a problem of the environment, not a defect of batchsched.
        _complain(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
        return ExitCode.UNUSABLE
    except Exception as error:
        return _other_code(error, program)


def _call(arguments: list[str], program: str) -> object:
    """Run a command and return its result: an exit code, or a value that means success."""
    from batchsched.cli.app import app
    from batchsched.cli.completion import COMPLETE_VARIABLE
    from batchsched.cli.terminal import (
        colors_enabled,
        extract_color_option,
        set_color_choice,
        set_command_line,
    )

    set_command_line(program, arguments)
    arguments, color = extract_color_option(arguments)
    set_color_choice(color)
    return app(
        args=arguments,
        prog_name=program,
        complete_var=COMPLETE_VARIABLE,
        standalone_mode=False,
        color=colors_enabled(),
    )


def _exit_code(result: object) -> int:
    """Return the exit code for the result of a command; print a line if the command was interrupted."""
    if result == ExitCode.INTERRUPTED:
        print("interrupted", file=sys.stderr)
    return result if isinstance(result, int) else ExitCode.OK


def _error_code(error: BatchschedError) -> ExitCode:
    if isinstance(error, SolverFault):
        return ExitCode.DEFECT
    if isinstance(error, PluginError | PolicyError):
        return ExitCode.EXTERNAL_CODE
    return ExitCode.CLUSTER if isinstance(error, ApiError | Unreachable) else ExitCode.UNUSABLE


def _other_code(error: Exception, program: str) -> ExitCode:
    """Print an error that batchsched did not raise on purpose, and return its exit code.

    The cause is the command line, a policy or plugin of another package, or a defect of batchsched.
    """
    from batchsched.cli.external_code import external_failure_message
    from batchsched.cli.usage import usage_error_message

    message = usage_error_message(error, program)
    if message is not None:
        _complain(message)
        return ExitCode.USAGE
    message = external_failure_message(error)
    if message is not None:
        _complain(message)
        return ExitCode.EXTERNAL_CODE
    _complain(f"this is a defect of batchsched: {type(error).__name__}: {error}")
    return ExitCode.DEFECT


def _discard_output() -> int:
    """Discard further output after the reader closed the pipe, as `| head` does.

    Without the redirection, Python reports a second error when it flushes standard output at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.OK


def _complain(sentence: str) -> None:
    if os.environ.get(TRACEBACK) == "1":
        traceback.print_exc()
    print(f"error: {sentence}", file=sys.stderr)

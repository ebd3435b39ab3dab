"""`batchsched completion`: print scripts for command completion in bash, zsh and fish, and for kubectl."""

import os
import shlex
from contextlib import redirect_stdout, suppress
from enum import StrEnum
from io import StringIO
from typing import Annotated, Any, Final

import typer

COMPLETE_VARIABLE: Final = "_BATCHSCHED_COMPLETE"
"""Environment variable by which a completion script asks for completions."""
EXAMPLES = """Examples:

source <(batchsched completion bash)

source <(batchsched completion zsh)

batchsched completion fish > ~/.config/fish/completions/batchsched.fish
"""


class ShellName(StrEnum):
    """A shell for which `batchsched completion` prints a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        ShellName, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)
    ],
    context: typer.Context,
) -> None:
    """Print the script with which a shell completes commands, options and their values.

    For `kubectl batchsched`, kubectl completes by itself if `kubectl_complete-batchsched` is on the PATH.
    """
    _request_completion(context.find_root().command, f"source_{shell.value}")


def _request_completion(root: Any, instruction: str) -> None:
    """Print the answer to an instruction of a completion script, and exit."""
    from batchsched.cli.help import PROGRAM

    os.environ[COMPLETE_VARIABLE] = instruction
    root.main(args=[], prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE)


def print_kubectl_completions(root: Any, words: list[str]) -> None:
    """Print the completions of a command line, one per line, as kubectl reads them from its plugins.

    The last line is `:0`, the default directive for completions in kubectl.

    Args:
      root: the command of the whole program.
      words: the words after `kubectl batchsched`; the last one is to be completed, and may be empty.
    """
    os.environ["COMP_WORDS"] = shlex.join(["batchsched", *words])
    os.environ["COMP_CWORD"] = str(len(words))
    answer = StringIO()
    # A completion request ends the process; kubectl still expects its directive.
    with redirect_stdout(answer), suppress(SystemExit):
        _request_completion(root, "complete_bash")
    for line in (*answer.getvalue().split(), ":0"):
        print(line)

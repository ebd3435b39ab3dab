"""Error messages for wrong usage of the command line, such as an unknown option."""

import difflib
import re
from typing import Any, Final

import typer

_USAGE_ERROR: Final = typer.BadParameter.__bases__[0]
"""The base class of all errors of the command line. Not every version of typer exports it."""
_REWORDED: Final = (
    (r"^Value error, ", ""),
    (r"Input should be greater than or equal to (\S+)", r"expected \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"expected \1 or less"),
    (r"Input should be a valid integer.*", "expected a whole number"),
    (r"Input should be a valid number.*", "expected a number"),
    (r"^[Ff]ile '(.*)' does not exist", r"there is no file '\1'"),
    (r"^[Dd]ir(?:ectory)? '(.*)' does not exist", r"there is no directory '\1'"),
    (r"^[Pp]ath '(.*)' does not exist", r"there is no file '\1'"),
    (r"^[Ff]ile '(.*)' is a directory", r"'\1' is a directory; expected a file"),
    (r"^[Dd]ir(?:ectory)? '(.*)' is a file", r"'\1' is a file; expected a directory"),
)
"""Sentences of the validator of typer, and the wording of batchsched for them."""


def usage_error_message(error: Exception, program: str) -> str | None:
    """Return the message for a mistake on the command line, or None for any other error.

    The message names the option or argument, the problem, and the command that prints the correct usage.
    """
    if not isinstance(error, _USAGE_ERROR):
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else program
    return f"{_problem(error)}\nRun '{command} --help' for usage."


def _problem(error: Any) -> str:
    """Return the sentence on what is wrong: the parameter and its problem, or the message of typer."""
    if type(error) is not typer.BadParameter:
        return _suggestion(error) or _start_lower(str(error.format_message()).rstrip("."))
    hint = error.param_hint or ("" if error.param is None else _parameter_name(error.param))
    message = str(error.message).rstrip(".")
    for pattern, wording in _REWORDED:
        message = re.sub(pattern, wording, message)
    return f"{hint}: {message}" if hint else message


def _suggestion(error: Any) -> str:
    """Return the message for an unknown option, with the most similar known option; "" for other errors."""
    name, possibilities = getattr(error, "option_name", ""), getattr(error, "possibilities", ())
    if not name or possibilities == ():
        return ""
    close = difflib.get_close_matches(name, possibilities or (), n=1)
    return f"there is no option {name}" + (f"; did you mean {close[0]}?" if close else "")


def _start_lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _parameter_name(parameter: Any) -> str:
    from batchsched.cli.help import value_placeholder

    if parameter.param_type_name == "argument":
        return value_placeholder(parameter)
    return str(max(parameter.opts, key=len))

"""Output on a terminal: whether it has colors, and what replaces characters that the encoding lacks.

The environment variable NO_COLOR turns colors off if `--color` does not state otherwise. A terminal with
another encoding than UTF-8, such as ISO 8859-1, gets similar ASCII characters instead of an error.
"""

import codecs
import os
import shlex
import sys
import unicodedata
from collections.abc import Iterable
from contextvars import ContextVar
from enum import StrEnum
from typing import Final

import typer

COLOR_OPTION: Final = "--color"
_ERROR_HANDLER: Final = "batchsched-ascii"
_ASCII: Final = {
    "×": "x", "·": "*", "±": "+/-", "µ": "u", "≥": ">=", "≤": "<=", "−": "-", "–": "-", "—": "-", "…": "...",
    "→": "->", "▶": ">", "│": "|", "├": "+", "└": "`", "─": "-", "█": "#", "▓": "=", "░": ".",
    "“": '"', "”": '"', "‘": "'", "’": "'",
}  # fmt: skip
"""ASCII text for the characters that batchsched prints. Letters with accents lose their accents; others become `?`."""


_COMMAND_LINE: ContextVar[str] = ContextVar("command_line", default="")


def set_command_line(program: str, arguments: Iterable[str]) -> None:
    """Store the command line, because reports state the command that produced them."""
    _COMMAND_LINE.set(shlex.join([*program.split(), *arguments]))


def command_line_text() -> str:
    """Return the command line of the running command, quoted so that it can be pasted into a shell."""
    return _COMMAND_LINE.get()


class ColorChoice(StrEnum):
    """When to color the output: always, never, or only if standard output is a terminal."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


_color: ContextVar[ColorChoice] = ContextVar("color", default=ColorChoice.AUTO)


def extract_color_option(arguments: Iterable[str]) -> tuple[list[str], ColorChoice]:
    """Remove `--color WHEN` from the arguments of a command line, wherever it is, and return its value.

    Arguments after `--` are not options.

    Raises:
      BadParameter: the value is missing or unknown.
    """
    kept: list[str] = []
    when, remaining = ColorChoice.AUTO, iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        if argument == "--":
            kept += [argument, *remaining]
        elif name == COLOR_OPTION:
            when = _parse_color(value if equals else next(remaining, ""))
        else:
            kept.append(argument)
    return kept, when


def _parse_color(value: str) -> ColorChoice:
    if value not in list(ColorChoice):
        raise typer.BadParameter(
            f"expected one of {', '.join(ColorChoice)}; found {value!r}", param_hint=COLOR_OPTION
        )
    return ColorChoice(value)


def set_color_choice(when: ColorChoice) -> None:
    """Set when to color the output of this command: always, never, or only on a terminal."""
    _color.set(when)


def colors_enabled() -> bool:
    """Return whether text on standard output may be colored."""
    when = _color.get()
    if when is not ColorChoice.AUTO:
        return when is ColorChoice.ALWAYS
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def stdout_is_utf8() -> bool:
    """Return whether standard output uses UTF-8, so that it can represent every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig")


def make_output_replace_unencodable_characters() -> None:
    """Set up standard output and standard error to replace characters that their encoding lacks.

    Similar ASCII characters replace them.
    """
    codecs.register_error(_ERROR_HANDLER, _to_ascii)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=_ERROR_HANDLER)


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
    """Return ASCII text for the characters that a codec cannot encode, and the position after them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = "".join(_ascii_text(character) for character in error.object[error.start : error.end])
    return text, error.end


def _ascii_text(character: str) -> str:
    if character in _ASCII:
        return _ASCII[character]
    plain = "".join(part for part in unicodedata.normalize("NFKD", character) if part.isascii())
    return plain or "?"

"""Plain help texts of commands: an entry for each argument and option, and examples that can be copied.

typer prints the Python types of parameters. This help prints the name of a value instead (`--seed NUMBER`).
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

PROGRAM: Final = "batchsched"
_WIDTH: Final = 110
CONTEXT_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH}


def value_placeholder(parameter: Any) -> str:
    """Return the placeholder of an option or argument in help texts, such as `NUMBER`; "" if an option has no value."""
    if parameter.param_type_name == "option" and (parameter.is_flag or parameter.count):
        return ""
    if parameter.metavar:
        return str(parameter.metavar)
    return "NUMBER" if getattr(parameter, "min", None) is not None else str(parameter.name).upper()


def _write_parameters(parameters: list[Any], formatter: Any) -> None:
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        rows = [
            _help_row(parameter)
            for parameter in parameters
            if parameter.param_type_name == kind and not parameter.hidden
        ]
        if rows:
            with formatter.section(typer.style(title, bold=True)):
                formatter.write_dl(rows)


def _help_row(parameter: Any) -> tuple[str, str]:
    if parameter.param_type_name == "argument":
        return value_placeholder(parameter), parameter.help or ""
    names = ", ".join(sorted(parameter.opts, key=len))
    names += "".join(f", {name}" for name in parameter.secondary_opts)
    return f"{names} {value_placeholder(parameter)}".rstrip(), " ".join(
        part for part in (" ".join((parameter.help or "").split()), *_facts(parameter)) if part
    )


def _facts(parameter: Any) -> Iterator[str]:
    """Yield the notes on an option in its help text: its range, its default, and `[required]`."""
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    if low is not None and not parameter.count:
        yield f"[{low} to {high}]" if high is not None else f"[{low} or more]"
    default = parameter.default
    if parameter.required:
        yield "[required]"
    elif parameter.is_flag:
        if parameter.secondary_opts and default is not None:
            yield f"[default: {(parameter.opts if default else parameter.secondary_opts)[0]}]"
    elif parameter.show_default and not parameter.count and default not in (None, "", [], ()):
        yield f"[default: {default.value if isinstance(default, Enum) else default}]"


def _usage_arguments(parameters: list[Any]) -> Iterator[str]:
    for parameter in parameters:
        if parameter.param_type_name == "argument" and not parameter.hidden:
            name = value_placeholder(parameter)
            yield name if parameter.required or name.startswith("[") else f"[{name}]"


def _write_epilog(epilog: str | None, formatter: Any, program: str) -> None:
    """Write the text below the options: examples with one command per line, any other text as a paragraph."""
    if not epilog:
        return
    formatter.write_paragraph()
    title, *lines = [line for line in epilog.splitlines() if line]
    if not title.startswith("Example"):
        formatter.write_text(epilog)
        return
    formatter.write(f"{typer.style(title.rstrip(':'), bold=True)}:\n")
    for line in lines:
        formatter.write(f"  {_as_typed(line, program)}\n")


def _as_typed(line: str, program: str) -> str:
    """Return an example with the name by which the program was started, such as `kubectl batchsched`."""
    return re.sub(rf"(?<![\w./-]){PROGRAM}(?= [a-z])", program, line)


class PlainHelpCommand(TyperCommand):
    """A typer command that prints its help as plain text."""

    @override
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *_usage_arguments(self.get_params(ctx))]

    @override
    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self.get_params(ctx), formatter)

    @override
    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_epilog(self.epilog, formatter, ctx.find_root().info_name)


class PlainHelpGroup(TyperGroup):
    """A typer command group that prints its help as plain text, even if it is called without a command."""

    @override
    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows = [
            (name, command.get_short_help_str(_WIDTH))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None and not command.hidden
        ]
        with formatter.section(typer.style("Commands", bold=True)):
            formatter.write_dl(rows)
        _write_parameters(self.get_params(ctx), formatter)

    @override
    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_epilog(self.epilog, formatter, ctx.find_root().info_name)

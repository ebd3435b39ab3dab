"""The Typer app of the program `batchsched`, in which all commands are registered.

A new command is a function in its own file and one line in this file.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from batchsched.cli import (
    completion,
    convert,
    decide,
    demo,
    dump,
    explain,
    get,
    install,
    lab,
    queues,
    record,
    replay,
    run,
    schema,
    simulate,
    what_if,
)
from batchsched.cli.help import CONTEXT_SETTINGS, PlainHelpCommand, PlainHelpGroup
from batchsched.cli.terminal import COLOR_OPTION, ColorChoice


def help_text(command: Callable[..., object]) -> str:
    """Return the help text of a command: its docstring, with each paragraph on one line for the terminal to wrap."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")


def _print_group_help(context: typer.Context) -> None:
    """Print the help text of a group that is called without a command, as kubectl does."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), color=context.color)


def _new_group() -> typer.Typer:
    return typer.Typer(
        cls=PlainHelpGroup,
        invoke_without_command=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT_SETTINGS,
    )


def _group(commands: Iterable[tuple[Callable[..., None], str]]) -> typer.Typer:
    """Return a command group with the given commands, each with the examples in its help text."""
    group = _new_group()
    group.callback()(_print_group_help)
    for command, examples in commands:
        _add(group, command, examples)
    return group


def _add(
    group: typer.Typer, command: Callable[..., None], examples: str = "", name: str | None = None
) -> None:
    group.command(
        name=name,
        cls=PlainHelpCommand,
        help=help_text(command),
        epilog=examples or None,
        context_settings=CONTEXT_SETTINGS,
    )(command)


def version() -> None:
    """Print the version of batchsched."""
    from batchsched import __version__

    sys.stdout.write(f"batchsched {__version__}\n")


def _print_version(requested: bool) -> None:
    if requested:
        version()
        raise typer.Exit


def _root(
    context: typer.Context,
    _color: Annotated[
        ColorChoice,
        typer.Option(
            COLOR_OPTION,
            metavar="WHEN",
            help="auto, always or never. May also follow the command. auto: on a terminal, if NO_COLOR is not set.",
        ),
    ] = ColorChoice.AUTO,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    _print_group_help(context)


app = _new_group()
app.callback(
    help="A gang and batch scheduler for Kubernetes: whole PodGroups, solved jointly, explained.",
    epilog="Exit codes: 0 all went well (gangs may be refused), 1 the input could not be used, 2 wrong usage, "
    "3 parts of the input were set aside, 4 a replay differs, 5 the cluster cannot be reached or refuses a request, "
    "6 a policy or plugin of another package failed, 70 a defect of batchsched, 130 interrupted.",
)(_root)
_add(app, decide.decide, decide.EXAMPLES)
_add(app, explain.explain, explain.EXAMPLES)
_add(app, record.record, record.EXAMPLES)
_add(app, replay.replay, replay.EXAMPLES)
_add(app, schema.schema, schema.EXAMPLES)
app.add_typer(_group(simulate.COMMANDS), name="simulate", help=simulate.HELP)
app.add_typer(_group(lab.COMMANDS), name="lab", help=lab.HELP)
_add(app, what_if.what_if, what_if.EXAMPLES, name="what-if")
_add(app, dump.dump, dump.EXAMPLES)
_add(app, run.run, run.EXAMPLES)
_add(app, get.get, get.EXAMPLES)
_add(app, queues.queues, queues.EXAMPLES)
_add(app, convert.convert, convert.EXAMPLES)
_add(app, install.install, install.EXAMPLES)
_add(app, demo.demo, demo.EXAMPLES)
_add(app, completion.completion, completion.EXAMPLES)
_add(app, version)

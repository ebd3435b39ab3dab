"""The commands as one program. A new command is a function in its own file and one line in this file."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable

import typer

from batchsched.cli import (
    decide,
    demo,
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


def help_text(command: Callable[..., object]) -> str:
    """Return the help text of a command: its docstring, with each paragraph on one line for the terminal to wrap."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")


def _group(commands: Iterable[tuple[Callable[..., None], str]]) -> typer.Typer:
    """Return a command group of these commands and their examples."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    for command, examples in commands:
        group.command(help=help_text(command), epilog=examples)(command)
    return group


def version() -> None:
    """Print the version of batchsched."""
    from batchsched import __version__

    sys.stdout.write(f"batchsched {__version__}\n")


app = typer.Typer(
    name="batchsched",
    help="A gang and batch scheduler for Kubernetes: whole PodGroups, solved jointly, explained.",
    epilog="Exit codes: 0 all went well (gangs may be refused), 1 the input could not be used, 2 wrong usage, "
    "3 parts of the input were set aside, 4 a replay differs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(help=help_text(decide.decide), epilog=decide.EXAMPLES)(decide.decide)
app.command(help=help_text(explain.explain), epilog=explain.EXAMPLES)(explain.explain)
app.command(help=help_text(record.record), epilog=record.EXAMPLES)(record.record)
app.command(help=help_text(replay.replay), epilog=replay.EXAMPLES)(replay.replay)
app.command(help=help_text(schema.schema), epilog=schema.EXAMPLES)(schema.schema)
app.add_typer(_group(simulate.COMMANDS), name="simulate", help=simulate.HELP)
app.add_typer(_group(lab.COMMANDS), name="lab", help=lab.HELP)
app.command(name="what-if", help=help_text(what_if.what_if), epilog=what_if.EXAMPLES)(what_if.what_if)
app.command(help=help_text(run.run), epilog=run.EXAMPLES)(run.run)
app.command(help=help_text(get.get), epilog=get.EXAMPLES)(get.get)
app.command(help=help_text(queues.queues), epilog=queues.EXAMPLES)(queues.queues)
app.command(help=help_text(install.install), epilog=install.EXAMPLES)(install.install)
app.command(help=help_text(demo.demo), epilog=demo.EXAMPLES)(demo.demo)
app.command(help=help_text(version))(version)

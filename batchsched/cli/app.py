"""The commands as one program. A new command is a function in a file of its own and one line here."""

import inspect
import re
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
    version,
    what_if,
)


def told(command: Callable[..., object]) -> str:
    """Return a command's docstring with each paragraph on one line: the terminal breaks the lines."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")


def _group(commands: Iterable[tuple[Callable[..., None], str]]) -> typer.Typer:
    """Put commands with their examples under one name."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    for command, examples in commands:
        group.command(help=told(command), epilog=examples)(command)
    return group


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
app.command(help=told(decide.decide), epilog=decide.EXAMPLES)(decide.decide)
app.command(help=told(explain.explain), epilog=explain.EXAMPLES)(explain.explain)
app.command(help=told(record.record), epilog=record.EXAMPLES)(record.record)
app.command(help=told(replay.replay), epilog=replay.EXAMPLES)(replay.replay)
app.command(help=told(schema.schema), epilog=schema.EXAMPLES)(schema.schema)
app.add_typer(_group(simulate.COMMANDS), name="simulate", help=simulate.HELP)
app.add_typer(_group(lab.COMMANDS), name="lab", help=lab.HELP)
app.command(name="what-if", help=told(what_if.what_if), epilog=what_if.EXAMPLES)(what_if.what_if)
app.command(help=told(run.run), epilog=run.EXAMPLES)(run.run)
app.command(help=told(get.get), epilog=get.EXAMPLES)(get.get)
app.command(help=told(queues.queues), epilog=queues.EXAMPLES)(queues.queues)
app.command(help=told(install.install), epilog=install.EXAMPLES)(install.install)
app.command(help=told(demo.demo), epilog=demo.EXAMPLES)(demo.demo)
app.command(help=told(version.version))(version.version)

"""The reference page of the commands, and the JSON Schemas."""

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Final, get_args, get_type_hints

from typer import Typer
from typer.models import ArgumentInfo, OptionInfo

from batchsched.cli.app import app, help_text
from batchsched.cli.schema import SchemaKind, schema_text

_INTRODUCTION: Final = """# Commands

`batchsched --help` lists the commands, and `batchsched COMMAND --help` prints what this page says. Data is written to
standard output. Progress, warnings and objects that were set aside are written to standard error.
[Exit codes](exit-codes.md) are the same for every command. Files may be YAML with several documents, JSON, JSON Lines, or
lists as `kubectl get -o json` prints them, each optionally compressed with gzip. A directory means all manifests below
it, and `-` means standard input. Commands never change the files that they read.

## The program

| | |
|---|---|
| `batchsched --version`, `-V` | Prints the version. |
| `python -m batchsched` | Runs the program without its script. |
| `--color auto\\|always\\|never` | Colours, before or after the command. With `auto`, a terminal gets colours if `NO_COLOR` is not set. |
| `kubectl batchsched` | Runs the program as a plugin of kubectl. The package installs the script `kubectl-batchsched`. kubectl takes options only after the name: `kubectl batchsched get pg --context prod -n team-a`. |

`source <(batchsched completion bash)` completes commands, options and their values in bash; zsh and fish work alike
(`batchsched completion --help`). kubectl completes `kubectl batchsched` if the script `kubectl_complete-batchsched`,
which the package installs, is on the PATH. Terminals that do not use UTF-8 get similar ASCII characters.
"""


def commands() -> str:
    """Return the page of the commands as Markdown."""
    return "\n".join([_INTRODUCTION, *_commands(app, "batchsched")])


def _commands(group: Typer, prefix: str) -> Iterator[str]:
    for command in group.registered_commands:
        if command.callback is not None:
            name = command.name or command.callback.__name__
            yield from _command(f"{prefix} {name}", command.callback, command.epilog or "")
    for inner in group.registered_groups:
        if inner.typer_instance is not None and isinstance(inner.name, str):
            yield from _commands(inner.typer_instance, f"{prefix} {inner.name}")


def _command(name: str, command: Callable[..., Any], epilog: str) -> Iterator[str]:
    stated = list(_stated(command))
    arguments = [
        info.metavar or field.upper() for field, _, info, _ in stated if isinstance(info, ArgumentInfo)
    ]
    options = ["[OPTIONS]"] if len(stated) > len(arguments) else []
    yield from (
        f"## `{name}`",
        "",
        "```",
        " ".join((name, *options, *arguments)),
        "```",
        "",
        help_text(command),
        "",
    )
    if stated:
        yield from ("| | | default |", "|---|---|---|")
        for field, kind, info, default in stated:
            yield f"| {_names(field, kind, info)} | {' '.join((info.help or '').split())} | {_default(default)} |"
        yield ""
    lines = [line for line in inspect.cleandoc(epilog).splitlines()[1:] if line]
    if lines:
        yield from ("```console", *(f"$ {line}" for line in lines), "```", "")


def _stated(command: Callable[..., Any]) -> Iterator[tuple[str, Any, ArgumentInfo | OptionInfo, Any]]:
    """Yield name, type, typer's description and default of each parameter."""
    hints = get_type_hints(command, include_extras=True)
    for field, parameter in inspect.signature(command).parameters.items():
        kind, *described = get_args(hints[field]) or (None,)
        if not described:  # the context of typer
            continue
        yield field, kind, described[0], parameter.default


def _names(field: str, kind: Any, info: ArgumentInfo | OptionInfo) -> str:
    if isinstance(info, ArgumentInfo):
        return f"`{info.metavar or field.upper()}`"
    # Inside Annotated, typer keeps the first name in the place of a default.
    stated = [one for one in (info.default, *(info.param_decls or ())) if isinstance(one, str)]
    names = ", ".join(f"`{name}`" for name in stated if name.startswith("-"))
    names = names or f"`--{field.replace('_', '-')}`"  # as typer derives it
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"{names} {' or '.join(str(one.value) for one in kind)}"
    return f"{names} `{info.metavar}`" if info.metavar else names


def _default(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "required"
    plain = default.value if isinstance(default, Enum) else default
    return "" if plain is None else f"`{plain}`"


def snapshot_schema() -> str:
    """Return the schema of what `decide` reads."""
    return schema_text(SchemaKind.SNAPSHOT)


def decision_schema() -> str:
    """Return the schema of what `decide` prints."""
    return schema_text(SchemaKind.DECISION)


def config_schema() -> str:
    """Return the schema of the configuration file."""
    return schema_text(SchemaKind.CONFIG)


def pod_group_schema() -> str:
    """Return the schema of a PodGroup."""
    return schema_text(SchemaKind.PODGROUP)


def queue_schema() -> str:
    """Return the schema of a Queue."""
    return schema_text(SchemaKind.QUEUE)


def topology_schema() -> str:
    """Return the schema of a Topology."""
    return schema_text(SchemaKind.TOPOLOGY)

"""Arguments that several commands share."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class OutputFormat(StrEnum):
    """The output format of a command: a table, JSON or YAML."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class LogFormat(StrEnum):
    """The format of the log: plain lines, or one JSON object per line."""

    TEXT = "text"
    JSON = "json"


def parse_time(text: str) -> float:
    """Parse an RFC 3339 time into seconds since 1970.

    A time without a zone is UTC.

    Raises:
      BadParameter: the text is no RFC 3339 time.
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a time; expected RFC 3339 such as 2026-01-31T08:00:00Z"
        ) from error
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def check_files_exist(files: Sequence[Path]) -> Sequence[Path]:
    """Check that the input files of a command exist, and return them. `-` is standard input and always exists.

    Raises:
      BadParameter: a file does not exist.
    """
    for file in files:
        if str(file) != "-" and not file.exists():
            raise typer.BadParameter(f"there is no file {str(file)!r}")
    return files


def check_writable(file: Path | None) -> Path | None:
    """Check that an output file can be written, before the work that produces its content, and return its path.

    Raises:
      BadParameter: the directory does not exist, or the user may not write there.
    """
    if file is None:
        return None
    if not file.parent.is_dir():
        raise typer.BadParameter(f"there is no directory {str(file.parent)!r}; create it first")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise typer.BadParameter(
            f"{str(file)!r} is not writable; choose another path or change its permissions"
        )
    return file


Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Kubernetes manifests in YAML, JSON or JSON Lines, single objects or lists, optionally gzipped; "
        "or directories of them; - is standard input.",
        callback=check_files_exist,
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A BatchSchedulerConfiguration, or a KubeSchedulerConfiguration.",
        exists=True,
        dir_okay=False,
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile", metavar="NAME", help="The schedulerName of the profile; default: the first one."
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of all random choices.")]
Now = Annotated[
    float | None,
    typer.Option(
        "--now",
        parser=parse_time,
        metavar="RFC3339",
        help="The time of the session; default: now. State it to make a decision repeatable.",
        show_default=False,
    ),
]
Format = Annotated[OutputFormat, typer.Option("-o", "--output", help="Output format.")]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="The kubeconfig file; default: KUBECONFIG, the cluster that the command runs in, or ~/.kube/config.",
        exists=True,
    ),
]
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="A context of the kubeconfig.")
]

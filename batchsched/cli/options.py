"""Arguments that several commands take, stated once."""

import os
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Output(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class LogFormat(StrEnum):
    """How a log is written: lines for people, or an object a line."""

    TEXT = "text"
    JSON = "json"


def moment(text: str) -> float:
    """Read RFC 3339 as seconds since 1970.

    Raises:
      BadParameter: it is no time, or one without a zone.
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is no time; expected RFC 3339 such as 2026-01-31T08:00:00Z"
        ) from error
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def existing(files: list[Path]) -> list[Path]:
    """Check that there are such files; `-`, standard input, always is.

    Raises:
      BadParameter: there is no such file.
    """
    for file in files:
        if str(file) != "-" and not file.exists():
            raise typer.BadParameter(f"there is no file {str(file)!r}")
    return files


def writable(file: Path | None) -> Path | None:
    """Check that a file could be written, before the work whose outcome is to go there.

    Raises:
      BadParameter: its directory is not there, or not ours.
    """
    if file is None:
        return None
    if not file.parent.is_dir():
        raise typer.BadParameter(f"there is no directory {str(file.parent)!r}; make it first")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise typer.BadParameter(f"{str(file)!r} may not be written")
    return file


Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Kubernetes manifests: YAML, JSON, JSON Lines, lists, each possibly gzipped; "
        "directories of them; - is standard input.",
        callback=existing,
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
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of everything that is drawn.")]
Now = Annotated[
    float | None,
    typer.Option(
        "--now",
        parser=moment,
        metavar="RFC3339",
        help="The time of the session; default: now. With it a decision repeats.",
        show_default=False,
    ),
]
Format = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="The cluster; without it KUBECONFIG, the cluster we run in, or ~/.kube/config.",
        exists=True,
    ),
]
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="A context of the kubeconfig.")
]

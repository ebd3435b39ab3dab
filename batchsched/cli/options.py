"""Command line options that several commands share, and the checks of their values."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import typer
from typing_extensions import override

from batchsched.cli.jsonpath import JsonPathTemplate, parse_jsonpath
from batchsched.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The output format of a command, such as a table or JSON.

    Args:
      name: the name on the command line.
      template: the template of `jsonpath`, None for all other formats.
    """

    TABLE: ClassVar["OutputFormat"]
    WIDE: ClassVar["OutputFormat"]
    NAME: ClassVar["OutputFormat"]
    JSON: ClassVar["OutputFormat"]
    YAML: ClassVar["OutputFormat"]

    name: str
    template: JsonPathTemplate | None = None

    @property
    def is_table(self) -> bool:
        """Whether the format is a table: `table` or `wide`."""
        return self in (OutputFormat.TABLE, OutputFormat.WIDE)

    @override
    def __str__(self) -> str:
        return self.name


OutputFormat.TABLE = OutputFormat("table")
OutputFormat.WIDE = OutputFormat("wide")
OutputFormat.NAME = OutputFormat("name")
OutputFormat.JSON = OutputFormat("json")
OutputFormat.YAML = OutputFormat("yaml")
_DATA_FORMATS: Final = (OutputFormat.TABLE, OutputFormat.JSON, OutputFormat.YAML)
_LIST_FORMATS: Final = (*_DATA_FORMATS, OutputFormat.WIDE, OutputFormat.NAME)
_JSONPATH: Final = "jsonpath"


def _format_parser(formats: tuple[OutputFormat, ...]) -> Callable[[str | OutputFormat], OutputFormat]:
    """Return a parser for the value of `--output` that accepts the given formats and JSONPath templates."""
    by_name = {known.name: known for known in formats}

    def parse_format(text: str | OutputFormat) -> OutputFormat:
        if isinstance(text, OutputFormat):  # the default of the option
            return text
        if text in by_name:
            return by_name[text]
        name, equals, template = text.partition("=")
        if name != _JSONPATH:
            raise typer.BadParameter(
                f"there is no output format {text!r}; expected {', '.join(by_name)} or {_JSONPATH}=TEMPLATE"
            )
        if not equals or not template:
            raise typer.BadParameter("jsonpath needs a template, such as jsonpath='{.refusals[*].podGroup}'")
        try:
            return OutputFormat(_JSONPATH, parse_jsonpath(template))
        except InvalidInput as error:
            raise typer.BadParameter(str(error)) from error

    return parse_format


def _output_option(formats: tuple[OutputFormat, ...]) -> Any:
    names = [known.name for known in formats]
    return typer.Option(
        "-o",
        "--output",
        metavar="FORMAT",
        parser=_format_parser(formats),
        autocompletion=lambda: [*names, f"{_JSONPATH}="],
        help=f"{', '.join(names)}, or {_JSONPATH}=TEMPLATE as for kubectl.",
    )


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


def parse_yaml_value(text: str, option: str) -> Any:
    """Parse a value on the command line, such as the argument of a policy, as YAML.

    Raises:
      BadParameter: the text is not YAML.
    """
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise typer.BadParameter(
            f"{text!r} is not a value in YAML; expected such as 3, true, [1, 2] or text", param_hint=option
        ) from error


def check_files_exist(files: Sequence[Path]) -> Sequence[Path]:
    """Check that the input files of a command exist, and return them. `-` is standard input and always exists.

    Raises:
      BadParameter: a file does not exist.
    """
    for file in files:
        if str(file) != "-" and not file.exists():
            raise typer.BadParameter(f"there is no file {str(file)!r}{_similar_file(file)}")
    return files


def _similar_file(file: Path) -> str:
    """Return a hint with the most similar file name in the same directory; "" if no name is similar."""
    try:
        names = [entry.name for entry in file.parent.iterdir()]
    except OSError:
        return ""
    close = get_close_matches(file.name, names, n=1, cutoff=0.7)
    return f"; did you mean {str(file.with_name(close[0]))!r}?" if close else ""


def check_no_cluster_options(kubeconfig: Path | None, context: str | None) -> None:
    """Check that `--kubeconfig` and `--context` are not given, because the command reads only files.

    Raises:
      BadParameter: an option has no effect on files.
    """
    for option, value in (("--kubeconfig", kubeconfig), ("--context", context)):
        if value is not None:
            raise typer.BadParameter(
                "has no effect on files; remove it, or remove the files", param_hint=option
            )


def check_writable(file: Path | None) -> Path | None:
    """Check early that a command will be able to write its output file, and return the path of the file.

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


def check_replaces_only_dump_or_session(file: Path | None) -> Path | None:
    """Check that an output file replaces at most an empty file, a dump or a session file; return its path.

    Therefore a mistake in the path cannot overwrite manifests.

    Raises:
      BadParameter: the path cannot be written, or it is a file of another kind.
    """
    from batchsched.record.cluster_files import is_dump_or_session_file

    if check_writable(file) is None or file is None:
        return None
    if file.is_file() and file.stat().st_size and not is_dump_or_session_file(file):
        raise typer.BadParameter(
            f"{str(file)!r} exists, and is neither a dump nor a recorded session; choose another path, or delete it"
        )
    return file


Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Kubernetes manifests in YAML, JSON or JSON Lines, single objects or lists, optionally gzipped; "
        "or directories of them; or a dump or recorded session; - is standard input.",
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
SessionSeed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        min=0,
        help="Seed of all random choices; default: the seed of the recorded session, otherwise 0.",
        show_default=False,
    ),
]
"""The seed of a command that may read a recorded session."""
Now = Annotated[
    float | None,
    typer.Option(
        "--now",
        parser=parse_time,
        metavar="RFC3339",
        help="The time of the session, in UTC if it has no zone; default: now. State it to make a decision repeatable.",
        show_default=False,
    ),
]
Format = Annotated[OutputFormat, _output_option(_DATA_FORMATS)]
ListFormat = Annotated[OutputFormat, _output_option(_LIST_FORMATS)]
"""The format of a command that prints one line per object."""
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Print tables without their headings.")]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="The kubeconfig file; default: KUBECONFIG, the cluster that the command runs in, or ~/.kube/config.",
        exists=True,
        dir_okay=False,
    ),
]
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="A context of the kubeconfig.")
]

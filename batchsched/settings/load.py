"""Reading the configuration file: YAML or JSON, every mistake named by file and field."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from batchsched.errors import InvalidInput
from batchsched.model.complaint import complaints
from batchsched.settings.schema import CONFIG_KIND, BatchSchedulerConfiguration


def load(source: Path | str) -> BatchSchedulerConfiguration:
    """Read a configuration from a file (a `Path`) or from text.

    Args:
      source: the file, or YAML or JSON text. An empty one is the default configuration.

    Raises:
      InvalidInput: the file cannot be read, is not YAML, or a field in it is unknown or out of range.
    """
    file = str(source) if isinstance(source, Path) else ""
    content = _parse(_text(source) if isinstance(source, Path) else source, file)
    if content is None:
        return BatchSchedulerConfiguration()
    if not isinstance(content, dict):
        raise InvalidInput(f"expected a mapping with kind: {CONFIG_KIND}", file=file)
    try:
        return BatchSchedulerConfiguration.model_validate(content)
    except ValidationError as error:
        first, *others = complaints(error, BatchSchedulerConfiguration)
        more = "".join(f"\n{file or CONFIG_KIND}: {other.field}: {other.message}" for other in others)
        raise InvalidInput(
            first.message + more, file=file, object="" if file else CONFIG_KIND, field=first.field
        ) from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput("is not text; expected YAML or JSON", file=str(file)) from error
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", file=str(file)) from error


def _parse(text: str, file: str) -> Any:
    try:
        return yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise InvalidInput(f"{line}is not YAML: {error.problem}", file=file) from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"is not YAML: {error}", file=file) from error

"""Loads the configuration file of the scheduler (YAML or JSON); errors name the file and the field."""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from batchsched.api.crd.validation import field_errors
from batchsched.config.schema import CONFIG_KIND, KUBE_API_VERSION, KUBE_KIND, BatchSchedulerConfiguration
from batchsched.errors import InvalidInput

M = TypeVar("M", bound=BaseModel)


def load_configuration(source: Path | str) -> BatchSchedulerConfiguration:
    """Load the scheduler configuration from a file or from text, and discard warnings about its fields.

    Raises:
      InvalidInput: as `load_configuration_with_warnings`.
    """
    return load_configuration_with_warnings(source)[0]


def load_configuration_with_warnings(
    source: Path | str,
) -> tuple[BatchSchedulerConfiguration, tuple[str, ...]]:
    """Load a configuration of batchsched or kube-scheduler, and return it with warnings about its fields.

    Args:
      source: the path of the file, or YAML or JSON text. Empty text is the default configuration.

    Returns:
      The configuration, and one warning for each field without effect.

    Raises:
      InvalidInput: the file cannot be read, is not YAML, or has a field that is unknown or out of range.
    """
    file = str(source) if isinstance(source, Path) else ""
    content = parse_yaml(read_text(source) if isinstance(source, Path) else source, file, CONFIG_KIND)
    if content is None:
        return BatchSchedulerConfiguration(), ()
    if not isinstance(content, dict):
        raise InvalidInput(f"expected a mapping with kind: {CONFIG_KIND} or {KUBE_KIND}", file=file)
    if _of_kube_scheduler(content):
        # Its models take 22 ms to build, and most schedulers have a configuration of batchsched.
        from batchsched.config.kube_scheduler import KubeSchedulerConfiguration

        upstream = _validated(content, KubeSchedulerConfiguration, file)
        place = f"{file}: " if file else ""
        return upstream.to_batchsched(), tuple(f"{place}{line}" for line in upstream.warnings())
    return _validated(content, BatchSchedulerConfiguration, file), ()


def _of_kube_scheduler(content: dict[Any, Any]) -> bool:
    group = str(content.get("apiVersion", "")).partition("/")[0]
    return content.get("kind") == KUBE_KIND or group == KUBE_API_VERSION.partition("/")[0]


def _validated(content: dict[Any, Any], model: type[M], file: str) -> M:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        kind = model.__name__
        first, *further = field_errors(error, model)
        more = "".join(f"\n{file or kind}: {other}" for other in further)
        raise InvalidInput(
            first.message + more, file=file, object="" if file else kind, field=first.field
        ) from error


def read_text(file: Path) -> str:
    """Read a text file in UTF-8.

    Raises:
      InvalidInput: the file cannot be read, or is not text.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput("is not text in UTF-8; expected YAML or JSON", file=str(file)) from error
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", file=str(file)) from error


def parse_yaml(text: str, file: str, kind: str) -> Any:
    """Parse one YAML or JSON document into plain Python values; `kind` names the document in error messages.

    Raises:
      InvalidInput: the text is not YAML; the message names the line.
    """
    try:
        return yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        if isinstance(error, yaml.composer.ComposerError) and "single document" in str(error.context):
            raise InvalidInput(f"contains several documents; expected one {kind}", file=file) from error
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise InvalidInput(f"{line}is not YAML: {problem}", file=file) from error
    except yaml.reader.ReaderError as error:
        raise InvalidInput(f"is not text: {error.reason}; expected YAML or JSON", file=file) from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"is not YAML: {error}", file=file) from error

"""The page docs/reference/configuration.md, written from the schema."""

from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from batchsched.settings.schema import CONFIG_API_VERSION, CONFIG_KIND, BatchSchedulerConfiguration, Profile

_NAMES: Final = {bool: "true or false", int: "whole number", float: "number", str: "text"}
_INTRODUCTION: Final = f"""# Configuration

`--config FILE` names a YAML or JSON file. Everything has a default; an unknown field is refused with the one that was
probably meant, and a value out of range with the range. Without a file the defaults hold. The
[JSON Schema](schemas/config.json) is what `batchsched schema config` prints.

```yaml
apiVersion: {CONFIG_API_VERSION}
kind: {CONFIG_KIND}
profiles:
- schedulerName: batchsched
  selection: weight
  solver: {{deterministicBudget: 2.0}}
- schedulerName: batchsched-fifo
  selection: ordered
  policy: {{name: fcfs}}
  backfill: easy
  blocking: true
```
"""


def page() -> str:
    """Return the page as Markdown: a table for each part of the file."""
    return "\n".join(
        [_INTRODUCTION, *_section(BatchSchedulerConfiguration, ""), *_parts(Profile, "profiles[]")]
    )


def _parts(model: type[BaseModel], place: str) -> list[str]:
    lines = _section(model, place)
    for name, field in model.model_fields.items():
        inner = _model(field.annotation)
        if inner is not None:
            many = get_origin(field.annotation) is tuple
            lines += _parts(inner, f"{place}.{field.alias or name}{'[]' if many else ''}")
    return lines


def _section(model: type[BaseModel], place: str) -> list[str]:
    heading = f"## `{place}`" if place else f"## `{model.__name__}`"
    lines = [
        heading,
        "",
        model.__doc__ or "",
        "",
        "| field | value | default | what it does |",
        "|---|---|---|---|",
    ]
    for name, field in model.model_fields.items():
        if name in ("api_version", "kind"):
            continue
        text = " ".join((field.description or "").split())
        lines.append(f"| `{field.alias or name}` | {_value(field)} | {_default(field)} | {text} |")
    return [*lines, ""]


def _value(field: FieldInfo) -> str:
    return f"{_type(field.annotation)}{_range(field)}"


def _type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in inner)
    if origin in (Union, UnionType):
        return " or ".join(_type(one) for one in inner if one is not NoneType)
    if origin is tuple:
        return f"list of {_plural(inner[0])}"
    if origin is dict:
        return "mapping"
    return "see below" if _model(annotation) else _NAMES[annotation]


def _plural(annotation: Any) -> str:
    return "mappings, see below" if _model(annotation) else "names"


def _range(field: FieldInfo) -> str:
    words = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{sign} {getattr(rule, name)}"
        for rule in field.metadata
        for name, sign in words.items()
        if getattr(rule, name, None) is not None
    ]
    return f", {', '.join(bounds)}" if bounds else ""


def _default(field: FieldInfo) -> str:
    default = field.default
    if default is PydanticUndefined:
        return "required"
    if default is None:
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, BaseModel):
        return "its defaults"
    if default in ((), {}):
        return "none"
    return "one of defaults" if isinstance(default, tuple) else f"`{default}`"


def _model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) is tuple:
        return _model(get_args(annotation)[0])
    return None

"""The reference page of the configuration, generated from the schema."""

import inspect
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from batchsched.config.kube_scheduler import (
    DEFAULT_SCHEDULER,
    WITHOUT_EFFECT,
    KubeSchedulerConfiguration,
)
from batchsched.config.owner_rules import FieldPath
from batchsched.config.plugins import PluginSet
from batchsched.config.schema import (
    CONFIG_API_VERSION,
    CONFIG_KIND,
    KUBE_API_VERSION,
    KUBE_KIND,
    BatchSchedulerConfiguration,
    Profile,
)

_NAMES: Final = {bool: "true or false", int: "whole number", float: "number", str: "text"}
_INTRODUCTION: Final = f"""# Configuration

`--config FILE` names a YAML or JSON file. Every field has a default. An unknown field is rejected with the most similar
known field, and a value out of range is rejected with the allowed range. Without a file, all defaults apply.
`batchsched schema config` prints the [JSON Schema](schemas/config.json).

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

`plugins` and `pluginConfig` of a profile have the same form as in the configuration of kube-scheduler, and a complete
[configuration file of kube-scheduler](#a-file-of-kube-scheduler) can be loaded unchanged.
"""
_KUBE_SCHEDULER: Final = f"""## A file of kube-scheduler

`--config` also accepts a `{KUBE_KIND}` (`{KUBE_API_VERSION}`). `apiVersion` and `kind` determine the type of the file.

```yaml
apiVersion: {KUBE_API_VERSION}
kind: {KUBE_KIND}
profiles:
- schedulerName: {DEFAULT_SCHEDULER}
  plugins:
    multiPoint: {{enabled: [{{name: NodeAffinity, weight: 7}}]}}
    score:
      disabled: [{{name: ImageLocality}}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: {KUBE_API_VERSION}
      kind: NodeResourcesFitArgs
      scoringStrategy: {{type: MostAllocated, resources: [{{name: cpu, weight: 1}}]}}
```

Each profile of the file becomes a batchsched profile for pods with its scheduler name (default: `{DEFAULT_SCHEDULER}`).
Fields that a profile of kube-scheduler does not have, such as `solver` and `policy`, have their defaults. To set them,
copy `schedulerName`, `plugins` and `pluginConfig` to a profile of a `{CONFIG_KIND}`. With
`solver: {{enabled: false}}`, batchsched places pod by pod, as kube-scheduler does.

The setting of an extension point overrides `multiPoint`, and `multiPoint` overrides the defaults. At an extension point,
plugins that are enabled both there and in `multiPoint` come first, then the other plugins of `multiPoint`, then the plugins
that only the extension point enables.

Fields without effect in batchsched are validated. If such a field differs from the default of kube-scheduler, a warning is
printed to standard error. The same applies to plugins of kube-scheduler that are not installed.
"""


def configuration() -> str:
    """Return the page as Markdown: a table for each part of the file, and the part on kube-scheduler's file."""
    places = _places(Profile, "profiles[]", {})
    for name, field in BatchSchedulerConfiguration.model_fields.items():
        part = _model(field.annotation)
        if part is not None and part is not Profile:
            _places(part, field.alias or name, places)
    parts = [line for model, where in places.items() for line in _section(model, *where)]
    return "\n".join([_INTRODUCTION, *_section(BatchSchedulerConfiguration), *parts, *_kube_scheduler()])


def _places(
    model: type[BaseModel], place: str, known: dict[type[BaseModel], list[str]]
) -> dict[type[BaseModel], list[str]]:
    """Collect every model below a model, with the paths at which it occurs."""
    there = known.setdefault(model, [])
    if place not in there:
        there.append(place)
    for name, field in model.model_fields.items():
        inner = _model(field.annotation)
        if inner is not None:
            many = get_origin(field.annotation) is tuple
            # All extension points have the same fields: one section serves all.
            step = "POINT" if inner is PluginSet else f"{field.alias or name}{'[]' if many else ''}"
            _places(inner, f"{place}.{step}", known)
    return known


def _kube_scheduler() -> list[str]:
    fields = KubeSchedulerConfiguration.model_fields
    rows = [f"| `{fields[name].alias}` | {why} |" for name, why in WITHOUT_EFFECT.items()]
    return [_KUBE_SCHEDULER, "| without effect | why |", "|---|---|", *rows, ""]


def _section(model: type[BaseModel], *places: str) -> list[str]:
    lines = [
        f"## `{places[0] if places else model.__name__}`",
        "",
        " ".join(inspect.cleandoc(model.__doc__ or "").split()),
        "",
    ]
    if len(places) > 1:
        others = ", ".join(f"`{place}`" for place in places[1:])
        lines += [f"The same fields occur at {others}.", ""]
    lines += [
        "| field | value | default | what it does |",
        "|---|---|---|---|",
    ]
    for name, field in model.model_fields.items():
        if name in ("api_version", "kind") and not places:
            continue
        text = " ".join((field.description or "").split())
        lines.append(f"| `{field.alias or name}` | {_value(field)} | {_default(field)} | {text} |")
    return [*lines, ""]


def _value(field: FieldInfo) -> str:
    return f"{_type(field.annotation)}{_range(field)}"


def _type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return "path of a field" if annotation == FieldPath else _type(inner[0])
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
    if default is None or default == "":
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

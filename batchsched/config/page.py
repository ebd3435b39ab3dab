"""The page docs/reference/configuration.md, written from the schema."""

import inspect
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from batchsched.config.kube_scheduler import (
    DEFAULT_SCHEDULER,
    KUBE_API_VERSION,
    KUBE_KIND,
    WITHOUT_EFFECT,
    KubeSchedulerConfiguration,
)
from batchsched.config.plugins import PluginSet
from batchsched.config.schema import CONFIG_API_VERSION, CONFIG_KIND, BatchSchedulerConfiguration, Profile
from batchsched.config.serving import ClientConnection, LeaderElection, Serving

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

`plugins` and `pluginConfig` of a profile have the shape that they have in kube-scheduler's file, and
[a whole file of kube-scheduler](#a-file-of-kube-scheduler) loads as it is.
"""
_KUBE_SCHEDULER: Final = f"""## A file of kube-scheduler

`--config` takes a `{KUBE_KIND}` (`{KUBE_API_VERSION}`) as well; `apiVersion` and `kind` say which of the two a file is.

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

Each of its profiles becomes one of ours, for the pods of its scheduler name (`{DEFAULT_SCHEDULER}` where it has none);
whatever a profile of kube-scheduler cannot say, such as `solver` and `policy`, has its default. To set these too, copy
`schedulerName`, `plugins` and `pluginConfig` to a profile of a `{CONFIG_KIND}`;
`solver: {{enabled: false}}` there places pod by pod, as kube-scheduler does.

A point beats `multiPoint`, and `multiPoint` beats the defaults. At a point, plugins that it enables and that
`multiPoint` has there too stand first, the others of `multiPoint` next, and what the point alone enables last.

What has no meaning here is checked, and said once as a warning on standard error where it differs from kube-scheduler's
default; so are plugins of kube-scheduler that are not installed.
"""


def page() -> str:
    """Return the page as Markdown: a table for each part of the file, and what is known of kube-scheduler's."""
    places = _places(Profile, "profiles[]", {})
    for part in (LeaderElection, ClientConnection, Serving):
        _places(part, to_camel(part.__name__), places)
    parts = [line for model, where in places.items() for line in _section(model, *where)]
    return "\n".join([_INTRODUCTION, *_section(BatchSchedulerConfiguration), *parts, *_kube_scheduler()])


def _places(
    model: type[BaseModel], place: str, known: dict[type[BaseModel], list[str]]
) -> dict[type[BaseModel], list[str]]:
    """Find every part below a model, and each of the places at which it stands."""
    there = known.setdefault(model, [])
    if place not in there:
        there.append(place)
    for name, field in model.model_fields.items():
        inner = _model(field.annotation)
        if inner is not None:
            many = get_origin(field.annotation) is tuple
            # One section will do for all points.
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
        lines += [f"The same stands at {others}.", ""]
    lines += [
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

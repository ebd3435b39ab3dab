"""The documentation's pages of plugins and of the life of a pod, written from the plugins and the table of points."""

import inspect
import json
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from batchsched.config.defaults import DEFAULT_PLUGINS, DEFAULT_WEIGHTS
from batchsched.framework.events import Action, EnqueueExtensionsPlugin, written
from batchsched.framework.interface import Landing
from batchsched.framework.runtime.deadline import is_ours
from batchsched.framework.runtime.pipeline import landing
from batchsched.framework.runtime.plugin_call import name_of
from batchsched.framework.runtime.registry import found
from batchsched.framework.runtime.result_validation import POINTS, Point

LANDINGS: Final = {
    Landing.STATIC: "pods that land change nothing",
    Landing.NARROWS: "pods that land can only take nodes away",
    Landing.COUNTED: "pods that land take capacity, which the solver counts itself",
    Landing.SHIFTS: "pods that land may open nodes and close them",
}

_PLUGINS: Final = """# Plugins

Plugins keep the extension points and the meaning that kube-scheduler's plugins have. They are found through the
entry-point group `batchsched.plugins`, ours in the same way as anybody's. A profile turns them off and on, weighs
their scores (`profiles[].plugins`) and gives them arguments (`profiles[].pluginConfig`); an argument that is
unknown or out of range is refused with its field. [Writing a plugin](../writing-a-plugin.md) says how to add one,
[The life of a pod](pod-life.md) what each point is for.

Those that are on by default stand first, in the order in which they are asked. In the events that may help, TargetPod
is the very pod that was refused, UnscheduledPod another that waits, AssignedPod one that has a node."""

_POD: Final = """# The life of a pod

A pod meets the plugins of its profile at these points, in this order, and each answer has one meaning. Up to Permit
a session decides; PreBind, Bind and PostBind run once for each pod when the decision is carried out. With the solver on
the same plugins are asked: their Filters and Scores become the masks and scores of the solver's problem, once for
each class of equal pods; Constrain tells the solver what pods do to each other; and each placement that the solver
proposes is walked through PreFilter, Filter, Reserve and Permit pod by pod before it stands.

```mermaid
flowchart LR
    PreEnqueue --> QueueSort --> PreFilter --> Filter
    Filter -- a node fits --> PreScore --> Score --> NormalizeScore --> Reserve --> Permit
    Filter -- none fits --> PostFilter
    Constrain -. solver .-> Reserve
    Permit -- allowed --> PreBind --> Bind --> PostBind
    Permit -- refused --> Unreserve
    Reserve -- refused --> Unreserve
    Permit -- wait --> Permit
```

A plugin that raises, or answers what its point does not know, fails the pods that it was asked about, and their gang:
the refusal has the reason `PluginFailed` and names plugin, point and problem. Everything else is scheduled. Where a
plugin breaks over no gang in particular (the labels of a whole snapshot, or rows over several gangs together) the
session goes on without what it would have said, and the decision lists it under `setAside`. A pod that is bound stays
bound whatever a PostBind raises. A plugin of another package that hangs fails its pods in the same way, and is
[left out](../writing-a-plugin.md#what-goes-wrong) until the next start.

[Extenders](../extenders.md) are asked after Filter, after Score, when victims were found, and in place of Bind."""

_RANGES: Final = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def plugins() -> str:
    """Return the page of plugins: what each looks at, where it is asked, its arguments."""
    ours = {name_of(one): one for one in found() if is_ours(one)}
    order = [name for name in (*DEFAULT_PLUGINS, *sorted(ours)) if name in ours]
    return "\n\n".join([_PLUGINS, *(_plugin(name, ours[name]) for name in dict.fromkeys(order))])


def pod_life() -> str:
    """Return the page of a pod's life: every point, when it is asked, and what follows from each answer."""
    return "\n\n".join([_POD, *(_point(name, point) for name, point in POINTS.items())])


def points_of(plugin: type) -> tuple[str, ...]:
    """Name the points that a plugin class has, in call order."""
    return tuple(name for name, point in POINTS.items() if callable(getattr(plugin, point.method, None)))


def _plugin(name: str, plugin: type) -> str:
    points = ", ".join(points_of(plugin))
    default = (
        (f"on, weight {DEFAULT_WEIGHTS[name]}" if name in DEFAULT_WEIGHTS else "on")
        if name in DEFAULT_PLUGINS
        else "off"
    )
    facts = [f"Asked at {points}.", f"By default it is {default}."]
    if "Filter" in points_of(plugin):
        facts.append(f"Its verdict: {LANDINGS[landing(plugin)]}.")
    facts += _events(plugin)
    model = getattr(plugin, "Args", None)
    parts = [f"## `{name}`", _docstring(plugin), " ".join(facts)]
    return "\n\n".join([*parts, _arguments(model)] if model is not None else parts)


def _events(plugin: type) -> Iterator[str]:
    """What a plugin of ours, made without arguments, registers: by kind of object, in its order."""
    if not callable(getattr(plugin, "events_to_register", None)):
        return
    made: EnqueueExtensionsPlugin = plugin()
    actions: dict[str, Action] = {}
    for one in made.events_to_register():
        known = actions.get(one.event.resource, Action(0))
        actions[one.event.resource] = known | one.event.action
    told = [f"{resource} ({', '.join(_named(action))})" for resource, action in actions.items()]
    yield (
        f"What [may help](scheduling-queue.md) a pod that it refused: {', '.join(told)}."
        if told
        else "No event helps a pod that it refused, since it refuses none."
    )


def _named(actions: Action) -> list[str]:
    if Action.UPDATE in actions:
        return [written(one) for one in actions & ~Action.UPDATE] + [written(Action.UPDATE)]
    return [written(one) for one in actions]


def _docstring(plugin: type) -> str:
    """The class's docstring without what only a caller in Python needs to know."""
    paragraphs = (inspect.getdoc(plugin) or "").split("\n\n")
    return "\n\n".join(one for one in paragraphs if not one.startswith(("Args:", "Raises:")))


def _arguments(model: type[BaseModel]) -> str:
    rows = ["| argument | value | default | what it does |", "|---|---|---|---|"]
    return "\n".join([*rows, *_rows(model, "")])


def _rows(model: type[BaseModel], place: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        path = f"{place}{field.alias or to_camel(name)}"
        text = " ".join((field.description or "as in kube-scheduler").split())
        yield f"| `{path}` | {_value(field)} | {_default(field)} | {text} |"
        inner, many = _model(field.annotation)
        if inner is not None:
            yield from _rows(inner, f"{path}[]." if many else f"{path}.")


def _model(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model inside an annotation, and whether there may be many."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    inner = next((one for one, _ in map(_model, get_args(annotation)) if one is not None), None)
    return inner, getattr(annotation, "__origin__", None) in (tuple, list, frozenset)


def _value(field: FieldInfo) -> str:
    names = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    bounds = [
        f"{sign} {getattr(rule, bound)}"
        for rule in field.metadata
        for bound, sign in _RANGES.items()
        if getattr(rule, bound, None) is not None
    ]
    return ", ".join([*_types(field.annotation, names), *bounds]) or "mapping"


def _types(annotation: Any, names: dict[type, str]) -> Iterable[str]:
    origin, inner = getattr(annotation, "__origin__", None), get_args(annotation)
    if annotation in names:
        return [names[annotation]]
    if origin in (tuple, list, frozenset):
        return ["list"]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        inner = tuple(one.value for one in annotation)
    words = [f"`{one}`" for one in inner if isinstance(one, str)]
    if words:
        return [" or ".join(words)]
    return [name for one in inner for name in _types(one, names)]


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, BaseModel):
        return "its defaults"
    if default is None or default in ((), frozenset(), {}, ""):
        return "none"
    return f"`{json.dumps(to_jsonable_python(default, by_alias=True))}`"


def _point(name: str, point: Point) -> str:
    head = f"## {name}\n\n`{point.method}` is asked {point.asked}."
    if not point.then:
        return f"{head}\n\nIt answers {point.answer}."
    rows = [f"| {code} | {then} |" for code, then in point.then.items()]
    return "\n".join([head, "", "| answer | what follows |", "|---|---|", *rows])

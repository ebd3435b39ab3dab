"""The reference pages of plugins and of extension points, generated from the plugin classes and the table of points."""

import inspect
import json
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from batchsched.config.plugins import DEFAULT_PLUGINS, DEFAULT_WEIGHTS
from batchsched.framework.events import Action, action_name
from batchsched.framework.interface import EnqueueExtensionsPlugin
from batchsched.framework.runtime.deadline import is_builtin_plugin
from batchsched.framework.runtime.plugin_call import plugin_name
from batchsched.framework.runtime.registry import load_plugin_classes
from batchsched.framework.runtime.result_validation import POINTS
from batchsched.framework.traits import PlacementEffect, traits_of
from docs.generate.point_texts import POINT_TEXTS

EFFECTS: Final = {
    PlacementEffect.NONE: "placing a pod does not change it",
    PlacementEffect.TIGHTENS: "placing a pod can only remove nodes",
    PlacementEffect.USES_CAPACITY: "placing a pod uses capacity, which the solver counts itself",
    PlacementEffect.ANY: "placing a pod may add or remove nodes",
}

_PLUGINS: Final = """# Plugins

Plugins have the same extension points and the same meaning as the plugins of kube-scheduler. The entry-point group
`batchsched.plugins` registers them, those of batchsched and those of other packages alike. A profile enables and
disables plugins, sets the weights of their scores (`profiles[].plugins`) and their arguments
(`profiles[].pluginConfig`). An unknown argument, or a value out of range, is rejected with the name of the field.
[Writing a plugin](../writing-a-plugin.md) describes how to add one, and [The life of a pod](pod-life.md) describes each
extension point.

The plugins that are enabled by default come first, in the order in which they are called. In the events that may help,
TargetPod is the refused pod itself, UnscheduledPod is another pending pod, and AssignedPod is a pod that has a node."""

_POD: Final = """# The life of a pod

The plugins of a profile are called for a pod at these points, in this order, and each answer has one meaning. The points
up to Permit run within a session; PreBind, Bind and PostBind run once for each pod when the decision is carried out.
With the solver enabled, the same plugins are called. Filter and Score run once for each class of equal pods and become
the masks and scores of the solver's problem. Constrain adds rows for the effects that pods have on each other. Each
placement that the solver proposes then passes PreFilter, Filter, Reserve and Permit pod by pod before it is accepted.

![Extension points of a pod: those before and after a node is found, and those after a refusal](../assets/extension-points.svg)

If a plugin raises an exception or returns a value that its point does not allow, the pods of that call and their gang
are refused with the reason `PluginFailed`; the message names plugin, point and problem. Everything else is scheduled.
If the failing call concerns no single gang (label keys of the whole snapshot, or rows over several gangs), the session
continues without the result, and the decision lists the plugin under `setAside`. A bound pod remains bound if a PostBind
plugin raises. If a plugin of another package exceeds its deadline, its pods are refused in the same way, and the plugin is
[disabled](../writing-a-plugin.md#what-goes-wrong) until the next start or a changed configuration.

[Extenders](../extenders.md) are called after Filter, after Score, after victims were selected, and instead of Bind."""

_RANGES: Final = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def plugins() -> str:
    """Return the page of plugins: the description, extension points, events and arguments of each."""
    ours = {plugin_name(one): one for one in load_plugin_classes() if is_builtin_plugin(one)}
    order = [name for name in (*DEFAULT_PLUGINS, *sorted(ours)) if name in ours]
    return "\n\n".join([_PLUGINS, *(_plugin(name, ours[name]) for name in dict.fromkeys(order))])


def pod_life() -> str:
    """Return the page of extension points: when each is called, and the effect of each answer."""
    return "\n\n".join([_POD, *(_point(name) for name in POINTS)])


def points_of(plugin: type) -> tuple[str, ...]:
    """Return the names of the extension points that a plugin class implements, in call order."""
    return tuple(name for name, point in POINTS.items() if callable(getattr(plugin, point.method, None)))


def _plugin(name: str, plugin: type) -> str:
    points = ", ".join(points_of(plugin))
    default = (
        (f"on, weight {DEFAULT_WEIGHTS[name]}" if name in DEFAULT_WEIGHTS else "on")
        if name in DEFAULT_PLUGINS
        else "off"
    )
    facts = [f"Extension points: {points}.", f"Default: {default}."]
    if "Filter" in points_of(plugin):
        facts.append(f"Filter result: {EFFECTS[traits_of(plugin).placement_effect]}.")
    facts += _events(plugin)
    model = getattr(plugin, "Args", None)
    parts = [f"## `{name}`", _docstring(plugin), " ".join(facts)]
    return "\n\n".join([*parts, _arguments(model)] if model is not None else parts)


def _events(plugin: type) -> Iterator[str]:
    """Yield the events that a plugin registers, by kind of object. Only for plugins that need no arguments."""
    if not callable(getattr(plugin, "events_to_register", None)):
        return
    made: EnqueueExtensionsPlugin = plugin()
    actions: dict[str, Action] = {}
    for one in made.events_to_register():
        known = actions.get(one.event.resource, Action(0))
        actions[one.event.resource] = known | one.event.action
    told = [f"{resource} ({', '.join(_named(action))})" for resource, action in actions.items()]
    yield (
        f"[Events](scheduling-queue.md) that may help a pod that it refused: {', '.join(told)}."
        if told
        else "No event helps a pod that it refused, since it refuses none."
    )


def _named(actions: Action) -> list[str]:
    if Action.UPDATE in actions:
        return [action_name(one) for one in actions & ~Action.UPDATE] + [action_name(Action.UPDATE)]
    return [action_name(one) for one in actions]


def _docstring(plugin: type) -> str:
    """Return the docstring of a plugin class without its `Args` and `Raises` paragraphs."""
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
    """Return the model inside an annotation, and whether the annotation is a collection of it."""
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


def _point(name: str) -> str:
    text = POINT_TEXTS[name]
    head = f"## {name}\n\n`{POINTS[name].method}` is called {text.called}."
    if not text.effects:
        return f"{head}\n\nAnswer: {text.answer}."
    rows = [f"| {code} | {effect} |" for code, effect in text.effects.items()]
    return "\n".join([head, "", "| answer | effect |", "|---|---|", *rows])

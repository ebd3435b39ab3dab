"""The public surface as lines of text: what users, administrators and authors of plugins can name.

Sentences are left out, since they may be reworded: names, types, defaults, ranges and shapes are frozen.
"""

import hashlib
import importlib
import inspect
import json
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import fields
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import typer
import yaml
from annotated_types import BaseMetadata
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic_core import to_jsonable_python
from typer.models import OptionInfo

from batchsched.api.decision import REASONS
from batchsched.api.snapshot import HeldGang, HeldGangPod, PastQueueUsage, Snapshot
from batchsched.cli import ExitCode, run_command
from batchsched.cli.app import app
from batchsched.cli.schema import SchemaKind, schema_of
from batchsched.controllers.desired_status import CAP_REASONS, CONDITION_REASONS, QUEUE_REASONS
from batchsched.framework import interface, per_node, traits
from batchsched.framework.runtime.registry import load_plugin_classes
from batchsched.framework.runtime.result_validation import POINTS
from batchsched.framework.status import Code
from batchsched.observability.metrics import Metrics
from batchsched.queues.gang_order import POLICIES
from batchsched.queues.sharing.policy import registered_policy_classes
from batchsched.session.session import decide
from docs.generate.events import EVENTS

ROOT: Final = Path(__file__).parents[2]
PROSE: Final = frozenset({"description", "title", "help", "messageExpression"})
NOW: Final = "2026-01-05T09:00:00Z"
LARGE: Final = 500
"""Lines of a schema above which its definitions stand by digest."""


def text() -> str:
    """Return the whole surface."""
    sections: dict[str, Callable[[], Iterator[str]]] = {
        "commands": commands,
        "exit codes": exit_codes,
        "JSON output": json_output,
        "schemas": schemas,
        "custom resource definitions": crds,
        "entry points": entry_points,
        "plugins": plugins,
        "policies": policies,
        "extension points": extension_points,
        "refusals, Events and conditions": reasons,
        "metrics": metrics,
        "labels and annotations": labels,
        "web paths": web_paths,
        "decide": signature_of_decide,
        "Python API": python_api,
    }
    lines = []
    for name, make in sections.items():
        lines += [f"## {name}", *make(), ""]
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------- command line


def commands() -> Iterator[str]:
    """Name every command with its arguments and options."""
    yield from _commands("batchsched", app)


def _commands(path: str, group: typer.Typer) -> Iterator[str]:
    for command in sorted(group.registered_commands, key=_name):
        yield f"{path} {_name(command)}"
        function: Any = command.callback
        hints = get_type_hints(function, include_extras=True)
        for name, parameter in inspect.signature(function).parameters.items():
            if get_args(hints[name]):  # all but the context of typer
                yield f"  {_parameter(name, hints[name], parameter.default)}"
    for inner in sorted(group.registered_groups, key=lambda one: str(one.name)):
        assert inner.typer_instance is not None
        yield from _commands(f"{path} {inner.name}", inner.typer_instance)


def _name(command: Any) -> str:
    return str(command.name or command.callback.__name__.replace("_", "-"))


def _parameter(name: str, hint: Any, default: Any) -> str:
    """Describe an argument or an option: its names, its type, whether it repeats, its default."""
    kind, info = get_args(hint)[:2]
    is_option = isinstance(info, OptionInfo)
    flag = f"--{name.replace('_', '-')}"
    implied = (f"{flag}/--no-{flag[2:]}" if kind is bool else flag) if is_option else name
    # In the annotated style the library keeps the first name as the default.
    first = (info.default,) if isinstance(info.default, str) and info.default.startswith("-") else ()
    names = " ".join((*first, *(info.param_decls or ()))) or implied
    bounds = f" [{info.min}, {info.max}]" if info.min is not None or info.max is not None else ""
    shown = " required" if default is inspect.Parameter.empty else f" = {_plain(default)}"
    metavar = f" {info.metavar}" if info.metavar else ""
    return f"{'option' if is_option else 'argument'} {names}{metavar}: {_type(kind)}{bounds}{shown}"


def _type(kind: Any) -> str:
    if inspect.isclass(kind) and issubclass(kind, Enum):
        return "|".join(map(_plain, kind))
    inner = [_type(part) for part in get_args(kind) if part is not type(None)]
    if get_origin(kind) is list:
        return f"{inner[0]}..."
    return ", ".join(inner) if inner else str(getattr(kind, "__name__", kind))


def _plain(value: Any) -> str:
    value = getattr(value, "value", value)
    return json.dumps(value) if isinstance(value, bool | int | float | list | tuple) else str(value)


def exit_codes() -> Iterator[str]:
    for code in ExitCode:
        yield f"{code.value} {code.name}"


def json_output() -> Iterator[str]:
    """Run commands on the examples; state the shape of what they print as JSON."""
    examples = str(ROOT / "examples")
    with tempfile.TemporaryDirectory() as directory:
        session = str(Path(directory) / "session.json.gz")
        run(["record", examples, "--to", session, "--now", NOW])
        jobs = ["--gangs", "12", "--nodes", "4", "--processes", "1"]
        runs = {
            "decide": ["decide", examples, "--now", NOW],
            "explain": ["explain", examples, "--pod-group", "research/long-context", "--now", NOW],
            "queues": ["queues", examples, "--now", NOW],
            "queues explain": ["queues", "explain", "research", examples, "--now", NOW],
            "replay": ["replay", session],
            "simulate generate": ["simulate", "generate", *jobs, "--policy", "fcfs", "--policy", "sjf"],
            "simulate manifests": ["simulate", "manifests", examples, "--processes", "1"],
        }
        for name, arguments in runs.items():
            code, printed = run([*arguments, "-o", "json"])
            yield f"{name}: exit code {code}"
            yield from (f"  {line}" for line in sorted(set(_shape(json.loads(printed)))))


def run(arguments: list[str]) -> tuple[int, str]:
    """Run a command and return its exit code and what it printed."""
    output = StringIO()
    with redirect_stdout(output):
        code = run_command(arguments)
    return int(code), output.getvalue()


def _shape(value: Any, path: str = "") -> Iterator[str]:
    """Return the path and the type of every leaf; all items of a list are one."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _shape(part, f"{path}.{name}")
    elif isinstance(value, list) and value:
        for part in value:
            yield from _shape(part, f"{path}[]")
    else:
        kind = (
            "number"
            if isinstance(value, int | float) and not isinstance(value, bool)
            else type(value).__name__
        )
        yield f"{path or '.'}: {kind}"


# --------------------------------------------------------------------------------------------- schemas


def schemas() -> Iterator[str]:
    """State every field of the JSON Schemas; a very large schema by digest and by its properties at the top."""
    for subject in SchemaKind:
        schema = schema_of(subject)
        lines = list(_fields(schema, schema, "", ()))
        if len(lines) > LARGE:
            yield f"{subject.value}: {len(lines)} lines, digest {_digest(lines)}"
        else:
            yield from (f"{subject.value}{line}" for line in lines)


def _fields(part: Any, whole: Mapping[str, Any], path: str, seen: tuple[str, ...]) -> Iterator[str]:
    """Return a line for each place of a schema, references followed."""
    if not isinstance(part, dict):
        return
    if "$ref" in part:
        reference = part["$ref"]
        if reference in seen:
            yield f"{path}: as above"
            return
        rest = {name: value for name, value in part.items() if name != "$ref"}
        part = _referred(whole, reference) | rest
        seen = (*seen, reference)
    inner = ("properties", "items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties", "$defs")
    stated = {
        name: value
        for name, value in part.items()
        if name not in PROSE and name not in ("$schema", *inner) and not name.startswith("x-kubernetes-valid")
    }
    for name in ("anyOf", "oneOf", "allOf"):
        for index, choice in enumerate(part.get(name, ())):
            yield from _fields(choice, whole, f"{path}<{name}{index}>", seen)
    if stated:
        yield f"{path}: {json.dumps(_without_prose(stated), sort_keys=True, ensure_ascii=False)}"
    for name, value in sorted(part.get("properties", {}).items()):
        yield from _fields(value, whole, f"{path}.{name}", seen)
    yield from _fields(part.get("items"), whole, f"{path}[]", seen)
    yield from _fields(part.get("additionalProperties"), whole, f"{path}.*", seen)


def _referred(whole: Mapping[str, Any], reference: str) -> dict[str, Any]:
    part: Any = whole
    for name in reference.removeprefix("#/").split("/"):
        part = part[name]
    return dict(part)


def _without_prose(value: Any) -> Any:
    """Leave out sentences, wherever they are."""
    if isinstance(value, dict):
        return {
            name: _without_prose(part)
            for name, part in value.items()
            if not (name in PROSE and isinstance(part, str))
            and not (name == "message" and isinstance(part, str))
        }
    return [_without_prose(part) for part in value] if isinstance(value, list) else value


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def crds() -> Iterator[str]:
    """State names, columns and a digest of each CRD without its sentences; the fields are in the schemas."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            if not document or document.get("kind") != "CustomResourceDefinition":
                continue
            spec = document["spec"]
            yield f"{path.name}: {document['metadata']['name']} {spec['scope']} {json.dumps(spec['names'])}"
            for version in spec["versions"]:
                yield f"  {version['name']}: digest {_digest(_without_prose(version['schema']))}"
                yield f"  subresources {json.dumps(version.get('subresources', {}), sort_keys=True)}"
                for column in version.get("additionalPrinterColumns", ()):
                    yield f"  column {json.dumps(_without_prose(column), sort_keys=True)}"


# --------------------------------------------------------------------------------------------- plugins


def entry_points() -> Iterator[str]:
    """Name the entry points; what they lead to may move."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name in project["scripts"]:
        yield f"scripts: {name}"
    for group, entries in project["entry-points"].items():
        yield from (f"{group}: {name}" for name in sorted(entries))
    yield f"extras: {', '.join(sorted(project['optional-dependencies']))}"


def plugins() -> Iterator[str]:
    """Name the plugins, the points that each has, and its arguments with their defaults."""
    for plugin in sorted(load_plugin_classes(), key=lambda one: str(getattr(one, "name", ""))):
        if not plugin.__module__.startswith("batchsched."):
            continue
        asked = [name for name, point in POINTS.items() if callable(getattr(plugin, point.method, None))]
        yield f"{plugin.name}: {', '.join(asked)}"  # type: ignore[attr-defined]
        yield from _arguments(getattr(plugin, "Args", None))


def policies() -> Iterator[str]:
    """Name the policies of gangs and of queues, with their arguments."""
    for kind, classes in (("gangs", dict(POLICIES)), ("queues", dict(registered_policy_classes()))):
        for name in sorted(classes):
            yield f"{kind}: {name}"
            for parameter in inspect.signature(classes[name]).parameters.values():
                yield from _arguments(_model_in(parameter.annotation))


def _model_in(annotation: Any) -> Any:
    choices = (annotation, *getattr(annotation, "__args__", ()))
    return next((one for one in choices if inspect.isclass(one) and issubclass(one, BaseModel)), None)


def _arguments(model: Any) -> Iterator[str]:
    """State the arguments of a plugin or a policy with their ranges and defaults."""
    for name, field in sorted(model.model_fields.items() if model is not None else ()):
        ranges = ", ".join(sorted(repr(bound) for bound in field.metadata if isinstance(bound, BaseMetadata)))
        default = (
            "required"
            if field.is_required()
            else f"= {_default(field.get_default(call_default_factory=True))}"
        )
        yield f"  {field.alias or to_camel(name)} {default}{f' [{ranges}]' if ranges else ''}"
    if model is not None:
        yield from _permitted_values(model)


def _permitted_values(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """State the values of each argument that permits only some, also inside of other arguments."""
    for name, field in sorted(model.model_fields.items()):
        argument = f"{path}{field.alias or to_camel(name)}"
        for part in _parts_of(field.annotation):
            if get_origin(part) is Literal:
                yield f"  {argument} in {', '.join(map(json.dumps, get_args(part)))}"
            elif inspect.isclass(part) and issubclass(part, Enum):
                yield f"  {argument} in {', '.join(json.dumps(value.value) for value in part)}"
            elif inspect.isclass(part) and issubclass(part, BaseModel) and part is not model:
                yield from _permitted_values(part, f"{argument}.")


def _parts_of(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and the types in it, such as those of a union or of the items of a list."""
    yield annotation
    if get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _parts_of(part)


def _default(value: Any) -> str:
    return json.dumps(to_jsonable_python(value, by_alias=True), sort_keys=True)


def extension_points() -> Iterator[str]:
    """State the protocols of plugins: methods with their signatures, and the classes for authors."""
    for name, point in POINTS.items():
        yield f"{name}: {point.method}; {', '.join(sorted(code.name for code in point.codes))}"
    yield f"codes: {', '.join(code.name for code in Code)}"
    for trait in fields(traits.PluginTraits):
        yield f"trait {trait.name} = {trait.default}"
    for choice in (traits.PlacementEffect, traits.ResultScope):
        yield f"{choice.__name__}: {', '.join(value.name for value in choice)}"
    for module in (interface, per_node):
        for name, part in sorted(vars(module).items()):
            if inspect.isclass(part) and part.__module__ == module.__name__:
                yield f"class {name}"
                yield from _members(part)


def _members(part: type) -> Iterator[str]:
    for name, member in sorted(vars(part).items()):
        if inspect.isfunction(member) and (not name.startswith("_")):
            names = ", ".join(inspect.signature(member).parameters)
            kind = "async def" if inspect.iscoroutinefunction(member) else "def"
            yield f"  {kind} {name}({names})"
        elif isinstance(member, property):
            yield f"  property {name}"


# --------------------------------------------------------------------------------- what the service says


def reasons() -> Iterator[str]:
    """Name the reasons of refusals, Events and conditions."""
    yield from (f"refusal {reason}" for reason in sorted(REASONS))
    for reason, event in sorted(EVENTS.items()):
        yield f"Event {reason}: {event.about}, {event.type}, {event.action}"
    for kind, table in (("PodGroup", CONDITION_REASONS), ("PodGroup", CAP_REASONS), ("Queue", QUEUE_REASONS)):
        yield from (
            f"condition of {kind}: {reason} {stated}" for reason, (stated, _) in sorted(table.items())
        )


def metrics() -> Iterator[str]:
    """Name the metrics with their types and labels; of histograms also the buckets."""
    declared = Metrics().declared
    for metric in sorted(declared, key=lambda one: one._name):
        buckets = getattr(metric, "_upper_bounds", None) or getattr(metric, "_kwargs", {}).get("buckets", ())
        said = f" buckets {_digest([f'{bound:.6g}' for bound in buckets])}" if buckets else ""
        assert metric._documentation, metric._name
        yield f"{metric._name}: {metric._type} ({', '.join(metric._labelnames)}){said}"


def labels() -> Iterator[str]:
    """Name the labels, annotations and finalizers of our groups that the package writes or reads."""
    names: set[str] = set()
    for path in (ROOT / "batchsched").rglob("*.py"):
        names.update(re.findall(r"\b[a-z]+\.batchsched\.dev/[a-z][\w-]*", path.read_text("utf-8")))
    yield from sorted(names)


def web_paths() -> Iterator[str]:
    """Name the paths that the service's web server answers."""
    names: set[str] = set()
    for path in (ROOT / "batchsched").rglob("*.py"):
        content = path.read_text("utf-8")
        names.update(re.findall(r"web\.(?:get|post|delete|put)\(\s*f?\"([^\"]+)\"", content))
    yield from sorted(names)


def signature_of_decide() -> Iterator[str]:
    """State the parameters of `decide` and the fields of what goes in."""
    for parameter in inspect.signature(decide).parameters.values():
        default = "" if parameter.default is inspect.Parameter.empty else " optional"
        yield f"{parameter.kind.name.lower()} {parameter.name}{default}"
    for part in (Snapshot, HeldGang, HeldGangPod, PastQueueUsage):
        yield f"{part.__name__}: {', '.join(field.name for field in fields(part))}"


def python_api() -> Iterator[str]:
    """State the names that the package exports, with the parameters of functions and the fields of values."""
    package = importlib.import_module("batchsched")
    for name in package.__all__:
        value = getattr(package, name)
        if inspect.isfunction(value):
            yield f"{name}({', '.join(inspect.signature(value).parameters)})"
        else:
            yield name
    yield f"ClusterInput: {', '.join(field.name for field in fields(package.ClusterInput))}"

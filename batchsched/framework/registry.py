"""The registry: which plugin classes there are, and how a profile turns into a pipeline.

Plugins are handed in as classes, or found by entry point (`batchsched.plugins`), so that somebody else's package
needs nothing but its own metadata.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from batchsched.errors import InvalidInput
from batchsched.framework.guard import name_of
from batchsched.framework.pipeline import Pipeline
from batchsched.settings.defaults import DEFAULT_PLUGINS, DEFAULT_WEIGHTS
from batchsched.settings.schema import Profile

ENTRY_POINTS: Final = "batchsched.plugins"


class Registry:
    """Plugin classes by name, and the names of those that are on by default.

    Args:
      known: the plugin classes.
      defaults: names that are on unless a profile says otherwise, in the order in which they are asked; a name
        that is not known is passed over.
      weights: of the default Score plugins.
    """

    def __init__(self, known: Iterable[type], defaults: Iterable[str], weights: Mapping[str, int]) -> None:
        self.weights = dict(weights)
        self._known: dict[str, type] = {}
        for plugin in known:
            name = name_of(plugin)
            if self._known.setdefault(name, plugin) is not plugin:
                raise InvalidInput(
                    f"two plugins are named {name}; rename one of them", object=f"plugin {name}"
                )
        self.defaults = tuple(name for name in defaults if name in self._known)

    @property
    def names(self) -> tuple[str, ...]:
        """All registered names, sorted."""
        return tuple(sorted(self._known))

    def pipeline(self, profile: Profile) -> Pipeline:
        """Make the pipeline of a profile.

        Raises:
          InvalidInput: the profile names a plugin that is not registered, or arguments that it refuses.
        """
        weights = dict(self.weights)
        chosen: dict[str, type] = {}
        if "*" not in profile.plugins.disabled:
            chosen = {one: self._known[one] for one in self.defaults if one not in profile.plugins.disabled}
        for name in (*profile.plugins.disabled, *(one.name for one in profile.plugin_config)):
            if name != "*":
                self._class(name)
        for enabled in profile.plugins.enabled:
            chosen.setdefault(enabled.name, self._class(enabled.name))
            if enabled.weight is not None:
                weights[enabled.name] = enabled.weight
        return Pipeline([_make(one, profile.arguments(name)) for name, one in chosen.items()], weights)

    def _class(self, name: str) -> type:
        plugin = self._known.get(name)
        if plugin is None:
            raise InvalidInput(
                f"no plugin is named {name!r}; registered are {', '.join(self.names)}",
                field="profiles[].plugins",
            )
        return plugin


@cache
def found() -> tuple[type, ...]:
    """Return the plugin classes that installed packages offer by entry point, by name."""
    return tuple(point.load() for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.name))


@cache
def standard() -> Registry:
    """Return the registry of all plugins that are installed, with kube-scheduler's defaults."""
    return Registry(found(), DEFAULT_PLUGINS, DEFAULT_WEIGHTS)


def _make(plugin: type, arguments: Mapping[str, Any]) -> object:
    model = getattr(plugin, "Args", None)
    if model is None:
        if arguments:
            raise InvalidInput(
                "the plugin takes no arguments", object=f"plugin {name_of(plugin)}", field="args"
            )
        return plugin()
    return plugin(_validated(model, arguments, name_of(plugin)))


def _validated(model: type[BaseModel], arguments: Mapping[str, Any], plugin: str) -> BaseModel:
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(first["msg"], object=f"plugin {plugin}", field=f"args.{field}") from error

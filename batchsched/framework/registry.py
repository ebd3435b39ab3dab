"""The registry: which plugin classes there are, and how a profile turns into a pipeline.

Plugins are handed in as classes, or found by entry point (`batchsched.plugins`), so that somebody else's package
needs nothing but its own metadata.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from batchsched.errors import InvalidInput
from batchsched.framework.guard import name_of
from batchsched.framework.pipeline import Pipeline
from batchsched.settings.schema import Profile

ENTRY_POINTS: Final = "batchsched.plugins"


class Registry:
    """Plugin classes by name, and those that are on by default, in order.

    Args:
      defaults: the classes that are on unless a profile says otherwise, in the order in which they are asked.
      weights: of the default Score plugins.
      others: classes that a profile may enable.
    """

    def __init__(
        self, defaults: Iterable[type], weights: Mapping[str, int], others: Iterable[type] = ()
    ) -> None:
        self.defaults = tuple(defaults)
        self.weights = dict(weights)
        self._known: dict[str, type] = {}
        for plugin in (*self.defaults, *others):
            name = name_of(plugin)
            if name in self._known and self._known[name] is not plugin:
                raise InvalidInput(
                    f"two plugins are named {name}; rename one of them", object=f"plugin {name}"
                )
            self._known[name] = plugin

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
            chosen = {
                name_of(one): one for one in self.defaults if name_of(one) not in profile.plugins.disabled
            }
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


def found() -> tuple[type, ...]:
    """Return the plugin classes that installed packages offer by entry point, by name."""
    return tuple(point.load() for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.name))


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

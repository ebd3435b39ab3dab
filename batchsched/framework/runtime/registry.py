"""Registry of plugin classes, which creates the pipeline of a profile.

Plugin classes are passed in, or found by the entry point group `batchsched.plugins`, so that another package needs
only its own metadata.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from batchsched.api.crd.validation import FieldError, complaints
from batchsched.config.plugins import DEFAULT_PLUGINS, DEFAULT_WEIGHTS, IGNORED_IF_UNKNOWN, EnabledPlugin
from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput
from batchsched.framework.extenders.chain import ExtenderChain
from batchsched.framework.runtime.deadline import is_ours, watched
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import ask, name_of
from batchsched.framework.runtime.profile_plugins import by_point, everywhere, needed, weights_of
from batchsched.framework.traits import traits_of
from batchsched.ports.external import NO_EXTERNAL_CALLS, ExternalCalls

ENTRY_POINTS: Final = "batchsched.plugins"


class Registry:
    """Plugin classes by name, and the names of the default plugins.

    Args:
      plugins: the plugin classes.
      defaults: names that are enabled by default, in the order of their calls; unknown names are ignored.
      weights: name → weight of the default Score plugins.
    """

    def __init__(self, plugins: Iterable[type], defaults: Iterable[str], weights: Mapping[str, int]) -> None:
        self.weights = dict(weights)
        self._classes: dict[str, type] = {}
        for plugin in plugins:
            name = name_of(plugin)
            if self._classes.setdefault(name, plugin) is not plugin:
                raise InvalidInput(
                    f"two plugins are named {name}; rename one of them", object=f"plugin {name}"
                )
        self.defaults = tuple(name for name in defaults if name in self._classes)

    @property
    def names(self) -> tuple[str, ...]:
        """All registered names, sorted."""
        return tuple(sorted(self._classes))

    def pipeline(self, profile: Profile, outside: ExternalCalls = NO_EXTERNAL_CALLS) -> Pipeline:
        """Create the pipeline of a profile.

        Args:
          profile: the scheduling profile.
          outside: calls extenders, and enforces the deadlines of plugins from other packages.

        Raises:
          InvalidInput: the profile names an unregistered plugin, a plugin at a point that it does not implement, or
            invalid arguments.
          PluginError: a plugin cannot be constructed.
        """
        for place, name in _named(profile):
            self._known_or_passed_over(name, place)
        defaults = [EnabledPlugin(name=name, weight=self.weights.get(name)) for name in self.defaults]
        multi = everywhere(defaults, profile.plugins)
        # Only enabled plugins are constructed, so that arguments of disabled ones cannot fail the profile.
        made = {
            name: watched(_make(self._classes[name], profile.arguments(name)), outside.deadline)
            for name in needed(multi, profile.plugins)
            if name in self._classes
        }
        plugins_at = by_point(multi, profile.plugins, made)
        chain = ExtenderChain(profile.extenders, outside.extenders)
        return Pipeline(tuple(made.values()), weights_of(multi, profile.plugins), plugins_at, chain)

    def foreign(self, profile: Profile) -> tuple[str, ...]:
        """Return the names of plugins of other packages that a profile enables."""
        multi = everywhere([EnabledPlugin(name=name) for name in self.defaults], profile.plugins)
        return tuple(
            name
            for name in needed(multi, profile.plugins)
            if name in self._classes and not is_ours(self._classes[name])
        )

    def passed_over(self, profile: Profile) -> tuple[str, ...]:
        """Return the names of kube-scheduler plugins in a profile that batchsched does not have and ignores."""
        enabled = {name for _, names in profile.plugins.enabled_by_place() for name in names}
        enabled |= {name for _, name in _configured(profile)}
        return tuple(sorted(name for name in enabled & IGNORED_IF_UNKNOWN if name not in self._classes))

    def _known_or_passed_over(self, name: str, place: str) -> None:
        if name not in self._classes and name not in IGNORED_IF_UNKNOWN:
            raise InvalidInput(
                f"no plugin is named {name!r}; registered are {', '.join(self.names)}",
                field=f"profiles[].{place}",
            )


def _named(profile: Profile) -> tuple[tuple[str, str], ...]:
    return (*((f"plugins.{place}", name) for place, name in profile.plugins.names()), *_configured(profile))


def _configured(profile: Profile) -> tuple[tuple[str, str], ...]:
    return tuple((f"pluginConfig[{at}].name", one.name) for at, one in enumerate(profile.plugin_config))


@cache
def found() -> tuple[type, ...]:
    """Return the plugin classes of all installed packages by entry point, sorted by name.

    Raises:
      PluginError: a class cannot be loaded.
    """
    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda entry_point: entry_point.name)
    return tuple(ask(point, "loading", point.load) for point in points)


@cache
def standard() -> Registry:
    """Return the registry of all installed plugins with kube-scheduler's defaults."""
    return Registry(found(), DEFAULT_PLUGINS, DEFAULT_WEIGHTS)


def _make(plugin: type, arguments: Mapping[str, Any]) -> object:
    model = getattr(plugin, "Args", None)
    if model is None:
        if arguments:
            raise InvalidInput(
                "the plugin takes no arguments", object=f"plugin {name_of(plugin)}", field="args"
            )
        return _built(plugin)
    return _built(plugin, _validated(model, arguments, name_of(plugin)))


def _built(plugin: type, *arguments: object) -> object:
    """Construct a plugin, and check that it is hashable and its traits are valid.

    The pipeline keeps plugins in sets; a dataclass that is not frozen has no hash.
    """
    made: object = ask(plugin, "construction", plugin, *arguments)
    ask(plugin, "construction", hash, made)
    ask(plugin, "construction", traits_of, made)
    return made


def _validated(model: type[BaseModel], arguments: Mapping[str, Any], plugin: str) -> BaseModel:
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        first, *further = complaints(error, model)
        more = "".join(f"\nplugin {plugin}: {_below_args(other)}: {other.message}" for other in further)
        raise InvalidInput(
            first.message + more, object=f"plugin {plugin}", field=_below_args(first)
        ) from error


def _below_args(complaint: FieldError) -> str:
    return f"args.{complaint.field}" if complaint.field else "args"

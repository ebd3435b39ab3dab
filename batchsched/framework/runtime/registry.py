"""Registry of plugin classes, which creates the pipeline of a profile.

Plugin classes are passed in, or found by the entry point group `batchsched.plugins`, so that another package needs
only its own metadata.

The default plugins are merged with a profile's changes as in kube-scheduler, in two steps. First the profile's
multiPoint changes the defaults: disabled plugins are removed, plugins enabled again keep their position and get the
new weight, new plugins are last. Then multiPoint is expanded to the points. A point omits what it disables. Plugins
that it enables itself are first if multiPoint has them too, else last.

Source: `mergePluginSet` of kube-scheduler's apis/config/v1/default_plugins.go; `updatePluginList`,
`expandMultiPointPlugins` and `getScoreWeights` of framework/runtime/framework.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from batchsched.api.crd.validation import FieldError, field_errors, suggest_name
from batchsched.config.plugins import (
    ALL,
    DEFAULT_PLUGINS,
    DEFAULT_WEIGHTS,
    IGNORED_IF_UNKNOWN,
    EnabledPlugin,
    Plugins,
    PluginSet,
)
from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput
from batchsched.framework.extender_chain import ExtenderChain
from batchsched.framework.runtime.deadline import is_builtin_plugin, wrap_with_deadline
from batchsched.framework.runtime.pipeline import PROTOCOLS, Pipeline
from batchsched.framework.runtime.plugin_call import call_plugin, plugin_name
from batchsched.framework.traits import traits_of
from batchsched.ports.external import NO_EXTERNAL_CLIENTS, ExternalClients


def merge_multi_point(defaults: Iterable[EnabledPlugin], changes: Plugins) -> tuple[EnabledPlugin, ...]:
    """Return the plugins that are enabled at multiPoint: the default plugins, as changed by a profile."""
    own = {one.name: one.weight for one in defaults}
    # The short form `plugins.enabled` changes the defaults first; multiPoint then overrides it.
    short = tuple(
        plugin if plugin.weight is not None else EnabledPlugin(name=plugin.name, weight=own.get(plugin.name))
        for plugin in changes.enabled
    )
    return _merged(
        _merged(defaults, short, frozenset(changes.disabled)),
        changes.multi_point.enabled,
        frozenset(one.name for one in changes.multi_point.disabled),
    )


def _merged(
    defaults: Iterable[EnabledPlugin], enabled: Sequence[EnabledPlugin], disabled: frozenset[str]
) -> tuple[EnabledPlugin, ...]:
    enabled_by_name = {one.name: one for one in enabled}
    kept = [] if ALL in disabled else [one for one in defaults if one.name not in disabled]
    kept_names = {one.name for one in kept}
    return (
        *(enabled_by_name.get(one.name, one) for one in kept),
        *(one for one in enabled if one.name not in kept_names),
    )


def enabled_plugin_names(multi: Iterable[EnabledPlugin], changes: Plugins) -> tuple[str, ...]:
    """Return the names of all plugins that are enabled at any extension point, those of multiPoint first."""
    names = dict.fromkeys(one.name for one in multi)
    for point in PROTOCOLS:
        names |= dict.fromkeys(one.name for one in _set(changes, point).enabled)
    return tuple(names)


def plugins_by_point(
    multi: Iterable[EnabledPlugin], changes: Plugins, made: Mapping[str, object]
) -> dict[str, tuple[object, ...]]:
    """Return the plugins of each extension point, in the order in which they are called.

    Args:
      multi: the plugins of multiPoint.
      changes: the profile's changes.
      made: name → plugin; names that are missing are ignored.

    Raises:
      InvalidInput: a point enables a plugin that does not implement it, or several plugins sort the queue.
    """
    chosen = {
        point: _plugins_at(point, protocol, multi, _set(changes, point), made)
        for point, protocol in PROTOCOLS.items()
    }
    sorting = chosen["queue_sort"]
    if len(sorting) > 1:
        raise InvalidInput(
            f"{' and '.join(map(plugin_name, sorting))} all sort the queue, and only one may; disable the others",
            field="profiles[].plugins.queueSort",
        )
    return chosen


def _plugins_at(
    point: str, protocol: Any, multi: Iterable[EnabledPlugin], changes: PluginSet, made: Mapping[str, object]
) -> tuple[object, ...]:
    own = [one.name for one in changes.enabled if one.name in made]
    for name in own:
        if not isinstance(made[name], protocol):
            raise InvalidInput(
                f"plugin {name} is not asked at this point; take it out of the list",
                field=f"profiles[].plugins.{to_camel(point)}.enabled",
            )
    disabled = {one.name for one in changes.disabled}
    shared: list[str] = []
    if ALL not in disabled:
        shared = [
            plugin.name
            for plugin in multi
            if plugin.name not in disabled and isinstance(made.get(plugin.name), protocol)
        ]
    # Order: plugins of the point that multiPoint has too, other plugins of multiPoint, other plugins of the point.
    names = (
        *(name for name in own if name in shared),
        *(name for name in shared if name not in own),
        *(name for name in own if name not in shared),
    )
    return tuple(made[name] for name in names)


def score_weights(multi: Iterable[EnabledPlugin], changes: Plugins) -> dict[str, int]:
    """Return the weights of Score plugins by name. A weight at `score` takes precedence over one at multiPoint.

    0 and missing weights count as 1.
    """
    weights: dict[str, int] = {}
    for plugin in (*changes.score.enabled, *multi):
        weights.setdefault(plugin.name, plugin.weight or 1)
    return weights


def _set(changes: Plugins, point: str) -> PluginSet:
    point_changes: PluginSet = getattr(changes, point)
    return point_changes


ENTRY_POINTS: Final = "batchsched.plugins"


class Registry:
    """All known plugin classes by name, and the names of the default plugins.

    Args:
      plugins: the plugin classes.
      defaults: names that are enabled by default, in the order of their calls; unknown names are ignored.
      weights: name → weight of the default Score plugins.
    """

    def __init__(self, plugins: Iterable[type], defaults: Iterable[str], weights: Mapping[str, int]) -> None:
        self.weights = dict(weights)
        self._classes: dict[str, type] = {}
        for plugin in plugins:
            name = plugin_name(plugin)
            if self._classes.setdefault(name, plugin) is not plugin:
                raise InvalidInput(
                    f"two plugins are named {name}; rename one of them", object=f"plugin {name}"
                )
        self.defaults = tuple(name for name in defaults if name in self._classes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all registered plugins, sorted."""
        return tuple(sorted(self._classes))

    def create_pipeline(self, profile: Profile, outside: ExternalClients = NO_EXTERNAL_CLIENTS) -> Pipeline:
        """Create the pipeline of a profile: its enabled plugins by extension point.

        Args:
          profile: the scheduling profile.
          outside: calls extenders, enforces the deadlines of plugins from other packages, and has the processes for
            the solver.

        Raises:
          InvalidInput: the profile names an unregistered plugin, a plugin at a point that it does not implement, or
            invalid arguments.
          PluginError: a plugin cannot be constructed.
        """
        for place, name in _named(profile):
            if name not in self._classes and name not in IGNORED_IF_UNKNOWN:
                raise InvalidInput(
                    f"there is no plugin {name!r}; {suggest_name(name, self.names)}",
                    field=f"profiles[].{place}",
                )
        defaults = [
            EnabledPlugin(name=name, weight=self.weights.get(name))
            for name in profile.kubernetes_release.sort_plugins(self.defaults)
        ]
        multi = merge_multi_point(defaults, profile.plugins)
        # Only enabled plugins are constructed, so that arguments of disabled ones cannot fail the profile.
        made = {
            name: wrap_with_deadline(
                _make(self._classes[name], profile.plugin_arguments(name)), outside.deadline
            )
            for name in enabled_plugin_names(multi, profile.plugins)
            if name in self._classes
        }
        plugins_at = plugins_by_point(multi, profile.plugins, made)
        chain = ExtenderChain(profile.extenders, outside.extenders)
        return Pipeline(
            tuple(made.values()),
            score_weights(multi, profile.plugins),
            plugins_at,
            chain,
            profile.kubernetes_release,
            outside.workers,
        )

    def external_plugin_names(self, profile: Profile) -> tuple[str, ...]:
        """Return the names of the plugins from other packages that a profile enables."""
        multi = merge_multi_point([EnabledPlugin(name=name) for name in self.defaults], profile.plugins)
        return tuple(
            name
            for name in enabled_plugin_names(multi, profile.plugins)
            if name in self._classes and not is_builtin_plugin(self._classes[name])
        )

    def ignored_plugin_names(self, profile: Profile) -> tuple[str, ...]:
        """Return the names of kube-scheduler plugins that a profile names, but that batchsched ignores.

        batchsched does not have these plugins. Plugins that the profile only disables are not included.
        """
        enabled = {name for _, names in profile.plugins.enabled_plugin_lists_with_paths() for name in names}
        enabled |= {name for _, name in _configured(profile)}
        return tuple(sorted(name for name in enabled & IGNORED_IF_UNKNOWN if name not in self._classes))


def _named(profile: Profile) -> tuple[tuple[str, str], ...]:
    return (
        *(
            (f"plugins.{place}", name)
            for place, name in profile.plugins.enabled_and_disabled_plugins_with_paths()
        ),
        *_configured(profile),
    )


def _configured(profile: Profile) -> tuple[tuple[str, str], ...]:
    return tuple((f"pluginConfig[{at}].name", one.name) for at, one in enumerate(profile.plugin_config))


@cache
def load_plugin_classes() -> tuple[type, ...]:
    """Return the plugin classes that installed packages register as entry points, sorted by name.

    Raises:
      PluginError: a class cannot be loaded.
    """
    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda entry_point: entry_point.name)
    return tuple(call_plugin(point, "loading", point.load) for point in points)


@cache
def standard_registry() -> Registry:
    """Return the registry of all installed plugins, with the default plugins and default weights."""
    return Registry(load_plugin_classes(), DEFAULT_PLUGINS, DEFAULT_WEIGHTS)


def _make(plugin: type, arguments: Mapping[str, Any]) -> object:
    model = getattr(plugin, "Args", None)
    if model is None:
        if arguments:
            raise InvalidInput(
                "the plugin takes no arguments", object=f"plugin {plugin_name(plugin)}", field="args"
            )
        return _built(plugin)
    return _built(plugin, _validated(model, arguments, plugin_name(plugin)))


def _built(plugin: type, *arguments: object) -> object:
    """Construct a plugin, and check that it is hashable and its traits are valid.

    The pipeline keeps plugins in sets; a dataclass that is not frozen has no hash.
    """
    made: object = call_plugin(plugin, "construction", plugin, *arguments)
    call_plugin(plugin, "construction", hash, made)
    call_plugin(plugin, "construction", traits_of, made)
    return made


def _validated(model: type[BaseModel], arguments: Mapping[str, Any], plugin: str) -> BaseModel:
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        first, *further = field_errors(error, model)
        more = "".join(f"\nplugin {plugin}: {_below_args(other)}: {other.message}" for other in further)
        raise InvalidInput(
            first.message + more, object=f"plugin {plugin}", field=_below_args(first)
        ) from error


def _below_args(complaint: FieldError) -> str:
    return f"args.{complaint.field}" if complaint.field else "args"

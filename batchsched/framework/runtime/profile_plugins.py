"""Merges the default plugins with a profile's changes into the list of plugins of each extension point.

As in kube-scheduler there are two steps. First the profile's multiPoint changes the defaults: disabled plugins are
removed, plugins enabled again keep their position and get the new weight, new plugins are last. Then multiPoint is
expanded to the points. A point omits what it disables. Plugins that it enables itself are first if multiPoint has
them too, else last.

Source: `mergePluginSet` of kube-scheduler's apis/config/v1/default_plugins.go; `updatePluginList`,
`expandMultiPointPlugins` and `getScoreWeights` of framework/runtime/framework.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic.alias_generators import to_camel

from batchsched.config.plugins import ALL, EnabledPlugin, Plugins, PluginSet
from batchsched.errors import InvalidInput
from batchsched.framework import interface as points
from batchsched.framework.runtime.plugin_call import name_of

POINTS: Final[Mapping[str, Any]] = {
    "pre_enqueue": points.PreEnqueuePlugin,
    "queue_sort": points.QueueSortPlugin,
    "pre_filter": points.PreFilterPlugin,
    "filter": points.FilterPlugin,
    "post_filter": points.PostFilterPlugin,
    "pre_score": points.PreScorePlugin,
    "score": points.ScorePlugin,
    "reserve": points.ReservePlugin,
    "permit": points.PermitPlugin,
    "pre_bind": points.PreBindPlugin,
    "bind": points.BindPlugin,
    "post_bind": points.PostBindPlugin,
}
"""Name of an extension point in a profile → protocol of its plugins."""


def everywhere(defaults: Iterable[EnabledPlugin], changes: Plugins) -> tuple[EnabledPlugin, ...]:
    """Return the plugins of multiPoint: the defaults with the profile's changes."""
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


def needed(multi: Iterable[EnabledPlugin], changes: Plugins) -> tuple[str, ...]:
    """Return the names of all plugins that are enabled at some point, those of multiPoint first."""
    names = dict.fromkeys(one.name for one in multi)
    for point in POINTS:
        names |= dict.fromkeys(one.name for one in _set(changes, point).enabled)
    return tuple(names)


def by_point(
    multi: Iterable[EnabledPlugin], changes: Plugins, made: Mapping[str, object]
) -> dict[str, tuple[object, ...]]:
    """Return the plugins of each extension point, in the order of their calls.

    Args:
      multi: the plugins of multiPoint.
      changes: the profile's changes.
      made: name → plugin; names that are missing are ignored.

    Raises:
      InvalidInput: a point enables a plugin that does not implement it, or several plugins sort the queue.
    """
    chosen = {
        point: _plugins_at(point, protocol, multi, _set(changes, point), made)
        for point, protocol in POINTS.items()
    }
    sorting = chosen["queue_sort"]
    if len(sorting) > 1:
        raise InvalidInput(
            f"{' and '.join(name_of(one) for one in sorting)} all sort the queue, and only one may; disable the others",
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


def weights_of(multi: Iterable[EnabledPlugin], changes: Plugins) -> dict[str, int]:
    """Return name → weight of Score plugins. A point's weight precedes multiPoint's.

    0 and missing weights count as 1.
    """
    weights: dict[str, int] = {}
    for plugin in (*changes.score.enabled, *multi):
        weights.setdefault(plugin.name, plugin.weight or 1)
    return weights


def _set(changes: Plugins, point: str) -> PluginSet:
    point_changes: PluginSet = getattr(changes, point)
    return point_changes

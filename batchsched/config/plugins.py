"""The schema of plugin settings, in the format of kube-scheduler, and the list of default plugins.

`batchsched.framework.runtime.registry` derives the list of plugins at each extension point from it.

Source: the default MultiPoint list and weights of kube-scheduler 1.37, followed by NodeResourceTopologyMatch of the
scheduler-plugins project and GangScheduling.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

from pydantic import Field, field_validator, model_validator

from batchsched.api.crd.base import StrictModel
from batchsched.api.crd.validation import field_path

DEFAULT_PLUGINS: Final = (
    "SchedulingGates",
    "PrioritySort",
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "DefaultPreemption",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "DefaultBinder",
    "NodeDeclaredFeatures",
    "NodeResourceTopologyMatch",
    "GangScheduling",
)

DEFAULT_WEIGHTS: Final = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "NodeResourceTopologyMatch": 1,
}


ALL: Final = "*"
LARGEST_WEIGHT: Final = 2**31 - 1
KUBE_GROUP: Final = "kubescheduler.config.k8s.io/"

IGNORED_IF_UNKNOWN: Final = frozenset(
    {
        "AzureDiskLimits",
        "CinderLimits",
        "DefaultPreemption",
        "DeferredPodScheduling",
        "DynamicResources",
        "EBSLimits",
        "GCEPDLimits",
        "NodeDeclaredFeatures",
        "NodeVolumeLimits",
        "PodGroupPodsCount",
        "TopologyPlacementGenerator",
        "VolumeBinding",
        "VolumeZone",
    }
)
"""Plugins that a file of kube-scheduler may name. If such a plugin is not registered, it is ignored with a warning."""


def check_unique(names: Sequence[str], field: str, advice: str = "") -> None:
    """Check that no name occurs twice in a list of the configuration.

    Raises:
      ValueError: a name occurs more than once; the message names the field and ends with the advice.
    """
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{field}: {', '.join(repeated)} occurs more than once{advice}")


class NullTolerantModel(StrictModel):
    """The base class of settings in the format of Kubernetes, where null counts as an absent field."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None}
        return data


class EnabledPlugin(NullTolerantModel):
    """A plugin that is enabled, with the weight of its scores."""

    name: str = Field(min_length=1)
    """Registered name of the plugin."""
    weight: int | None = Field(default=None, ge=0, le=LARGEST_WEIGHT)
    """Weight of the plugin's scores.

    If unset: the plugin's default weight in plugins.enabled, and 1 at an extension point or in multiPoint. 0 means
    1, as in kube-scheduler.
    """


class DisabledPlugin(NullTolerantModel):
    """A plugin that is disabled."""

    name: str = Field(min_length=1)
    """Registered name of the plugin; * for all plugins."""
    weight: int | None = None
    """Accepted without effect, as in kube-scheduler."""


class PluginSet(NullTolerantModel):
    """Plugins that are enabled or disabled at one extension point, such as filter, or at all points (multiPoint)."""

    enabled: tuple[EnabledPlugin, ...] = ()
    """Enabled plugins, in call order."""
    disabled: tuple[DisabledPlugin, ...] = ()
    """Plugins that multiPoint enables and this extension point disables."""


EMPTY_PLUGIN_SET: Final = PluginSet()


class Plugins(NullTolerantModel):
    """The plugins that a profile enables or disables, as changes to the default plugins.

    An extension point overrides multiPoint, which overrides the defaults.

    A default plugin that multiPoint enables again keeps its position. At an extension point, plugins that are enabled
    both there and in multiPoint come before the other plugins of multiPoint; plugins enabled only there come last.
    """

    disabled: tuple[str, ...] = ()
    """Default plugins to disable at all extension points; * for all. Short form of multiPoint."""
    enabled: tuple[EnabledPlugin, ...] = ()
    """Plugins to enable at all extension points, or to give another weight.

    Short form of multiPoint, which is applied afterwards.
    """
    pre_enqueue: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that may keep a pod out of the queue."""
    queue_sort: PluginSet = EMPTY_PLUGIN_SET
    """The plugin that orders pods; at most one may be enabled."""
    pre_filter: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that are called once for a pod before Filter."""
    filter: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that reject nodes."""
    post_filter: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that are called if no node is feasible."""
    pre_score: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that are called once for a pod before Score."""
    score: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that score nodes."""
    reserve: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that reserve resources of a pod on its node."""
    permit: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that may let a pod wait before it is bound."""
    pre_bind: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that prepare the binding of a pod."""
    bind: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that write the binding of a pod."""
    post_bind: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that are notified of a binding."""
    multi_point: PluginSet = EMPTY_PLUGIN_SET
    """Plugins at all their extension points, unless an extension point overrides it."""

    @model_validator(mode="after")
    def _check_enabled_once(self) -> Self:
        for place, names in self.enabled_plugin_lists_with_paths():
            check_unique(names, place, "; keep one of them")
        return self

    def enabled_plugin_lists_with_paths(self) -> tuple[tuple[str, list[str]], ...]:
        """Return each list of enabled plugins, as its field path below `plugins` and its plugin names."""
        places: list[tuple[str, list[str]]] = [("enabled", [plugin.name for plugin in self.enabled])]
        for name, field in type(self).model_fields.items():
            plugin_set = getattr(self, name)
            if isinstance(plugin_set, PluginSet):
                places.append((f"{field.alias}.enabled", [plugin.name for plugin in plugin_set.enabled]))
        return tuple(places)

    def enabled_and_disabled_plugins_with_paths(self) -> tuple[tuple[str, str], ...]:
        """Return each plugin that is enabled or disabled, as its field path below `plugins` and its name.

        The name `*`, which means all plugins, is left out.
        """
        named = [(field_path(("disabled", index)), name) for index, name in enumerate(self.disabled)]
        for place, names in self.enabled_plugin_lists_with_paths():
            named += [(f"{place}[{index}].name", name) for index, name in enumerate(names)]
        for name, field in type(self).model_fields.items():
            plugin_set = getattr(self, name)
            if isinstance(plugin_set, PluginSet):
                alias = str(field.alias)
                named += [
                    (field_path((alias, "disabled", index, "name")), plugin.name)
                    for index, plugin in enumerate(plugin_set.disabled)
                ]
        return tuple((place, name) for place, name in named if name != ALL)


class PluginConfig(NullTolerantModel):
    """The arguments of one plugin."""

    name: str = Field(min_length=1)
    """Registered name of the plugin."""
    args: dict[str, Any] = Field(default={})
    """Arguments of the plugin, which validates them. apiVersion and kind are allowed, as in the files of
    kube-scheduler.
    """

    @model_validator(mode="after")
    def _check_kind_of_args(self) -> Self:
        kind = self.args.get("kind")
        if KUBE_GROUP in str(self.args.get("apiVersion", "")) and kind not in (None, f"{self.name}Args"):
            raise ValueError(f"args.kind: expected '{self.name}Args', found {kind!r}")
        return self

    @field_validator("args")
    @classmethod
    def _drop_null_arguments(cls, args: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in args.items() if value is not None}

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the plugin, without the fields `apiVersion` and `kind`."""
        is_typed = (
            KUBE_GROUP in str(self.args.get("apiVersion", "")) or self.args.get("kind") == f"{self.name}Args"
        )
        type_fields = ("apiVersion", "kind") if is_typed else ()
        return {name: value for name, value in self.args.items() if name not in type_fields}


def check_plugins_configured_once(configs: Iterable[PluginConfig]) -> None:
    """Check that `pluginConfig` has at most one entry for each plugin.

    Raises:
      ValueError: a plugin is configured twice.
    """
    check_unique([config.name for config in configs], "pluginConfig", "; keep one of them")

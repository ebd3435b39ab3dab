"""Plugin traits: what a plugin declares about its results, so that the session may call it less often.

A plugin declares them as a class attribute or a property `traits`. Every default is safe: a plugin without traits is
called for every pod and every node, which is correct and slow. A promise that is too strong leads to wrong
placements.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, runtime_checkable


class PlacementEffect(Enum):
    """How a pod that the session places can change the verdict of a Filter about a node.

    NONE: not at all. The verdict depends on the pod and on Node objects only.
    TIGHTENS: a refused node stays refused; an accepted node may become refused.
    USES_CAPACITY: as TIGHTENS, and the capacities in the solver's problem express the whole effect. The solver's
      masks leave this Filter out.
    ANY: a node may become refused or accepted. This is the default.
    """

    NONE = "none"
    TIGHTENS = "tightens"
    USES_CAPACITY = "usesCapacity"
    ANY = "any"


class ResultScope(Enum):
    """The part of the cluster that determines a plugin's result about one node, for one class of equal pods.

    The scope holds for all extension points of the plugin. The cache keeps Filter verdicts and raw scores until
    something inside the scope changes. With any scope but CLUSTER, NormalizeScore may read only the raw scores, and
    PreFilter and PreScore may not read pods on nodes: they run again when a Node object changes.

    NODE_OBJECT: that node's object, and objects of the cluster that are neither nodes nor pods.
    ALL_NODE_OBJECTS: all Node objects. When one changes, the plugin is called for all nodes.
    NODE_AND_ITS_PODS: as NODE_OBJECT, the pods on that node, and the use of devices as `device_counts` counts it.
    CLUSTER: anything. Results are never stored. This is the default.
    """

    NODE_OBJECT = "nodeObject"
    ALL_NODE_OBJECTS = "allNodeObjects"
    NODE_AND_ITS_PODS = "nodeAndItsPods"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTraits:
    """The properties that a plugin declares about itself, so that its results can be cached.

    Some capabilities need a computation for each pod or resource. They are optional methods, each with a protocol in
    `framework.interface` that declares it: `SignaturePlugin`, `SelectorLabelKeysPlugin`,
    `ObjectSelectorLabelKeysPlugin`, `BulkFilterPlugin`, `SelectiveReservePlugin` and `IgnoredResourcesPlugin`.

    Args:
      placement_effect: how a placed pod changes the verdict of Filter. Read for Filter plugins.
      result_scope: what the results of PreFilter, Filter, PreScore and Score depend on. It counts only for a plugin
        with `signature`: without one, the session cannot tell which pods are equal for the plugin.
      reads_priority: PreFilter, Filter, PreScore or Score reads the priority of the class. If no plugin of the profile
        does, classes that differ only in priority share their results.
      preenqueue_reads_spec_only: PreEnqueue reads nothing of a pod but its spec. Of pods with the same spec only the
        first is passed to it.
      permit_is_per_gang: Permit gives the same answer for every pod of a gang once all of them are assumed. Of equal
        pods that are assumed together only the first is passed to it.
      postfilter_nominates: PostFilter may nominate a node. If no plugin of the profile does, the session evicts no pod.

    Raises:
      TypeError: a value has the wrong type.
    """

    placement_effect: PlacementEffect = PlacementEffect.ANY
    result_scope: ResultScope = ResultScope.CLUSTER
    reads_priority: bool = True
    preenqueue_reads_spec_only: bool = False
    permit_is_per_gang: bool = False
    postfilter_nominates: bool = True

    def __post_init__(self) -> None:
        # A string such as "none" would compare unequal to every member, and a promise would silently be lost.
        if not isinstance(self.placement_effect, PlacementEffect):
            raise TypeError(f"placement_effect must be a PlacementEffect, not {self.placement_effect!r}")
        if not isinstance(self.result_scope, ResultScope):
            raise TypeError(f"result_scope must be a ResultScope, not {self.result_scope!r}")


@runtime_checkable
class TraitsPlugin(Protocol):
    """A plugin that declares traits; from them, the session knows which plugin results it may cache."""

    @property
    def traits(self) -> PluginTraits:
        """The traits of this plugin; they do not change after construction."""


SAFE_TRAITS: Final = PluginTraits()
"""The traits of a plugin that declares none: no promise at all."""
NODE_OBJECT_TRAITS: Final = PluginTraits(
    placement_effect=PlacementEffect.NONE, result_scope=ResultScope.NODE_OBJECT, reads_priority=False
)
"""The traits of a plugin with results that depend on the Node object and on the pod without its priority."""


def traits_of(plugin: object) -> PluginTraits:
    """Return the traits that a plugin declares, or `SAFE_TRAITS` if it declares none.

    Raises:
      TypeError: `traits` is not a `PluginTraits`.
    """
    if not isinstance(plugin, TraitsPlugin):
        return SAFE_TRAITS
    declared: object = plugin.traits
    if not isinstance(declared, PluginTraits):
        raise TypeError(f"traits must be a PluginTraits, not {declared!r}")
    return declared

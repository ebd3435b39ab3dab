"""Which plugins take part at which point: the shape that kube-scheduler's users know, in its words.

How the parts of it add up to a pipeline stands in framework/enabling.py.
"""

from collections.abc import Iterable
from typing import Any, Final, Self

from pydantic import Field, field_validator, model_validator

from batchsched.api.crd.base import SpecPart
from batchsched.api.crd.validation import path

ALL: Final = "*"
LARGEST_WEIGHT: Final = 2**31 - 1
KUBE_GROUP: Final = "kubescheduler.config.k8s.io/"

PASSED_OVER: Final = frozenset(
    {
        "AzureDiskLimits",
        "CinderLimits",
        "DefaultPreemption",
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
"""Plugins that kube-scheduler's files may name: one that is not registered here is passed over with a warning."""


class Lenient(SpecPart):
    """A part in which null counts as not stated, as it does in Kubernetes."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_stated(cls, stated: Any) -> Any:
        if isinstance(stated, dict):
            return {name: value for name, value in stated.items() if value is not None}
        return stated


class EnabledPlugin(Lenient):
    """A plugin that takes part."""

    name: str = Field(min_length=1, description="The name under which the plugin is registered.")
    weight: int | None = Field(
        default=None,
        ge=0,
        le=LARGEST_WEIGHT,
        description="Weight of its scores. None beside plugins.enabled: the plugin's own. None at a point or at "
        "multiPoint, and 0 anywhere: 1, as in kube-scheduler.",
    )


class DisabledPlugin(Lenient):
    """A plugin that is left out."""

    name: str = Field(min_length=1, description="The name under which the plugin is registered; * for all.")
    weight: int | None = Field(
        default=None, description="Accepted, and without effect, as in kube-scheduler."
    )


class PluginSet(Lenient):
    """Plugins at one POINT, preEnqueue to postBind, or with multiPoint at every point that they have."""

    enabled: tuple[EnabledPlugin, ...] = Field(
        default=(), description="Plugins that take part here, in this order."
    )
    disabled: tuple[DisabledPlugin, ...] = Field(
        default=(), description="Plugins that multiPoint enables, and that are left out here."
    )


NOTHING_STATED: Final = PluginSet()


class Plugins(Lenient):
    """Changes to the default plugins. A point beats multiPoint, and multiPoint beats the defaults.

    A default that multiPoint enables again keeps its place. What a point enables stands before what it has from
    multiPoint where it is enabled there too, and behind it otherwise.
    """

    disabled: tuple[str, ...] = Field(
        default=(),
        description="Default plugins to leave out everywhere; * for all of them. Shorter than multiPoint.",
    )
    enabled: tuple[EnabledPlugin, ...] = Field(
        default=(),
        description="Plugins to add everywhere, or to weigh anew. Shorter than multiPoint, which comes on top.",
    )
    pre_enqueue: PluginSet = Field(default=NOTHING_STATED, description="Who may keep a pod out of the queue.")
    queue_sort: PluginSet = Field(
        default=NOTHING_STATED, description="Who orders pods; at most one may be left."
    )
    pre_filter: PluginSet = Field(default=NOTHING_STATED, description="Who is asked once before Filter.")
    filter: PluginSet = Field(default=NOTHING_STATED, description="Who judges nodes.")
    post_filter: PluginSet = Field(default=NOTHING_STATED, description="Who is asked when no node fits.")
    pre_score: PluginSet = Field(default=NOTHING_STATED, description="Who is asked once before Score.")
    score: PluginSet = Field(default=NOTHING_STATED, description="Who ranks nodes.")
    reserve: PluginSet = Field(default=NOTHING_STATED, description="Who keeps what a pod needs on its node.")
    permit: PluginSet = Field(default=NOTHING_STATED, description="Who may make a pod wait.")
    pre_bind: PluginSet = Field(default=NOTHING_STATED, description="Who prepares a binding.")
    bind: PluginSet = Field(default=NOTHING_STATED, description="Who writes a binding.")
    post_bind: PluginSet = Field(default=NOTHING_STATED, description="Who takes note of a binding.")
    multi_point: PluginSet = Field(
        default=NOTHING_STATED,
        description="Every point that the plugin has, unless the point says otherwise.",
    )

    @model_validator(mode="after")
    def _each_is_enabled_once(self) -> Self:
        for place, names in self.enabled_by_place():
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{place}: {', '.join(twice)} is stated more than once; keep one of them")
        return self

    def enabled_by_place(self) -> tuple[tuple[str, list[str]], ...]:
        """Return the enabled names with the path below `plugins` under which they stand."""
        places: list[tuple[str, list[str]]] = [("enabled", [one.name for one in self.enabled])]
        for name, field in type(self).model_fields.items():
            stated = getattr(self, name)
            if isinstance(stated, PluginSet):
                places.append((f"{field.alias}.enabled", [one.name for one in stated.enabled]))
        return tuple(places)

    def names(self) -> tuple[tuple[str, str], ...]:
        """Return every plugin that is named, enabled or disabled, with the path under which it stands."""
        found = [(path(("disabled", at)), name) for at, name in enumerate(self.disabled)]
        for place, names in self.enabled_by_place():
            found += [(f"{place}[{at}].name", name) for at, name in enumerate(names)]
        for name, field in type(self).model_fields.items():
            stated = getattr(self, name)
            if isinstance(stated, PluginSet):
                alias = str(field.alias)
                found += [
                    (path((alias, "disabled", at, "name")), one.name)
                    for at, one in enumerate(stated.disabled)
                ]
        return tuple((place, name) for place, name in found if name != ALL)


class PluginConfig(Lenient):
    """Arguments of one plugin."""

    name: str = Field(min_length=1, description="The name under which the plugin is registered.")
    args: dict[str, Any] = Field(
        default={},
        description="Its arguments; the plugin checks them. apiVersion and kind, as kube-scheduler's files have "
        "them, may stand among them.",
    )

    @model_validator(mode="after")
    def _args_are_of_the_plugin(self) -> Self:
        kind = self.args.get("kind")
        if KUBE_GROUP in str(self.args.get("apiVersion", "")) and kind not in (None, f"{self.name}Args"):
            raise ValueError(f"args.kind: expected '{self.name}Args', found {kind!r}")
        return self

    @field_validator("args")
    @classmethod
    def _null_arguments_are_not_stated(cls, args: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in args.items() if value is not None}

    @property
    def stated(self) -> dict[str, Any]:
        """The arguments without the apiVersion and kind of kube-scheduler's files."""
        named = (
            KUBE_GROUP in str(self.args.get("apiVersion", "")) or self.args.get("kind") == f"{self.name}Args"
        )
        kept = ("apiVersion", "kind") if named else ()
        return {name: value for name, value in self.args.items() if name not in kept}


def check_configured_once(stated: Iterable[PluginConfig]) -> None:
    """Refuse a plugin whose arguments stand in two places.

    Raises:
      ValueError: there is one.
    """
    names = [one.name for one in stated]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"pluginConfig: {', '.join(twice)} is stated more than once; keep one of them")

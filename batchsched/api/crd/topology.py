"""Topology, the custom resource that defines levels such as zone, block and rack."""

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from batchsched.api.crd.base import (
    LONGEST_NAME,
    CustomMeta,
    StrictModel,
    validation_rule,
    validation_rules_schema_extension,
)

MOST_LEVELS = 16


class TopologyLevel(StrictModel):
    """A topology level: nodes with the same value of a label form one domain."""

    name: str = Field(min_length=1, max_length=LONGEST_NAME)
    """Name of the level, as PodGroups refer to it."""
    node_label: str = Field(min_length=1, max_length=2 * LONGEST_NAME)
    """Node label; its value is the name of the domain."""


class TopologySpec(StrictModel):
    """The spec of a Topology: its levels, widest first."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules_schema_extension(
            validation_rule(
                "self.levels == oldSelf.levels",
                "levels cannot change: gangs were placed by them; make another Topology",
                ".levels",
            )
        )
    )

    levels: tuple[TopologyLevel, ...] = Field(
        min_length=1,
        max_length=MOST_LEVELS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Levels from the widest to the narrowest. They cannot be changed, because gangs were placed by them."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ValueError("levels: two of them have one name; each needs a name of its own")
        return self

    def find_level_index(self, level: str) -> int | None:
        """Return the index of the level with this name or, if there is none, of the widest level with this node label.

        PodGroups name a level by its name. PodGroups of other projects name it by its node label.
        """
        for names in ([item.name for item in self.levels], [item.node_label for item in self.levels]):
            if level in names:
                return names.index(level)
        return None


class Topology(StrictModel):
    """A topology of the cluster: a named hierarchy of node labels, such as zone, block and rack."""

    api_version: Literal["scheduling.batchsched.dev/v1alpha1"] = "scheduling.batchsched.dev/v1alpha1"
    kind: Literal["Topology"] = "Topology"
    metadata: CustomMeta
    spec: TopologySpec
    status: dict[str, object] | None = None

    @property
    def name(self) -> str:
        """The name of the Topology, unique in the cluster."""
        return self.metadata.name

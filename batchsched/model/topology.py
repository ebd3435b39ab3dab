"""Topology: how nodes lie in racks, blocks and zones, from the widest level to the narrowest."""

from typing import Literal, Self

from pydantic import Field, model_validator

from batchsched.model.custom import CustomMeta, Part


class TopologyLevel(Part):
    """A level and the node label whose value names the domain."""

    name: str = Field(min_length=1)
    node_label: str = Field(min_length=1)


class TopologySpec(Part):
    """The levels, widest first."""

    levels: tuple[TopologyLevel, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ValueError("levels: two of them have one name; each needs a name of its own")
        return self


class Topology(Part):
    """A named hierarchy of node labels."""

    api_version: Literal["scheduling.batchsched.dev/v1alpha1"] = "scheduling.batchsched.dev/v1alpha1"
    kind: Literal["Topology"] = "Topology"
    metadata: CustomMeta
    spec: TopologySpec
    status: dict[str, object] | None = None

    @property
    def name(self) -> str:
        """The name, unique in the cluster."""
        return self.metadata.name

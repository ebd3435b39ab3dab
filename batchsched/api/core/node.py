"""Nodes: what a machine offers, and what it keeps away."""

from collections.abc import Mapping

import msgspec

from batchsched.api.core.metadata import ObjectMeta, Value
from batchsched.api.core.quantity import base_units
from batchsched.api.core.selector import EMPTY_LABELS


class Taint(Value, frozen=True, gc=False):
    """A mark that keeps away pods that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class ContainerImage(Value, frozen=True, gc=False):
    """An image that is on a node already."""

    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class NodeCondition(Value, frozen=True, gc=False):
    """One condition of a node, such as Ready."""

    type: str = ""
    status: str = ""


class NodeSpec(Value, frozen=True, gc=False):
    """The part of a node that its owner sets."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeStatus(Value, frozen=True, gc=False):
    """The part of a node that its kubelet tells."""

    allocatable: dict[str, str | int | float] | None = None
    capacity: dict[str, str | int | float] | None = None
    images: tuple[ContainerImage, ...] | None = None
    conditions: tuple[NodeCondition, ...] | None = None
    declared_features: tuple[str, ...] | None = None


class Node(Value, frozen=True, gc=False):
    """A machine of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        """The name, unique in the cluster."""
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels, never None."""
        return self.metadata.labels or EMPTY_LABELS

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The taints, never None."""
        return self.spec.taints or ()

    @property
    def offered(self) -> Mapping[str, str | int | float]:
        """What pods may use, as it is written; capacity where allocatable is not stated."""
        return self.status.allocatable or self.status.capacity or {}

    def allocatable(self) -> dict[str, int]:
        """Return what pods may use, in base units.

        Raises:
          InvalidQuantity: an amount that is no quantity.
        """
        return {resource: base_units(resource, text) for resource, text in self.offered.items()}

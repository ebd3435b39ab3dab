"""Nodes: their resources, taints, images and conditions."""

from collections.abc import Mapping
from typing import Final

import msgspec

from batchsched.api.core.metadata import KubernetesObject, KubernetesValue
from batchsched.api.core.quantity import parse_quantity_in_base_units

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
"""The label of a node that names it; unlike labels of zones, its value is different on every node."""


class Taint(KubernetesValue, frozen=True, gc=False):
    """A taint of a node, which excludes pods that do not tolerate the taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class ContainerImage(KubernetesValue, frozen=True, gc=False):
    """An image that is present on a node."""

    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class NodeCondition(KubernetesValue, frozen=True, gc=False):
    """A condition in the status of a node, such as Ready."""

    type: str = ""
    status: str = ""


class NodeSpec(KubernetesValue, frozen=True, gc=False):
    """The fields of a node's spec that scheduling reads."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeStatus(KubernetesValue, frozen=True, gc=False):
    """The fields of a node's status that scheduling reads: resources, images, conditions and features."""

    allocatable: dict[str, str | int | float] | None = None
    capacity: dict[str, str | int | float] | None = None
    images: tuple[ContainerImage, ...] | None = None
    conditions: tuple[NodeCondition, ...] | None = None
    declared_features: tuple[str, ...] | None = None


class Node(KubernetesObject, frozen=True, gc=False):
    """A node of the cluster, reduced to the fields that scheduling reads."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The taints of the node, empty if it has none."""
        return self.spec.taints or ()

    @property
    def allocatable_quantities(self) -> Mapping[str, str | int | float]:
        """The allocatable resources of the node as Kubernetes quantities; its capacity if `allocatable` is missing."""
        return self.status.allocatable or self.status.capacity or {}

    def parse_allocatable_in_base_units(self) -> dict[str, int]:
        """Return the allocatable resources of the node in base units: milli-CPU, bytes, devices.

        Raises:
          InvalidQuantity: an amount is not a quantity.
        """
        return {
            resource: parse_quantity_in_base_units(resource, text)
            for resource, text in self.allocatable_quantities.items()
        }

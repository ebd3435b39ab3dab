"""NodeResourceTopology: the NUMA zones of a node, with the resources that are available in each of them.

An agent on the node writes the object, such as the topology updater of Node Feature Discovery. Its name is that of the
node.

Source: k8stopologyawareschedwg/noderesourcetopology-api, `topology.node.k8s.io/v1alpha2`.
"""

from typing import Final

from batchsched.api.core.metadata import KubernetesObject, KubernetesValue

GROUP_VERSION: Final = "topology.node.k8s.io/v1alpha2"

Amount = str | int | float


class TopologyAttribute(KubernetesValue, frozen=True, gc=False):
    """An attribute of a NodeResourceTopology, such as the policy of the kubelet's Topology Manager."""

    name: str = ""
    value: str = ""


class ZoneCost(KubernetesValue, frozen=True, gc=False):
    """The distance from a zone to another zone of the node, as the firmware states it."""

    name: str = ""
    value: int = 0


class ZoneResource(KubernetesValue, frozen=True, gc=False):
    """The amounts of one resource in a zone: capacity, allocatable for pods, and available for new pods."""

    name: str = ""
    capacity: Amount = 0
    allocatable: Amount = 0
    available: Amount = 0


class TopologyZone(KubernetesValue, frozen=True, gc=False):
    """A zone of a node: a NUMA zone if its type is `Node`."""

    name: str = ""
    type: str = ""
    parent: str = ""
    costs: tuple[ZoneCost, ...] | None = None
    attributes: tuple[TopologyAttribute, ...] | None = None
    resources: tuple[ZoneResource, ...] | None = None


class NodeResourceTopology(KubernetesObject, frozen=True, gc=False):
    """The NUMA zones of the node with the same name, and the configuration of its Topology Manager."""

    topology_policies: tuple[str, ...] | None = None
    zones: tuple[TopologyZone, ...] = ()
    attributes: tuple[TopologyAttribute, ...] | None = None

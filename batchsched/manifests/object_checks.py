"""The checks that the API server runs at every write of an object, applied to decoded objects.

Files reach batchsched without an API server. In a cluster, the definitions of custom resources of other projects may
check less than their controllers expect.
"""

import msgspec

from batchsched.api.core.cluster_objects import PodDisruptionBudget, PriorityClass, ReplicaSet, StatefulSet
from batchsched.api.core.node import Node
from batchsched.api.core.node_resource_topology import NodeResourceTopology
from batchsched.api.core.volume import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from batchsched.api.external.hyper_node import HyperNode, describe_unusable_pattern
from batchsched.errors import InvalidInput
from batchsched.manifests import api_server
from batchsched.manifests.device_checks import check_device_quantities


def check_object_at_every_write(decoded: msgspec.Struct) -> None:
    """Check a decoded object with the rules for its kind that the API server applies at every write.

    Raises:
      InvalidInput: a field is invalid.
    """
    match decoded:
        case Node():
            api_server.check_node(decoded)
        case PriorityClass():
            api_server.check_int32(decoded.value, "value")
        case PodDisruptionBudget() | ReplicaSet() | StatefulSet():
            api_server.check_label_selector(decoded.spec.selector, "spec.selector")
        case PersistentVolume():
            api_server.check_resource_quantities(decoded.spec.capacity, "spec.capacity")
            affinity = decoded.spec.node_affinity
            api_server.check_node_selector(
                affinity.required if affinity else None, "spec.nodeAffinity.required"
            )
        case PersistentVolumeClaim():
            requested = decoded.spec.resources
            api_server.check_resource_quantities(
                requested.requests if requested else None, "spec.resources.requests"
            )
            api_server.check_label_selector(decoded.spec.selector, "spec.selector")
        case CSIStorageCapacity():
            for name, amount in (
                ("capacity", decoded.capacity),
                ("maximumVolumeSize", decoded.maximum_volume_size),
            ):
                if amount is not None:
                    api_server.check_resource_quantity("storage", amount, name)
            api_server.check_label_selector(decoded.node_topology, "nodeTopology")
        case HyperNode() | NodeResourceTopology():
            _check_custom_object(decoded)
        case _:
            check_device_quantities(decoded)


def _check_custom_object(decoded: HyperNode | NodeResourceTopology) -> None:
    """Check a custom resource of another project: a HyperNode or a NodeResourceTopology.

    Raises:
      InvalidInput: a field is invalid.
    """
    if isinstance(decoded, HyperNode):
        _check_hyper_node(decoded)
    else:
        _check_node_resource_topology(decoded)


def _check_hyper_node(hyper_node: HyperNode) -> None:
    """Check the selectors by which a HyperNode states its members.

    Raises:
      InvalidInput: an expression is invalid, or a pattern is not usable.
    """
    for index, member in enumerate(hyper_node.spec.members or ()):
        field = f"spec.members[{index}].selector"
        api_server.check_label_selector(member.selector.label_match, f"{field}.labelMatch")
        if member.selector.regex_match is not None:
            pattern = member.selector.regex_match.pattern
            problem = describe_unusable_pattern(pattern)
            if problem:
                raise InvalidInput(f"{pattern[:60]!r} {problem}", field=f"{field}.regexMatch.pattern")


def _check_node_resource_topology(topology: NodeResourceTopology) -> None:
    """Check the resource amounts in the zones of a NodeResourceTopology.

    Raises:
      InvalidInput: an amount is not a quantity, is negative, or is too large.
    """
    for number, zone in enumerate(topology.zones):
        for index, resource in enumerate(zone.resources or ()):
            field = f"zones[{number}].resources[{index}]"
            api_server.check_resource_quantity(resource.name, resource.capacity, f"{field}.capacity")
            api_server.check_resource_quantity(resource.name, resource.allocatable, f"{field}.allocatable")
            api_server.check_resource_quantity(resource.name, resource.available, f"{field}.available")

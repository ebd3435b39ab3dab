"""NodeResourceTopologies and Guaranteed pods for tests, from a few words."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from batchsched.api.core.node import Node
from batchsched.api.core.node_resource_topology import NodeResourceTopology
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.framework.nodes.node_table import NodeTable
from tests.plugins import cluster

Available = Mapping[str, str]


def topology(
    name: str,
    *zones: Available,
    scope: str = "container",
    policy: str = "single-numa-node",
    costs: Mapping[int, Iterable[int]] | None = None,
) -> NodeResourceTopology:
    """The object of a node with these amounts available in zones 0, 1, …, and the distances of each zone."""
    return msgspec.convert(
        {
            "metadata": {"name": name},
            "attributes": [
                {"name": "topologyManagerPolicy", "value": policy},
                {"name": "topologyManagerScope", "value": scope},
            ],
            "zones": [
                {
                    "name": f"node-{number}",
                    "type": "Node",
                    "costs": [
                        {"name": f"node-{other}", "value": value}
                        for other, value in enumerate((costs or {}).get(number, ()))
                    ],
                    "resources": [
                        {"name": one, "capacity": amount, "allocatable": amount, "available": amount}
                        for one, amount in available.items()
                    ],
                }
                for number, available in enumerate(zones)
            ],
        },
        NodeResourceTopology,
    )


def container(requests: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """A container with limits that equal its requests."""
    return {"name": "c", "resources": {"requests": dict(requests), "limits": dict(requests)}, **more}


def guaranteed(name: str, *containers: Mapping[str, str], init: Iterable[dict[str, Any]] = ()) -> Pod:
    """A Guaranteed pod with containers that request these amounts."""
    return cluster.pod(
        name,
        containers=[container(one, name=f"c{at}") for at, one in enumerate(containers)],
        initContainers=[{**one, "name": f"i{at}"} for at, one in enumerate(init)],
    )


def running(one: Pod) -> Pod:
    """The same pod after the kubelet has started it."""
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, phase="Running"))


def table(
    topologies: Iterable[NodeResourceTopology],
    bound: Mapping[str, Iterable[Pod]] | None = None,
    nodes: Iterable[Node] = (),
) -> NodeTable:
    """A node table with large nodes of these names, and with the topologies in its snapshot."""
    topologies = tuple(topologies)
    room = {"cpu": "256", "memory": "1Ti", "nvidia.com/gpu": "16", "example.com/nic": "16"}
    named = tuple(nodes) or tuple(cluster.node(one.name, room) for one in topologies)
    made = cluster.table(named, bound, extra=("nvidia.com/gpu", "example.com/nic"))
    made.cluster_objects = replace(made.cluster_objects, node_resource_topologies=topologies)
    return made


def snapshot(topologies: Iterable[NodeResourceTopology], nodes: Iterable[Node], *parts: Snapshot) -> Snapshot:
    """A cluster with topologies and gangs."""
    return Snapshot(
        nodes=tuple(nodes),
        node_resource_topologies=tuple(topologies),
        pods=tuple(one for part in parts for one in part.pods),
        pod_groups=tuple(one for part in parts for one in part.pod_groups),
    )

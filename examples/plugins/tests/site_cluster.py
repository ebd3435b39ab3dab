"""A small cluster in few words, and the registry with our two plugins."""

from collections.abc import Callable

from batchsched_site.driver_version import DriverVersion
from batchsched_site.node_owner import NodeOwner

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.node import Node, NodeStatus
from batchsched.api.core.pod import Container, Pod, PodSpec, ResourceRequirements
from batchsched.api.decision import Decision
from batchsched.config.plugins import DEFAULT_PLUGINS, DEFAULT_WEIGHTS
from batchsched.framework.runtime.registry import Registry, load_plugin_classes

Schedule = Callable[..., Decision]
"""Nodes, pods and arguments of DriverVersion in, a decision out."""


def node(name: str, **labels: str) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, labels={f"example.com/{key}": value for key, value in labels.items()}),
        status=NodeStatus(allocatable={"cpu": "8", "memory": "32Gi", "pods": "20", "nvidia.com/gpu": "4"}),
    )


def pod(name: str, namespace: str = "team-a", **requests: str) -> Pod:
    amounts = {"nvidia.com/gpu" if key == "gpu" else key: amount for key, amount in requests.items()}
    main = Container(name="main", resources=ResourceRequirements(requests=amounts))
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=PodSpec(scheduler_name="batchsched", containers=(main,)),
    )


def registry() -> Registry:
    """What is installed, and our two, installed or not."""
    return Registry([*load_plugin_classes(), DriverVersion, NodeOwner], DEFAULT_PLUGINS, DEFAULT_WEIGHTS)

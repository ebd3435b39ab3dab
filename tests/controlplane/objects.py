"""Objects as users write them: nodes, pods and gangs for the API server."""

from typing import Any

from batchsched.api.core.pod import POD_GROUP_LABEL
from batchsched.api.crd.base import API_VERSION

Manifest = dict[str, Any]
SCHEDULER = "batchsched"


def node(name: str, labels: dict[str, str] | None = None, **allocatable: str | int) -> Manifest:
    """A node of 32 CPUs and 256 Gi, unless stated otherwise; kwok makes it ready."""
    offered = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    offered |= {_resource(resource): str(amount) for resource, amount in allocatable.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"capacity": offered, "allocatable": offered},
    }


def pod(
    name: str,
    *,
    gang: str = "",
    labels: dict[str, str] | None = None,
    spec: Manifest | None = None,
    **requests: str | int,
) -> Manifest:
    """A pod of batchsched that requests a tenth of a CPU, unless stated otherwise."""
    asked = {_resource(resource): str(amount) for resource, amount in requests.items()} or {"cpu": "100m"}
    marks = {**({POD_GROUP_LABEL: gang} if gang else {}), **(labels or {})}
    limits = {resource: amount for resource, amount in asked.items() if "/" in resource}
    resources = {"requests": asked, **({"limits": limits} if limits else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": marks},
        "spec": {
            "schedulerName": SCHEDULER,
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            **(spec or {}),
        },
    }


def pod_group(name: str, min_member: int, **spec: Any) -> Manifest:
    """A PodGroup with its minimum, and more fields of its spec as they are written in YAML."""
    return custom("PodGroup", name, minMember=min_member, **spec)


def custom(kind: str, name: str, **spec: Any) -> Manifest:
    """An object of one of our kinds."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _resource(name: str) -> str:
    return "nvidia.com/gpu" if name == "gpu" else name

"""Objects of Dynamic Resource Allocation for the API server: what a driver publishes, and what users claim."""

from typing import Any

from tests.controlplane.fixtures import Namespace
from tests.controlplane.plane import Api

RESOURCES = "/apis/resource.k8s.io/v1"
GROUP = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"


def publish(api: Api, node: str, devices: int, **of_each: Any) -> None:
    """Publish the devices of a node, as its driver would."""
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}", **of_each} for number in range(devices)],
    }
    api.create(f"{RESOURCES}/resourceslices", {"metadata": {"name": node}, "spec": spec})


def device_class(api: Api, name: str = "gpu", **spec: Any) -> None:
    """Make a class of all devices of the driver."""
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    api.create(
        f"{RESOURCES}/deviceclasses", {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}
    )


def claim_spec(count: int = 1) -> dict[str, Any]:
    """The spec of a claim to some devices."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


def template(namespace: Namespace, name: str = "gpu", count: int = 1) -> None:
    """Make a template of claims."""
    path = namespace.path("resourceclaimtemplates", group=GROUP)
    namespace.api.create(path, {"metadata": {"name": name}, "spec": {"spec": claim_spec(count)}})


def claim(namespace: Namespace, name: str, count: int = 1) -> None:
    """Make a claim that pods share."""
    namespace.api.create(
        namespace.path("resourceclaims", group=GROUP), {"metadata": {"name": name}, "spec": claim_spec(count)}
    )


def build_extended_resource_claim(namespace: Namespace, name: str, pod: str, uid: str) -> None:
    """Make a claim for extended resources of a pod, as a leader leaves it that was killed soon afterwards."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": True}
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    metadata = {"name": name, "annotations": annotations, "ownerReferences": [owner]}
    path = namespace.path("resourceclaims", group=GROUP)
    namespace.api.create(path, {"metadata": metadata, "spec": claim_spec()})


def with_template(name: str = "gpu") -> dict[str, Any]:
    """The part of a pod's spec that asks for a claim of its own."""
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}]}


def sharing(name: str) -> dict[str, Any]:
    """The part of a pod's spec that uses a claim which is there."""
    return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}


def claims(namespace: Namespace) -> list[dict[str, Any]]:
    """The claims of a namespace."""
    listed: list[dict[str, Any]] = namespace.api.get(namespace.path("resourceclaims", group=GROUP))["items"]
    return listed


def devices_of(one: dict[str, Any]) -> list[str]:
    """The devices of a claim, as `pool/device`."""
    results = one.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return [f"{each['pool']}/{each['device']}" for each in results]


def consumers(one: dict[str, Any]) -> set[str]:
    """The names of the pods for which a claim is reserved."""
    return {each["name"] for each in one.get("status", {}).get("reservedFor", ())}


def used(namespace: Namespace) -> list[str]:
    """All allocated devices of a namespace, with repetitions."""
    return [device for one in claims(namespace) for device in devices_of(one)]

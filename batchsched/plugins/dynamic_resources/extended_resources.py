"""The claim for extended resources of a pod that DeviceClasses serve: `nvidia.com/gpu` without a device plugin.

A node that offers the resource itself, by a device plugin, serves it as ever. On all other nodes the pod needs a claim,
which is created when the pod is bound.

Source: kube-scheduler's plugins/dynamicresources, extendeddynamicresources.go.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from batchsched.api.core.device import (
    DEVICE_CLASS_PREFIX,
    EXTENDED_RESOURCE_CLAIM,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from batchsched.api.core.metadata import ObjectMeta, OwnerReference
from batchsched.api.core.pod import Container, Pod
from batchsched.api.core.quantity import parse_amount
from batchsched.api.core.requests import pod_requests, request_fields
from batchsched.framework.plugin_support.scores import is_extended

IN_MEMORY_NAME: Final = "<extended-resources>"
"""Name of the claim until it is created; not a valid name, so that no other claim has it."""


def resources_served_by_devices(pod: Pod, class_of_resource: Mapping[str, DeviceClass]) -> tuple[str, ...]:
    """Return the extended resources of a pod that some DeviceClass serves, in the order of their names."""
    return tuple(
        sorted(
            name
            for name, amount in pod_requests(pod).items()
            if amount and name in class_of_resource and may_be_served(name)
        )
    )


def requests_extended_resource(pod: Pod) -> bool:
    """Return whether a pod requests an extended resource, which a DeviceClass may serve."""
    return any(map(may_be_served, pod_requests(pod)))


def extended_claim_signature(pod: Pod) -> Hashable:
    """Return the fields of a pod that determine its claim for extended resources; () if it needs none."""
    return request_fields(pod) if requests_extended_resource(pod) else ()


def may_be_served(resource: str) -> bool:
    """Return whether a DeviceClass can serve a resource.

    Source: `IsDRAExtendedResourceName` of k8s.io/kubernetes/pkg/scheduler/util.
    """
    return is_extended(resource) or resource.startswith(DEVICE_CLASS_PREFIX)


def extended_claim(
    pod: Pod, resources: Sequence[str], class_of_resource: Mapping[str, DeviceClass]
) -> ResourceClaim:
    """Return the ResourceClaim that serves some of a pod's extended resources."""
    requests = [
        request
        for resource in sorted(resources)
        for request in _requests(pod, resource, class_of_resource[resource].metadata.name)
    ]
    return ResourceClaim(
        metadata=ObjectMeta(
            name=IN_MEMORY_NAME,
            namespace=pod.namespace,
            annotations={EXTENDED_RESOURCE_CLAIM: "true"},
            owner_references=(
                OwnerReference(
                    api_version="v1",
                    kind="Pod",
                    name=pod.metadata.name,
                    uid=pod.metadata.uid,
                    controller=True,
                ),
            ),
        ),
        spec=ResourceClaimSpec(
            devices=DeviceClaim(requests=tuple(sorted(requests, key=lambda request: request.name)))
        ),
    )


def extended_claim_key(pod: str) -> str:
    """Return the key under which a session reserves devices for the extended resources of the pod `namespace/name`."""
    return f"{pod}/{IN_MEMORY_NAME}"


def earlier_claim(pod: Pod, claims: Mapping[str, ResourceClaim]) -> ResourceClaim | None:
    """Return the ResourceClaim for extended resources that an earlier attempt to bind the pod created."""
    for claim in claims.values():
        if claim.metadata.annotation(EXTENDED_RESOURCE_CLAIM) == "true" and any(
            owner.controller and owner.name == pod.metadata.name and owner.uid == pod.metadata.uid
            for owner in claim.metadata.owner_references or ()
        ):
            return claim
    return None


def _requests(pod: Pod, resource: str, class_name: str) -> list[DeviceRequest]:
    """Return the requests for one resource: one for each container that needs more than it may use of others.

    An init container that ends before the others start may use the devices of all later containers.
    """
    containers = (*(pod.spec.init_containers or ()), *pod.spec.containers)
    init = len(pod.spec.init_containers or ())
    lasting: list[DeviceRequest | None] = [
        None
        if _ends_early(container, number < init)
        else _request(number, container, resource, class_name, 0)
        for number, container in enumerate(containers)
    ]
    largest: DeviceRequest | None = None
    for number, container in enumerate(containers):
        if not _ends_early(container, number < init):
            continue
        reusable = sum(_count(request) for request in lasting[number:])
        request = _request(number, container, resource, class_name, reusable)
        if _count(request) > _count(largest):
            largest = request
    return [request for request in (largest, *lasting) if request is not None]


def _ends_early(container: Container, is_init: bool) -> bool:
    return is_init and container.restart_policy != "Always"


def _count(request: DeviceRequest | None) -> int:
    return request.exactly.count if request is not None and request.exactly is not None else 0


def _request(
    number: int, container: Container, resource: str, class_name: str, reusable: int
) -> DeviceRequest | None:
    requested = (container.resources.requests if container.resources is not None else None) or {}
    count = parse_amount(resource, requested.get(resource, 0)) - reusable
    if count <= 0:
        return None
    return DeviceRequest(
        name=f"container-{number}-request-{sorted(requested).index(resource)}",
        exactly=ExactDeviceRequest(device_class_name=class_name, allocation_mode="ExactCount", count=count),
    )

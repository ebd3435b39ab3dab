"""The ResourceClaim for extended resources of a pod, such as `nvidia.com/gpu`, that DeviceClasses serve.

A node that offers the resource itself, by a device plugin, needs no claim to serve it. On all other nodes the pod needs
a claim, which is created when the pod is bound.

Source: kube-scheduler's plugins/dynamicresources, extendeddynamicresources.go.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from batchsched.api.core.device import (
    DEVICE_CLASS_PREFIX,
    EXTENDED_RESOURCE_CLAIM,
    ContainerExtendedResourceRequest,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from batchsched.api.core.metadata import ObjectMeta, OwnerReference
from batchsched.api.core.pod import Container, Pod
from batchsched.api.core.quantity import parse_quantity_in_base_units
from batchsched.api.core.requests import pod_requests
from batchsched.framework.plugin_support.scores import is_extended_resource

IN_MEMORY_NAME: Final = "<extended-resources>"
"""Name of the claim until it is created; not a valid name, so that no other claim has it."""


def resources_served_by_devices(pod: Pod, class_of_resource: Mapping[str, DeviceClass]) -> tuple[str, ...]:
    """Return the extended resources that a pod requests and that a DeviceClass provides, sorted by name."""
    if not _names_any_resource(pod, class_of_resource):
        return ()  # without adding up all requests of the pod
    return tuple(name for name in _requested_resources(pod) if name in class_of_resource)


def resources_not_served_by_devices(
    pod: Pod, class_of_resource: Mapping[str, DeviceClass]
) -> tuple[str, ...]:
    """Return the extended resources that a pod requests and that no DeviceClass provides, sorted by name."""
    return tuple(name for name in _requested_resources(pod) if name not in class_of_resource)


def _requested_resources(pod: Pod) -> list[str]:
    """Return the extended resources that a pod requests and a DeviceClass could serve, sorted by name."""
    requests = pod_requests(pod)
    return sorted(name for name, amount in requests.items() if amount and may_be_served_by_devices(name))


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.containers
    yield from pod.spec.init_containers or ()


def _names_any_resource(pod: Pod, resources: Mapping[str, DeviceClass]) -> bool:
    """Return whether a container of a pod requests one of some resources, even if only the amount 0."""
    for containers in (pod.spec.containers, pod.spec.init_containers or ()):
        for container in containers:
            requests = container.resources.requests if container.resources is not None else None
            if requests and not resources.keys().isdisjoint(requests):
                return True
    return False


def requests_extended_resource(pod: Pod) -> bool:
    """Return whether a pod requests any extended resource that a DeviceClass could provide.

    A request for the amount 0 also counts.
    """
    # The quantities are not parsed: this is asked for each new pod spec, and only the names matter.
    resources = (pod.spec.resources, *(container.resources for container in _containers(pod)))
    return any(
        may_be_served_by_devices(name)
        for requirements in resources
        if requirements is not None
        for name in requirements.requests or ()
    )


def may_be_served_by_devices(resource: str) -> bool:
    """Return whether a DeviceClass could provide a resource with this name, such as `nvidia.com/gpu`.

    Source: `IsDRAExtendedResourceName` of k8s.io/kubernetes/pkg/scheduler/util.
    """
    return is_extended_resource(resource) or resource.startswith(DEVICE_CLASS_PREFIX)


def build_extended_resource_claim(
    pod: Pod, resources: Sequence[str], class_of_resource: Mapping[str, DeviceClass]
) -> ResourceClaim:
    """Return the ResourceClaim with which batchsched requests devices for a pod's extended resources."""
    requests = [
        request
        for resource in sorted(resources)
        for request in _resource_requests(pod, resource, class_of_resource[resource].metadata.name).requests
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


def extended_resource_request_mappings(
    pod: Pod, resources: Sequence[str], class_of_resource: Mapping[str, DeviceClass]
) -> tuple[ContainerExtendedResourceRequest, ...]:
    """Return which requests of the ResourceClaim provide the devices for each container's extended resources.

    The claim is the one that `build_extended_resource_claim` returns.
    """
    return tuple(
        mapping
        for resource in sorted(resources)
        for mapping in _resource_requests(pod, resource, class_of_resource[resource].metadata.name).mappings
    )


def extended_resource_claim_key(pod: Pod) -> str:
    """Return the key under which a session reserves devices for the extended resources of a pod.

    It contains the UID: a new pod with the name of a deleted one may be placed while that one is still being bound.
    """
    return f"{pod.key}/{pod.metadata.uid}/{IN_MEMORY_NAME}"


@dataclass(frozen=True, slots=True)
class _ContainerNeed:
    """The devices of one extended resource that a container needs.

    Args:
      container: name of the container.
      request: the request that the claim gets for the container; None if the devices of other requests are enough.
      request_names: the requests with the devices that the container uses.
    """

    container: str
    request: DeviceRequest | None = None
    request_names: tuple[str, ...] = ()

    @property
    def device_count(self) -> int:
        """The number of devices that the ResourceClaim requests for this container itself.

        Devices of other containers' requests, which the container may also use, are not included.
        """
        return _count(self.request)


@dataclass(frozen=True, slots=True)
class _ResourceRequests:
    """The requests of the claim for one extended resource, and the requests that each container uses."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def _resource_requests(pod: Pod, resource: str, class_name: str) -> _ResourceRequests:
    """Return the requests for one resource: one for each container that cannot use enough devices of others.

    An init container that ends before the others start may use the devices of all later containers.
    """
    containers = (*(pod.spec.init_containers or ()), *pod.spec.containers)
    init = len(pod.spec.init_containers or ())
    lasting = [
        _ContainerNeed(container.name)
        if _ends_early(container, number < init)
        else _need_of(number, container, resource, class_name)
        for number, container in enumerate(containers)
    ]
    early = [
        _need_of(number, container, resource, class_name, lasting[number:])
        for number, container in enumerate(containers)
        if _ends_early(container, number < init)
    ]
    largest = max(early, key=lambda need: need.device_count, default=_ContainerNeed(""))
    own_names = {need.request.name for need in early if need.request is not None}
    mappings = [
        ContainerExtendedResourceRequest(
            container_name=need.container,
            resource_name=resource,
            # These containers run one after the other: all use the devices of the largest request.
            request_name=largest.request.name if name in own_names and largest.request is not None else name,
        )
        for need in (*lasting, *early)
        for name in need.request_names
    ]
    requests = (need.request for need in (largest, *lasting))
    return _ResourceRequests(tuple(request for request in requests if request is not None), tuple(mappings))


def _ends_early(container: Container, is_init: bool) -> bool:
    return is_init and container.restart_policy != "Always"


def _count(request: DeviceRequest | None) -> int:
    return request.exactly.count if request is not None and request.exactly is not None else 0


def _need_of(
    number: int,
    container: Container,
    resource: str,
    class_name: str,
    reusable: Sequence[_ContainerNeed] = (),
) -> _ContainerNeed:
    requested = (container.resources.requests if container.resources is not None else None) or {}
    count = parse_quantity_in_base_units(resource, requested.get(resource, 0))
    names: list[str] = []
    for request in (need.request for need in reusable):
        if request is not None and count > 0:
            count -= _count(request)
            names.append(request.name)
    if count <= 0:
        return _ContainerNeed(container.name, None, tuple(names))
    own_name = f"container-{number}-request-{sorted(requested).index(resource)}"
    return _ContainerNeed(
        container.name,
        DeviceRequest(
            name=own_name,
            exactly=ExactDeviceRequest(
                device_class_name=class_name, allocation_mode="ExactCount", count=count
            ),
        ),
        (*names, own_name),
    )
